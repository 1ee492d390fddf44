"""Figures of what losses do."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.figure import Figure

from vicinal.figure_style import ACCENT, GREEN, styled
from vicinal.weights import WeightCurves

__all__ = ["plot_weights"]

PULL, PUSH = GREEN, ACCENT


def plot_weights(curves: Mapping[str, WeightCurves], *, columns: int = 4) -> Figure:
    """Draw the weight of a pair over its similarity, one panel per loss.

    Args:
        curves: Name of each loss and its curves, as `vicinal.weights.weight_curves` traces them.
        columns: Panels side by side.

    Returns:
        A figure; save it with `figure.savefig("weights.png")`.
    """
    across = min(columns, len(curves))
    down = math.ceil(len(curves) / across)
    figure = Figure(figsize=(3.4 * across, 2.7 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel, (name, curve) in zip(panels, curves.items(), strict=False):
        panel.plot(curve.similarity, curve.positive, color=PULL, label="positive pair is pulled")
        panel.plot(curve.similarity, curve.negative, color=PUSH, linestyle=":", label="negative pair is pushed")
        # The slope of a distance over the cosine grows without bound at 1: leave that spike out of the scale.
        inner = curve.similarity.abs() < 0.97
        shown = (*curve.positive[inner].tolist(), *curve.negative[inner].tolist())
        pad = 0.06 * (max(shown) - min(shown) or 1.0)
        panel.set(title=name, xlim=(-1, 1), ylim=(min(shown) - pad, max(shown) + pad))
        panel.grid(alpha=0.25)
    for panel in panels[len(curves) :]:
        panel.set_axis_off()
    figure.supxlabel("cosine similarity of the pair")
    figure.supylabel("weight")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    return styled(figure)
