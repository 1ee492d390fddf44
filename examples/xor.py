"""Why metrics became nonlinear: the exclusive or, in a figure and in numbers.

python examples/xor.py --out xor.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import vicinal as vc
from vicinal.classical import MCML, NCA, Kernelised

CORNERS = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
LEARNERS = {
    "linear NCA": NCA(2),
    "kernel MCML, polynomial of degree 2": Kernelised(MCML(2, init="pca"), kernel="polynomial"),
    "kernel MCML, Gaussian": Kernelised(MCML(2, init="pca"), kernel="gaussian", width=1.0),
}


def noisy(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw 25 points about each corner; opposite corners share a class."""
    which = np.arange(100) % 4
    return CORNERS[which] + 0.25 * np.random.RandomState(seed).randn(100, 2), which // 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("xor.png"))
    arguments = parser.parse_args()
    train, (points, labels) = noisy(0), noisy(1)
    views = {"as they are": points}
    views |= {name: learner.fit(*train).transform(points) for name, learner in LEARNERS.items()}

    figure, axes = plt.subplots(1, len(views), figsize=(16, 4.2), layout="constrained")
    for axis, (name, view) in zip(axes, views.items(), strict=True):
        score = vc.evaluate(np.ascontiguousarray(view), labels, distance="euclidean", intervals=None)["P@R"]
        print(f"{name:36} R-precision {score:.2f}")
        for label, colour, mark in ((0, "#0072b2", "o"), (1, "#d55e00", "^")):
            axis.scatter(*view[labels == label].T, c=colour, marker=mark, s=26, alpha=0.75, label=f"class {label + 1}")
        axis.set_title(f"{name}\nR-precision {score:.2f}", fontsize=11)
        axis.set_aspect("equal", adjustable="datalim")
        axis.tick_params(labelsize=8)
    axes[0].legend(loc="upper center", ncols=2, fontsize=9, bbox_to_anchor=(0.5, -0.08), frameon=False)
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
