"""Pictures of scores, as matplotlib figures that belong to no window and no global state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from vicinal.errors import InputError
from vicinal.figure_style import ACCENT, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vicinal.evaluation.scores import Scores

__all__ = ["overview", "recall_curve", "worst_classes"]

COLOUR, BAND = ACCENT, f"{ACCENT}40"


def overview(scores: Scores) -> Figure:
    """The R@k curve beside the worst classes."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    recall_curve(scores, left)
    worst_classes(scores, right)
    return styled(figure)


def recall_curve(scores: Scores, axes: Axes) -> None:
    """Draw R@k against k on a logarithmic axis, with its interval."""
    names = {int(name[2:]): name for name in scores.overall if name.startswith("R@")}
    if not names:
        raise InputError("There is no R@k to draw; evaluate with at least one k.")
    ks = sorted(names)
    values = [scores[names[k]] for k in ks]
    ends = [scores.intervals.get(names[k], (value, value)) for k, value in zip(ks, values, strict=True)]
    axes.fill_between(ks, [low for low, _ in ends], [high for _, high in ends], color=BAND, linewidth=0)
    axes.plot(ks, values, marker="o", color=COLOUR)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set_ylim(0, 1.02)
    axes.set(xlabel="k", ylabel="R@k", title="A hit among the k nearest")


def worst_classes(scores: Scores, axes: Axes, name: str = "MAP@R", count: int = 15) -> None:
    """Draw the classes with the lowest mean of one score, the worst on top."""
    worst = list(scores.per_class(name).items())[:count][::-1]
    axes.barh(range(len(worst)), [value for _, value in worst], color=COLOUR)
    axes.set_yticks(range(len(worst)), [_short(str(label)) for label, _ in worst])
    axes.axvline(scores[name], color="black", linewidth=1, linestyle="--", label="all queries")
    axes.set_xlim(0, 1.02)
    axes.set(xlabel=name, title=f"The {len(worst)} worst classes" if len(worst) > 1 else "The worst class")
    axes.legend(loc="lower right")


def _short(label: str, limit: int = 28) -> str:
    label = label.replace("$", r"\$")  # matplotlib would read a formula
    return label if len(label) <= limit else f"{label[: limit - 1]}…"
