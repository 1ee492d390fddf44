"""The curve DET of a verification: both kinds of errors, on logarithmic axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vicinal.evaluation.verification import Verification

__all__ = ["draw_det"]

LOWEST = 1e-7


def draw_det(found: Verification) -> Figure:
    """Draw false rejects over false accepts, with the EER and the rates that there are scores for."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    false, rejected = found.det
    shown = (false > 0) & (rejected > 0)
    axes.plot(false[shown], rejected[shown], color="#1f5fa8", linewidth=1.6)
    for name, value in found.overall.items():
        if name.startswith("TAR@FAR=") and value < 1:
            rate = float(name.removeprefix("TAR@FAR="))
            axes.plot(rate, 1 - value, "o", color="#1f5fa8", markersize=4)
            axes.annotate(f"{value:.2f}", (rate, 1 - value), (4, 5), textcoords="offset points", fontsize=8)
    if found["EER"] > 0:
        axes.plot(found["EER"], found["EER"], "D", color="#b5482a", markersize=5)
        axes.annotate(
            f"EER {found['EER']:.3f}", (found["EER"], found["EER"]), (6, 6), textcoords="offset points", fontsize=8
        )
    axes.set(xscale="log", yscale="log", xlabel="false accepts (FAR)", ylabel="false rejects (1 - TAR)")
    axes.set_xlim(max(LOWEST, float(false[shown].min(initial=1))), 1)
    axes.set_ylim(top=1.1, bottom=max(1e-4, float(np.min(rejected[shown], initial=1))))
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    axes.set_title("DET: what a threshold costs; numbers are TAR", fontsize=9)
    return figure
