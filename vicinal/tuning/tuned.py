"""Result of a search, as data, text and figure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal, final

from matplotlib.figure import Figure

from vicinal._util.style import ACCENT, CONTRAST, OTHER, styled
from vicinal._util.text import counted
from vicinal.runs.recipe import Recipe
from vicinal.runs.record import SearchRecord
from vicinal.tuning.spaces import Range, Space

__all__ = ["Attempt", "State", "Tuned", "best_of", "plot_search"]


State = Literal["complete", "pruned", "failed"]


@final
@dataclass(frozen=True)
class Attempt:
    """One trial of a search.

    Attributes:
        number: Position in the search, from 0, which is the unchanged recipe.
        state: "complete", "pruned" (stopped early) or "failed".
        values: Values of the varied settings.
        score: Best validation score of the trial; None if there is none.
        curve: Validation scores by step.
        seconds: Duration in seconds.
        error: Reason of a failure.
    """

    number: int
    state: State
    values: Mapping[str, Any]
    score: float | None
    curve: Mapping[int, float]
    seconds: float
    error: str | None = None


def best_of(trials: Sequence[Attempt]) -> Attempt | None:
    """Return the complete trial with the highest score, the first one on ties."""
    complete = [trial for trial in trials if trial.state == "complete"]
    return max(complete, key=lambda trial: trial.score or 0.0, default=None)


@final
@dataclass(frozen=True)
class Tuned:
    """The best settings of a search, and all trials.

    Attributes:
        recipe: Recipe with the best values, ready for `fit`.
        value: Validation score of the recipe. It is the best of many on the same classes; new classes will score lower.
        score: Name of the score.
        trials: Trials in the order of their positions; the first is the unchanged recipe.
        best: Best trial.
        space: Settings that were varied.
        sampler: Sampler that chose the settings.
        importance: Share of each setting in the variance of the scores; empty if too few trials are complete.
        study_name: Name of the search in its storage.
        rates: Score of each learning rate that was tried first, None for one that failed; empty if the rate was
            searched with the rest.
    """

    recipe: Recipe
    value: float
    score: str
    trials: tuple[Attempt, ...]
    best: Attempt
    space: Space
    sampler: str
    importance: Mapping[str, float]
    study_name: str
    rates: Mapping[float, float | None] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Total number of scored steps of all trials, without the recipe's own trial."""
        return sum(max(trial.curve, default=0) for trial in self.trials[1:])

    def after(self, rungs: Sequence[Attempt]) -> Tuned:
        """Return the search together with the learning rates that were tried before it.

        Args:
            rungs: Trials of the learning rates, that of the given recipe first. If any of them is complete, the first
                trial of the search repeats the best of them and counts once.
        """
        first = self.trials[0]
        again = best_of(rungs)
        later = self.trials if again is None else self.trials[1:]
        tried = [replace(rung, number=index) for index, rung in enumerate(rungs)]
        tried += [replace(trial, number=index) for index, trial in enumerate(later, start=len(rungs))]
        index = rungs.index(again) if again is not None and self.best is first else len(rungs) + later.index(self.best)
        rates = {float(rung.values["learning_rate"]): rung.score for rung in rungs}
        return replace(self, trials=tuple(tried), best=tried[index], rates=dict(sorted(rates.items())))

    def to_toml(self) -> str:
        """Return the best recipe as TOML, for `vicinal train --recipe`."""
        return self.recipe.toml()

    def to_dict(self) -> dict[str, Any]:
        """Return the search as plain data, as `vicinal tune --json` prints it."""
        return {
            "score": self.score,
            "value": self.value,
            "best": dict(self.best.values),
            "trials": [
                {"number": trial.number, "state": trial.state, "values": dict(trial.values), "score": trial.score,
                 "seconds": trial.seconds, "error": trial.error}
                for trial in self.trials
            ],
            "rates": {str(rate): score for rate, score in self.rates.items()},
            "importance": dict(self.importance),
            "sampler": self.sampler,
            "recipe": self.recipe.model_dump(mode="json"),
        }  # fmt: skip

    def summary(self, name: str) -> SearchRecord:
        """Return the summary of the search that a comparison stores, under the method's name in its tables."""
        scores = [trial.score for trial in self.trials if trial.state == "complete" and trial.score is not None]
        return SearchRecord(
            name=name,
            score=self.score,
            scores=tuple(scores),
            importance=dict(self.importance),
            given=dict(self.trials[0].values),
            best=dict(self.best.values),
        )

    def __str__(self) -> str:
        first = self.trials[0]
        rows = [("setting", "given", "best", "importance", "searched")]
        rows += [
            (
                name,
                _short(first.values.get(name)),
                _short(self.best.values[name]),
                f"{self.importance[name]:.2f}" if name in self.importance else "",
                str(entry),
            )
            for name, entry in self.space.items()
        ]
        name, given, best, share = (max(map(len, column)) for column in list(zip(*rows, strict=True))[:4])
        table = [f"{a:<{name}}  {b:>{given}}  {c:>{best}}  {d:>{share}}  {e}" for a, b, c, d, e in rows]
        states = Counter(trial.state for trial in self.trials)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        before = "failed" if first.score is None else f"{first.score:.4f}"
        failures = [f"Note: trial {t.number} failed: {t.error}" for t in self.trials if t.state == "failed"]
        return "\n".join(
            [
                *table,
                "",
                f"{self.recipe.method}: {self.score} {self.value:.4f} on the validation classes in trial "
                f"{self.best.number}; as given {before}. "
                f"{counted(len(self.trials), 'trial')} by {self.sampler}: {counts}.",
                *self._rungs_in_words(),
                *failures,
            ]
        )

    def _rungs_in_words(self) -> list[str]:
        if not self.rates:
            return []
        rates = [f"{rate:g} ({'failed' if score is None else f'{score:.4f}'})" for rate, score in self.rates.items()]
        best = best_of(self.trials[: len(self.rates)])
        near = "far around the given one" if best is None else f"around {best.values['learning_rate']:g}"
        return [f"Learning rates were tried first: {', '.join(rates)}; the rest was searched {near}."]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# Figure of a search: the score over trials and over every setting.

COMPLETE, PRUNED, BEST = ACCENT, OTHER, CONTRAST


def plot_search(tuned: Tuned, *, columns: int = 3) -> Figure:
    """Draw the score of every trial in order, and over each varied setting.

    Later trials are darker. The red star is the best trial, and the diamond the unchanged recipe.

    Args:
        tuned: A finished search.
        columns: Number of panels per row.

    Returns:
        A figure; save it with `figure.savefig("search.png")`.
    """
    scored = [trial for trial in tuned.trials if trial.score is not None]
    panels_needed = 1 + len(tuned.space)
    across = min(columns, panels_needed)
    down = math.ceil(panels_needed / across)
    figure = Figure(figsize=(3.6 * across, 2.9 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    _draw(panels[0], scored, tuned.best, [trial.number for trial in scored])
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
    last = max((trial.number for trial in trials), default=0) or 1
    pruned = [(x, trial.score) for trial, x in points if trial.state != "complete"]
    if pruned:
        panel.scatter(*zip(*pruned, strict=True), s=16, facecolors="none", edgecolors=PRUNED, label="pruned")
    complete = [(trial, x) for trial, x in points if trial.state == "complete"]
    panel.scatter(
        [x for _, x in complete],
        [trial.score for trial, _ in complete],
        s=22,
        color=COMPLETE,
        alpha=[0.3 + 0.7 * trial.number / last for trial, _ in complete],
        linewidths=0,
        label="complete",
    )
    for trial, x in points:
        if trial.number == 0:
            panel.scatter(x, trial.score, marker="D", s=40, facecolors="none", edgecolors="black", label="as given")
        if trial.number == best.number:
            panel.scatter(x, trial.score, marker="*", s=110, color=BEST, zorder=3, label="best")


def _draw_best_so_far(panel: Any, trials: list[Attempt]) -> None:
    complete = [trial for trial in trials if trial.state == "complete"]
    highest = list(accumulate((trial.score or 0.0 for trial in complete), max))
    panel.step([trial.number for trial in complete], highest, where="post", color=BEST, linewidth=1, alpha=0.6)
