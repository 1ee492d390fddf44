"""The tournament: every method ranked in every experiment, and what the ranks can tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import InputError, UnknownName
from vicinal.phrasing import counted
from vicinal.statistics.friedman_test import Friedman, friedman
from vicinal.statistics.nemenyi import cliques, critical_difference
from vicinal.statistics.pair_tests import PairTest, compare_pairs

__all__ = ["Missing", "Standing", "Tournament", "tournament"]

Missing = Literal["refuse", "drop experiments", "drop methods"]


@dataclass(frozen=True)
class Standing:
    """One line of a tournament's table.

    Args:
        method: Its name.
        total: The sum of its ranks.
        mean: The mean of its ranks.
        sd: Their sample standard deviation; 0 for a single experiment.
        firsts: How often no other method was better.
        score: Its mean score.
    """

    method: str
    total: float
    mean: float
    sd: float
    firsts: int
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Tournament:
    """Methods ranked in each of several experiments; rank 1 is best, equals share the mean of their ranks.

    Args:
        methods: The columns, by rising total of ranks.
        experiments: The rows.
        scores: Of every method in every experiment.
        ranks: The same shape.
        level: Of all tests: how often they may find a difference where there is none.
        friedman: Whether there is any difference at all; None for a single experiment.
        critical_difference: By how much two mean ranks must differ (Nemenyi).
        notes: What was left out.
    """

    methods: tuple[str, ...]
    experiments: tuple[str, ...]
    scores: NDArray[np.float64]
    ranks: NDArray[np.float64]
    level: float
    friedman: Friedman | None
    critical_difference: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        wide = max(6, *(len(method) for method in self.methods))
        lines = [f"{'method':<{wide}}  total   mean     sd  firsts  mean score"]
        lines += [
            f"{row.method:<{wide}}  {row.total:>5g}  {row.mean:>5.2f}  {row.sd:>5.2f}  {row.firsts:>6}  "
            f"{row.score:>10.4f}"
            for row in self.table()
        ]
        lines += ["", f"{len(self.methods)} methods in {counted(len(self.experiments), 'experiment')}; rank 1 is best."]
        if self.friedman is not None:
            lines.append(str(self.friedman))
        lines.append(f"Nemenyi critical difference of mean ranks at {self.level:g}: {self.critical_difference:.3f}.")
        lines += [f"Not told apart: {', '.join(group)}." for group in self.groups if len(group) > 1]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"Tournament({len(self.methods)} methods, {len(self.experiments)} experiments, {self.methods[0]} first)"

    @property
    def mean_ranks(self) -> dict[str, float]:
        """The mean rank of each method, best first."""
        return dict(zip(self.methods, self.ranks.mean(axis=0).tolist(), strict=True))

    @property
    def significant(self) -> bool:
        """Whether Friedman's test finds any difference between the methods."""
        return self.friedman is not None and self.friedman.p_value < self.level

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The largest sets of methods that cannot be told apart, best first; each method is in at least one.

        The critical difference counts only after Friedman's test has found a difference (Demsar 2006).
        """
        if not self.significant:
            return (self.methods,)
        runs = cliques(list(self.mean_ranks.values()), self.critical_difference)
        return tuple(self.methods[first : last + 1] for first, last in runs)

    def pairs(self, *, confidence: float = 0.95) -> list[PairTest]:
        """Compare the scores of every two methods experiment by experiment.

        Nemenyi's test of two methods depends on which others take part, and sees ranks only; this one does neither.
        """
        columns = dict(zip(self.methods, self.scores.T, strict=True))
        return compare_pairs(columns, unit="experiment", confidence=confidence)

    def table(self) -> list[Standing]:
        """One row per method, best first."""
        single = len(self.experiments) == 1
        deviations = np.zeros(len(self.methods)) if single else self.ranks.std(axis=0, ddof=1)
        firsts = (self.scores == self.scores.max(axis=1, keepdims=True)).sum(axis=0)
        return [
            Standing(method, float(ranks.sum()), float(ranks.mean()), float(sd), int(first), float(scores.mean()))
            for method, ranks, sd, first, scores in zip(
                self.methods, self.ranks.T, deviations, firsts, self.scores.T, strict=True
            )
        ]


def tournament(
    scores: Mapping[str, Mapping[str, float]],
    *,
    level: float = 0.05,
    missing: Missing = "refuse",
    seed: int = 0,
) -> Tournament:
    """Rank methods in each experiment and test whether the ranks differ.

    Args:
        scores: Experiment -> method -> score; the higher the better.
        level: Of the tests.
        missing: What to do where a method has no score (absent, or NaN): refuse, or leave out whole experiments or
            whole methods, which the result then notes.
        seed: Of the permutations of Friedman's test.

    Example:
        >>> found = tournament({"cub": {"a": 0.6, "b": 0.5}, "cars": {"a": 0.8, "b": 0.7}})
        >>> found.methods, found.ranks.tolist()
        (('a', 'b'), [[1.0, 2.0], [1.0, 2.0]])
    """
    from scipy import stats  # slow to import

    if not 0 < level < 1:
        raise InputError(f"The level must lie between 0 and 1, got {level}.")
    if missing not in get_args(Missing):
        raise UnknownName("way with missing scores", missing, get_args(Missing))
    experiments = list(scores)
    methods = sorted({method for row in scores.values() for method in row})
    matrix = np.array(
        [[float(scores[experiment].get(method, np.nan)) for method in methods] for experiment in experiments]
    ).reshape(len(experiments), len(methods))
    if np.isinf(matrix).any():
        raise InputError("Some scores are infinite; ranks need finite scores.")
    absent = np.isnan(matrix)
    notes: tuple[str, ...] = ()
    if absent.any():
        notes = (_absences(absent, experiments, methods, missing),)
        rows = ~absent.any(axis=1) if missing == "drop experiments" else np.full(len(experiments), True)
        columns = ~absent.any(axis=0) if missing == "drop methods" else np.full(len(methods), True)
        matrix = matrix[rows][:, columns]
        experiments = [name for name, kept in zip(experiments, rows, strict=True) if kept]
        methods = [name for name, kept in zip(methods, columns, strict=True) if kept]
    if len(methods) < 2 or not experiments:
        left = f" after this: {notes[0]}" if notes else "."
        raise InputError(
            f"A tournament needs at least 2 methods and 1 experiment; got {len(methods)} and {len(experiments)}{left}"
        )
    ranks = stats.rankdata(-matrix, axis=1)
    # Methods were sorted by name, so that equal totals come in the same order however the table was given.
    order = np.argsort(ranks.sum(axis=0), kind="stable")
    return Tournament(
        methods=tuple(methods[at] for at in order),
        experiments=tuple(experiments),
        scores=matrix[:, order],
        ranks=ranks[:, order],
        level=level,
        friedman=friedman(ranks[:, order], seed=seed) if len(experiments) > 1 else None,
        critical_difference=critical_difference(len(methods), len(experiments), level),
        notes=notes,
    )


def _absences(absent: NDArray[np.bool_], experiments: list[str], methods: list[str], missing: Missing) -> str:
    """Say which scores are missing and what is left out for it, or refuse."""
    places = [f"{methods[column]} in {experiments[row]}" for row, column in np.argwhere(absent).tolist()]
    shown = ", ".join(places[:10]) + (f" and {len(places) - 10} more" if len(places) > 10 else "")
    if missing == "refuse":
        raise InputError(
            f"{len(places)} scores are missing: {shown}. Ranks need them all: run what is missing, or give "
            "missing='drop experiments' or missing='drop methods'."
        )
    kind, names, axis = ("experiments", experiments, 1) if missing == "drop experiments" else ("methods", methods, 0)
    dropped = [names[at] for at in np.flatnonzero(absent.any(axis=axis))]
    return f"left out the {kind} {', '.join(dropped)}, because {len(places)} scores are missing: {shown}."
