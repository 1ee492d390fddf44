"""Style of all matplotlib figures: the colours of the report, light, with few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ACCENT", "CONTRAST", "FAINT", "GREEN", "INK", "OTHER", "PLUM", "QUIET", "styled"]

# The same as in report/templates/figures.css; a test compares them.
INK, QUIET, FAINT, OTHER = "#1b1b1a", "#62615d", "#dcdad3", "#a3a19a"
ACCENT, CONTRAST, GREEN, PLUM = "#0b62a8", "#c2500a", "#00835f", "#a4447e"


def styled(figure: Figure) -> Figure:
    """Return a figure in the colours of the report, with only the left and bottom spines and a faint grid."""
    for axes in figure.axes:
        for side, spine in axes.spines.items():
            spine.set_visible(spine.get_visible() and side in ("left", "bottom"))
            spine.set_color(QUIET)
        axes.tick_params(colors=QUIET, labelsize=9)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set(color=QUIET, fontsize=9)
        axes.title.set(color=INK, fontsize=10)
        for line in (*axes.get_xgridlines(), *axes.get_ygridlines()):
            line.set(color=FAINT, alpha=1.0, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure
