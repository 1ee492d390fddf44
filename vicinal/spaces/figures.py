"""Figures of audits: the metric region, the worst triple, and the distances between items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vicinal._util.style import ACCENT, CONTRAST, GREEN, PLUM, styled
from vicinal.spaces.any_distance import distances_in_blocks
from vicinal.spaces.axioms import MetricVerdict
from vicinal.spaces.condition import p_max
from vicinal.spaces.label_metric import Bounds, LabelMetric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["audit_figures", "pair_distances", "slack_surface", "worst_triple"]

X, Y, Z, BAD = ACCENT, GREEN, PLUM, CONTRAST


def audit_figures(
    verdict: MetricVerdict,
    metric: LabelMetric | None = None,
    found: Bounds | None = None,
    items: Float[Tensor, "n c"] | None = None,
) -> dict[str, Figure]:
    """Draw all figures of an audit.

    Args:
        verdict: Result of the audit.
        metric: Distance, if it is one of class probabilities.
        found: Bounds of a run.
        items: Class probabilities that the bounds belong to.

    Returns:
        Figures by name: "worst triple" and, if they apply, "slack surface" and "pair distances".
    """
    figures = {} if verdict.faults else {"worst triple": worst_triple(verdict)}
    if metric is not None:
        figures["slack surface"] = slack_surface(metric)
    if found is not None and items is not None:
        figures["pair distances"] = pair_distances(found, items)
    return figures


def slack_surface(metric: LabelMetric | None = None, *, points: int = 161) -> Figure:
    """Draw the slack of the triangle inequality over k and p at its worst point, half-way between two labels.

    Args:
        metric: Distance to mark in the figure; the surface uses its smoothing.
        points: Number of grid points along each side.
    """
    from matplotlib.colors import TwoSlopeNorm  # slow to import, like all of matplotlib

    smoothing = 0.0 if metric is None else metric.smoothing
    k, p = np.linspace(0.01, 0.99, points), np.linspace(0.02, 1.3, points)
    half = (
        0.5**p
        if smoothing == 0
        else np.expm1(p * np.log((0.5 + smoothing) / smoothing)) / np.expm1(p * np.log((1 + smoothing) / smoothing))
    )
    direct = -np.log1p(-k)
    slack = (-2 * np.log1p(-np.outer(half, k)) - direct) / direct
    figure = _new_figure(5.6, 4.2)
    panel = figure.subplots()
    drawn = panel.pcolormesh(k, p, slack, cmap="RdBu", norm=TwoSlopeNorm(0.0, -0.7, 0.7), shading="gouraud")
    panel.plot(k, [p_max(float(value), smoothing) for value in k], color="black", linewidth=1.4)
    panel.annotate("metric", (0.12, 0.45), fontsize=11)
    panel.annotate("weak-metric only", (0.5, 1.05), fontsize=11)
    if metric is not None:
        panel.plot([metric.k], [metric.p], "o", color="black", markerfacecolor="gold", markersize=9)
        panel.annotate(
            f"k = {metric.k:g}, p = {metric.p:g}",
            (metric.k, metric.p),
            xytext=(-8, -14),
            textcoords="offset points",
            ha="right",
        )
    panel.set(xlabel="k", ylabel="p" + (f" (smoothing {smoothing:g})" if smoothing else ""))
    panel.set_title("Slack half-way between two labels, relative to their distance", fontsize=10)
    panel.set(xlim=(0, 1.02), ylim=(0, 1.3))
    figure.colorbar(drawn, ax=panel, label="below 0 the triangle inequality fails", extend="both")
    return styled(figure)


def worst_triple(verdict: MetricVerdict) -> Figure:
    """Draw the coordinates of the worst triple, and its two paths from x to z.

    Args:
        verdict: Result of an audit.
    """
    triple = verdict.worst
    figure = _new_figure(7.6, 3.0)
    left, right = figure.subplots(1, 2, width_ratios=(1.2, 1))
    shown = min(len(triple.x), 12)
    positions = np.arange(shown)
    for shift, name, point, colour in ((-0.27, "x", triple.x, X), (0.0, "y", triple.y, Y), (0.27, "z", triple.z, Z)):
        left.bar(positions + shift, point[:shown].tolist(), 0.25, color=colour, label=name)
    left.axhline(0, color="black", linewidth=0.8)
    left.set(title="Points of the worst triple", xlabel="coordinate", xticks=positions, xticklabels=positions + 1)
    left.margins(y=0.25)
    left.legend(frameon=False, ncols=3, loc="upper center", fontsize=8)
    _ways(right, triple.first, triple.second, triple.direct, fails=triple.slack < 0)
    figure.suptitle(f"{verdict.subject} on {verdict.domain}", fontsize=10)
    return styled(figure)


def pair_distances(found: Bounds, items: Float[Tensor, "n c"], *, compare: int = 500, seed: int = 0) -> Figure:
    """Draw the distances between items of one class and of different classes, with the proved bounds.

    Args:
        found: Bounds of a run.
        items: Class probabilities that the bounds belong to.
        compare: Number of random items to compare with each other.
        seed: Seed of the random items.
    """
    chosen = torch.randperm(len(items), generator=torch.Generator().manual_seed(seed))[:compare]
    blocks = [block for _, block in distances_in_blocks(found.metric, items[chosen].double())]
    matrix, labels = torch.cat(blocks), found.labels[chosen]
    above = torch.ones(len(chosen), len(chosen)).triu(1).bool()
    same = labels[:, None] == labels[None]
    figure = _new_figure(6.4, 3.2)
    panel = figure.subplots()
    finite = matrix[matrix.isfinite()]
    edges = np.linspace(0, float(finite.max()), 61).tolist()
    for name, mask, colour in (("one class", same & above, Y), ("different classes", ~same & above, X)):
        values = matrix[mask & matrix.isfinite()].numpy()
        panel.hist(
            values, edges, weights=np.full(len(values), 1 / max(len(values), 1)), color=colour, alpha=0.6, label=name
        )
    marks = [(found.intra_bound, "one class: at most $2\\epsilon$", Y)]
    if found.inter_bound is not None and found.inter_bound > 0:
        marks.append((found.inter_bound, "different classes: at least $F(2M)-2\\epsilon$", X))
    for value, name, colour in marks:
        panel.axvline(value, color=colour, linestyle="--", label=f"proved for {name}")
    panel.set(xlabel="distance of two items", ylabel="share of pairs", yscale="log", title="Distances and their bounds")
    figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return styled(figure)


def _new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _ways(panel: Axes, first: float, second: float, direct: float, *, fails: bool) -> None:
    """Draw the two paths as bars of their lengths; an infinite one extends beyond the panel."""
    longest = max([side for side in (first + second, direct) if np.isfinite(side)], default=1.0)
    lengths = [min(side, 1.4 * longest) for side in (first, second, direct)]
    panel.barh([1], [lengths[0]], 0.5, color=X, label="d(x,y)")
    panel.barh([1], [lengths[1]], 0.5, left=[lengths[0]], color=Y, label="d(y,z)")
    panel.barh([0], [lengths[2]], 0.5, color=BAD if fails else Z, label="d(x,z)")
    for height, value in ((1, first + second), (0, direct)):
        panel.annotate(f"{value:.4g}", (0.02 * longest, height), color="white", va="center", fontweight="bold")
    panel.set(yticks=[0, 1], yticklabels=["direct", "through y"], xlim=(0, 1.15 * max(lengths[2], sum(lengths[:2]))))
    panel.set_ylim(-0.6, 2.1)
    panel.set_title("Shorter through y: not a metric" if fails else "No shorter through y")
    panel.legend(frameon=False, ncols=3, loc="upper center", fontsize=8)
