"""What the thesis begins with, in a few lines each: perceptron, MLP, convolution, batch norm, the Siamese set-up.

python examples/primers.py --out docs/primers.png
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

Points = npt.NDArray[np.float64]
XOR = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
ODD = np.array([-1, -1, 1, 1])


def perceptron(points: Points, labels: npt.NDArray[np.int64], passes: int = 100) -> tuple[Points, int | None]:
    """Rosenblatt's rule: add every point that is on the wrong side, times its label (1 or -1).

    Returns:
        The weights, bias last, and the pass that found nothing wrong; None where none did.
    """
    extended = np.hstack([points, np.ones((len(points), 1))])
    weights = np.zeros(extended.shape[1])
    for number in range(1, passes + 1):
        mistakes = 0
        for point, label in zip(extended, labels, strict=True):
            if label * (weights @ point) <= 0:
                weights, mistakes = weights + label * point, mistakes + 1
        if not mistakes:
            return weights, number
    return weights, None


def mlp(points: Points, labels: npt.NDArray[np.int64], hidden: int = 8, steps: int = 400, seed: int = 0) -> nn.Module:
    """One hidden layer, trained by Adam on the logistic loss."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(points.shape[1], hidden), nn.Tanh(), nn.Linear(hidden, 1))
    inputs, wanted = torch.from_numpy(points).float(), torch.from_numpy(labels).float()[:, None]
    optimiser = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.softplus(-wanted * network(inputs)).mean().backward()
        optimiser.step()
    return network


def convolve(image: Points, kernel: Points) -> Points:
    """Slide a kernel over an image: what networks call a convolution, and signal processing a correlation."""
    height, width = np.array(image.shape) - np.array(kernel.shape) + 1
    rows, columns = kernel.shape
    return np.array(
        [[(image[i : i + rows, j : j + columns] * kernel).sum() for j in range(width)] for i in range(height)]
    )


def normalise_batch(batch: Tensor, eps: float = 1e-5) -> Tensor:
    """What batch norm does in training, before its scale and shift: mean 0 and variance 1 in every dimension."""
    return (batch - batch.mean(0)) / (batch.var(0, unbiased=False) + eps).sqrt()


def siamese_gradients(network: nn.Module, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of |f(left) - f(right)|^2: of the shared weights, and of each branch with weights of its own."""

    def gradient(one: bool, other: bool) -> Tensor:
        network.zero_grad()
        a, b = network(left), network(right)
        (a if one else a.detach()).sub(b if other else b.detach()).square().sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in network.parameters() if parameter.grad is not None])

    return gradient(True, True), gradient(True, False), gradient(False, True)


def picture() -> Figure:
    """The perceptron where a line divides and where none does, an MLP, a convolution, batch norm, and two branches."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    separable, failed, crossed, edge, batch, siamese = figure.subplots(2, 3).flat
    rng = np.random.default_rng(0)
    points = np.vstack([rng.normal((-1, -1), 0.5, (30, 2)), rng.normal((1, 1), 0.5, (30, 2))])
    labels = np.repeat([-1, 1], 30)
    weights, passes = perceptron(points, labels)
    _draw_sides(separable, points, labels, _linear(weights))
    separable.set_title(f"perceptron: right after {passes} passes")
    weights, passes = perceptron(XOR, ODD, passes=1000)
    wrong = int((np.sign(_linear(weights)(XOR)) != ODD).sum())
    _draw_sides(failed, XOR, ODD, _linear(weights), around=1.2)  # its line lies outside the four points
    failed.set_title(f"XOR: {wrong} of 4 wrong after 1000 passes")
    network = mlp(XOR, ODD)
    with torch.no_grad():
        _draw_sides(crossed, XOR, ODD, lambda grid: network(torch.from_numpy(grid).float()).numpy()[:, 0])
    crossed.set_title("XOR by an MLP: all right")
    image = np.zeros((16, 16))
    image[4:12, 4:12] = 1.0
    edge.imshow(
        np.hstack([image[:14, :14], np.full((14, 1), np.nan), convolve(image, np.array([[1, 0, -1]] * 3))]), cmap="RdBu"
    )
    edge.set_title("a square, and its edges by 3 x 3")
    edge.set_axis_off()
    before = torch.from_numpy(rng.normal((3, -2), (0.5, 2), (200, 2)))
    after = normalise_batch(before)
    for values, name in ((before, "before"), (after, "after")):
        batch.scatter(*values.T, s=6, label=name)
    batch.set_aspect("equal")
    batch.legend(frameon=False, fontsize=8)
    batch.set_title("batch norm")
    torch.manual_seed(0)
    gradients = siamese_gradients(nn.Linear(3, 2), torch.randn(8, 3), torch.randn(8, 3))
    shared, left, right = (gradient.numpy() for gradient in gradients)
    places = np.arange(len(shared))
    siamese.bar(places - 0.2, left, 0.35, label="one branch")
    siamese.bar(places - 0.2, right, 0.35, bottom=np.where(left * right > 0, left, 0), label="the other")
    siamese.bar(places + 0.2, shared, 0.35, color="#1f2328", label="shared weights")
    siamese.axhline(0, color="#1f2328", linewidth=0.8)
    siamese.legend(frameon=False, fontsize=8)
    siamese.set_xlabel("weights of the network")
    siamese.set_title("Siamese: two gradients add up")
    return figure


def _linear(weights: Points) -> Callable[[Points], Points]:
    return lambda grid: grid @ weights[:-1] + weights[-1]


def _draw_sides(
    axes: Axes, points: Points, labels: npt.NDArray[np.int64], score: Callable[[Points], Points], around: float = 0.5
) -> None:
    low, high = points.min(0) - around, points.max(0) + around
    x, y = np.meshgrid(np.linspace(low[0], high[0], 80), np.linspace(low[1], high[1], 80))
    sides = score(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape)
    axes.contourf(x, y, sides > 0, levels=[-0.5, 0.5, 1.5], colors=["#ddf4ff", "#ffebe9"])
    axes.scatter(*points.T, c=np.where(labels > 0, "#cf222e", "#0969da"), s=18)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("primers.png"))
    path = parser.parse_args().out
    picture().savefig(path, dpi=110)
    print(f"The picture is {path}.")


if __name__ == "__main__":
    main()
