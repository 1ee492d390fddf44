"""A search as a figure: how it went, and the score over every setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from matplotlib.figure import Figure

from vicinal.figure_style import ACCENT, CONTRAST, OTHER, styled
from vicinal.phrasing import counted
from vicinal.tuning.ranges import Range
from vicinal.tuning.tuned import Attempt, Tuned

__all__ = ["plot_search"]

COMPLETE, PRUNED, BEST = ACCENT, OTHER, CONTRAST


def plot_search(tuned: Tuned, *, columns: int = 3) -> Figure:
    """Draw the score of every trial in turn, and over each setting that was varied.

    Later trials are darker; the red star is the best and the diamond the recipe as it was given.

    Args:
        tuned: A finished search.
        columns: Panels side by side.

    Returns:
        A figure; save it with `figure.savefig("search.png")`.
    """
    scored = [trial for trial in tuned.trials if trial.score is not None]
    panels_needed = 1 + len(tuned.space)
    across = min(columns, panels_needed)
    down = math.ceil(panels_needed / across)
    figure = Figure(figsize=(3.6 * across, 2.9 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    _draw(panels[0], scored, tuned.best, [trial.place for trial in scored])
    _draw_best_so_far(panels[0], scored)
    panels[0].set(xlabel="trial")
    for panel, (name, entry) in zip(panels[1:], tuned.space.items(), strict=False):
        values = [trial.values[name] for trial in scored]
        if isinstance(entry, Range):
            _draw(panel, scored, tuned.best, values)
            panel.set_xscale("log" if entry.log else "linear")
        else:
            levels = entry.levels()
            _draw(panel, scored, tuned.best, [levels.index(value) for value in values])
            panel.set_xticks(range(len(levels)), [str(level) for level in levels])
        share = f" ({100 * tuned.importance[name]:.0f} %)" if name in tuned.importance else ""
        panel.set(xlabel=name.removeprefix("loss_options.") + share)
    for panel in panels:
        panel.grid(alpha=0.25)
    for panel in panels[panels_needed:]:
        panel.set_axis_off()
    figure.supylabel(f"{tuned.score}, validation")
    figure.suptitle(f"{tuned.recipe.method}: {counted(len(tuned.trials), 'trial')} by {tuned.sampler}")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return styled(figure)


def _draw(panel: Any, trials: list[Attempt], best: Attempt, across: Sequence[Any]) -> None:
    points = list(zip(trials, across, strict=True))
    last = max((trial.place for trial in trials), default=0) or 1
    pruned = [(x, trial.score) for trial, x in points if trial.state != "complete"]
    if pruned:
        panel.scatter(*zip(*pruned, strict=True), s=16, facecolors="none", edgecolors=PRUNED, label="given up")
    complete = [(trial, x) for trial, x in points if trial.state == "complete"]
    panel.scatter(
        [x for _, x in complete],
        [trial.score for trial, _ in complete],
        s=22,
        color=COMPLETE,
        alpha=[0.3 + 0.7 * trial.place / last for trial, _ in complete],
        linewidths=0,
        label="complete",
    )
    for trial, x in points:
        if trial.place == 0:
            panel.scatter(x, trial.score, marker="D", s=40, facecolors="none", edgecolors="black", label="as given")
        if trial.place == best.place:
            panel.scatter(x, trial.score, marker="*", s=110, color=BEST, zorder=3, label="best")


def _draw_best_so_far(panel: Any, trials: list[Attempt]) -> None:
    complete = [trial for trial in trials if trial.state == "complete"]
    highest = list(accumulate((trial.score or 0.0 for trial in complete), max))
    panel.step([trial.place for trial in complete], highest, where="post", color=BEST, linewidth=1, alpha=0.6)
