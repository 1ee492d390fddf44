"""Figures 27 to 32 of the thesis "Metric learning: a deep dive" (Psomas 2020), drawn from its tables.

python examples/thesis_figures.py --out thesis/
"""

from __future__ import annotations

import argparse
import math
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from vicinal.literature.tables import published, thesis_tables
from vicinal.objectives import OBJECTIVES
from vicinal.weights import pair_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZES = (64, 128, 512, 1024)
NETWORKS = {"resnet50": "ResNet-50", "bn_inception": "BN-Inception", "googlenet": "GoogLeNet"}
INK, SHADES = "#1f2328", ("#0969da", "#54aeff", "#b6e3ff", "#d8dee4")
POSITIVE, NEGATIVE, SAMPLE = "#1a7f37", "#cf222e", "#0969da"

# Figure 32: three classes on the unit circle, where a chord is the shorter the more similar its ends are.
MARKERS = {"star": "*", "square": "s", "circle": "o"}
PROXIES = list(MARKERS)
ANGLES = {
    "star": 90, "star near": 68, "star far": 148,
    "square": 345, "square near": 5, "square far": 288,
    "circle": 210, "circle near": 190, "circle far": 262,
}  # fmt: skip
SCALE, WIDTH = 3.0, 14.0


def thesis_figures() -> dict[str, Figure]:
    """Return the figures by name: bars of one experiment, curves over sizes of each network, networks side by side, and
    how the thesis' own loss relates proxies and items.

    Losses stand in the order in which they were published, as the thesis has them: were papers right about each other,
    bars would rise from left to right.
    """
    sizes = {28: "resnet50", 29: "bn_inception", 30: "googlenet"}
    return {
        "figure-27": _bars_of_an_experiment("resnet50 128"),
        **{f"figure-{number}": _size_curves(network) for number, network in sizes.items()},
        "figure-31": _networks_side_by_side(512),
        "figure-32": _own_loss(),
    }


def _bars_of_an_experiment(experiment: str) -> Figure:
    figure, axes = _empty((9, 4))
    for shade, (k, width) in zip(SHADES, ((1, 0.2), (2, 0.2), (4, 0.2), (8, 0.2)), strict=True):
        row = thesis_tables("cub", f"R@{k}")[experiment]
        places = np.arange(len(row)) + width * (SHADES.index(shade) - 1.5)
        axes.bar(places, [100 * value for value in row.values()], width, color=shade, label=f"R@{k}")
        for place, value in zip(places, row.values(), strict=True) if k == 1 else ():
            axes.text(place, 100 * value + 0.6, f"{100 * value:.1f}", ha="center", fontsize=7, color=INK)
    _name_losses(axes, list(row))
    axes.set(ylim=(40, 100), ylabel="recall, per cent", title="CUB, ResNet-50, 128 dimensions (Table 6b)")
    axes.legend(ncols=4, frameon=False, loc="upper left", fontsize=8)
    return figure


def _size_curves(network: str) -> Figure:
    figure, axes = _empty((7, 4.6))
    tables = thesis_tables("cub")
    losses = list(tables[f"{network} 64"])
    last = {loss: 100 * tables[f"{network} 1024"][loss] for loss in losses}
    for number, loss in enumerate(losses):
        values = [100 * tables[f"{network} {size}"][loss] for size in SIZES]
        axes.plot(range(4), values, marker="o", markersize=3, linewidth=1.2, color=f"C{number}")
    for loss, height in _apart(last, 0.75).items():
        number = losses.index(loss)
        axes.annotate(
            _plain(loss), (3, last[loss]), (3.12, height), fontsize=8, color=f"C{number}", va="center",
            arrowprops={"arrowstyle": "-", "color": f"C{number}", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip
    axes.set_xticks(range(4), [str(size) for size in SIZES])
    axes.set(xlim=(-0.1, 4.0), xlabel="dimensions", ylabel="R@1, per cent", title=f"CUB, {NETWORKS[network]}")
    return figure


def _networks_side_by_side(dim: int) -> Figure:
    figure, axes = _empty((9, 4))
    tables = thesis_tables("cub")
    for place, (network, name) in enumerate(NETWORKS.items()):
        row = tables[f"{network} {dim}"]
        axes.bar(np.arange(len(row)) + 0.27 * (place - 1), [100 * value for value in row.values()], 0.27,
                 color=SHADES[place], label=name)  # fmt: skip
    _name_losses(axes, list(row))
    axes.set(ylim=(50, 75), ylabel="R@1, per cent", title=f"CUB, {dim} dimensions, three networks")
    axes.legend(ncols=3, frameon=False, loc="upper left", fontsize=8)
    return figure


def _own_loss() -> Figure:
    """Proxies are pushed from proxies, and items only pulled: in ProxyAnchor items are pushed by proxies.

    The thesis draws the first form of its loss (its equation 6.1), and has numbers of the second (6.2).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    values = {row.method: row.value for row in published("cub", protocol="default", backbone="bn_inception", dim=512)
              if row.score == "R@1"}  # fmt: skip
    titles = {
        "proxy_anchor": f"proxy anchor: R@1 {100 * values['proxy_anchor']:.2f} on CUB",
        "proxy_repulsion": f"proxy repulsion; as proxy gram: R@1 {100 * values['proxy_gram']:.2f} on CUB",
    }
    for axes, (method, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        pulls, pushes = own_loss_edges(method)
        for edges, colour in ((pushes, NEGATIVE), (pulls, POSITIVE)):
            for (start, end), weight in edges.items():
                line = np.array([_on_circle(ANGLES[start]), _on_circle(ANGLES[end])])
                axes.plot(*line.T, color=colour, linewidth=WIDTH * weight, alpha=0.8, solid_capstyle="butt")
        for name, angle in ANGLES.items():
            colour, size = ("black", 170) if name in PROXIES else (SAMPLE, 80)
            axes.scatter(*_on_circle(angle), color=colour, marker=MARKERS[name.split()[0]], s=size, zorder=3)
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()
        axes.set_aspect("equal")
    figure.supxlabel(
        "black: proxies, blue: items, green: pulled together, red: pushed apart, on the circle of unit vectors;\n"
        f"widths are the weights of the pairs, at a scale of {SCALE:g} (at the usual 32 most of them vanish)",
        fontsize=9,
    )
    return figure


def own_loss_edges(method: str) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    """Return how strongly figure 32's nodes are pulled together and pushed apart, by the names of their ends.

    Args:
        method: "proxy_anchor" or "proxy_repulsion".
    """
    items = [name for name in ANGLES if name not in PROXIES]
    labels = torch.arange(len(PROXIES))
    places = {name: torch.tensor(_on_circle(angle)) for name, angle in ANGLES.items()}
    proxies = torch.stack([places[name] for name in PROXIES])
    matrix = torch.stack([places[name] for name in items]) @ proxies.T
    same = torch.tensor([[item.startswith(proxy) for proxy in PROXIES] for item in items])
    options: dict[str, Any] = {"scale": SCALE}
    if method == "proxy_repulsion":
        options |= {"reference_labels": labels, "reference_matrix": proxies @ proxies.T}
    weights = pair_weights(OBJECTIVES[method], matrix, same, ~same, **options)
    pairs = [(item, proxy) for item in range(len(items)) for proxy in range(len(PROXIES))]
    pulls = {(items[i], PROXIES[j]): float(weights[i, j]) for i, j in pairs if same[i, j]}
    if method == "proxy_anchor":
        return pulls, {(items[i], PROXIES[j]): float(weights[i, j]) for i, j in pairs if not same[i, j]}

    def of_proxies(among: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
        return OBJECTIVES[method](matrix, same, ~same, **(options | {"reference_matrix": among}))

    alike = labels[:, None] == labels
    among = pair_weights(of_proxies, proxies @ proxies.T, alike, ~alike)
    pushed = (among + among.T).tolist()  # both ends push
    return pulls, {(PROXIES[i], PROXIES[j]): pushed[i][j] for i, j in combinations(range(len(PROXIES)), 2)}


def _on_circle(degrees: int) -> tuple[float, float]:
    return math.cos(math.radians(degrees)), math.sin(math.radians(degrees))


def _empty(size: tuple[float | int, float | int]) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _name_losses(axes: Axes, losses: list[str]) -> None:
    axes.set_xticks(range(len(losses)), [_plain(loss) for loss in losses], rotation=25, ha="right", fontsize=9)


def _plain(loss: str) -> str:
    return loss.replace("_", " ")


def _apart(heights: dict[str, float], least: float) -> dict[str, float]:
    """Return heights of labels that do not lie on each other, in the same order."""
    placed: dict[str, float] = {}
    for loss, height in sorted(heights.items(), key=lambda pair: pair[1]):
        placed[loss] = max(height, max(placed.values(), default=-np.inf) + least)
    return placed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("thesis"), help="folder of the six figures")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in thesis_figures().items():
        figure.savefig(folder / f"{name}.svg")
        print(f"Drawn to {folder / name}.svg")


if __name__ == "__main__":
    main()
