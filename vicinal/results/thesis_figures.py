"""Figures 27 to 32 of the thesis "Metric learning: a deep dive" (Psomas 2020), drawn from its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vicinal.results.literature import published, thesis_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["thesis_figures"]

SIZES = (64, 128, 512, 1024)
NETWORKS = {"resnet50": "ResNet-50", "bn_inception": "BN-Inception", "googlenet": "GoogLeNet"}
INK, SHADES = "#1f2328", ("#0969da", "#54aeff", "#b6e3ff", "#d8dee4")
POSITIVE, NEGATIVE, SAMPLE = "#1a7f37", "#cf222e", "#0969da"


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
    """Proxies are pushed from proxies, and items only pulled: in ProxyAnchor items are pushed by proxies."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 1.0], [-0.95, -0.55], [0.95, -0.55]])
    items = [centre + 0.42 * rng.normal(size=(3, 2)) for centre in centres]
    values = {row.method: row.value for row in published("cub", protocol="default", backbone="bn_inception", dim=512)
              if row.score == "R@1"}  # fmt: skip
    for axes, method in zip(figure.subplots(1, 2), ("proxy_anchor", "proxy_gram"), strict=True):
        for label, (centre, own) in enumerate(zip(centres, items, strict=True)):
            for item in own:
                axes.plot(*zip(centre, item, strict=True), color=POSITIVE, linewidth=1)
                for other in np.delete(centres, label, axis=0) if method == "proxy_anchor" else ():
                    axes.plot(*zip(other, item, strict=True), color=NEGATIVE, linewidth=0.6, alpha=0.7)
            for other in centres[label + 1 :] if method == "proxy_gram" else ():
                axes.plot(*zip(centre, other, strict=True), color=NEGATIVE, linewidth=1.6)
            marker = "os^"[label]
            axes.scatter(*own.T, color=SAMPLE, marker=marker, s=55, zorder=3)
            axes.scatter(*centre, color="black", marker=marker, s=130, zorder=4)
        axes.set_title(f"{_plain(method)}: R@1 {100 * values[method]:.2f} on CUB", fontsize=10)
        axes.set_axis_off()
        axes.set_aspect("equal")
    figure.text(
        0.5, 0.01, "black: proxies, blue: items, green: pulled together, red: pushed apart", ha="center", fontsize=9
    )
    return figure


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
