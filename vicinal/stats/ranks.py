"""Ranks of methods over experiments: Friedman's test, Nemenyi's critical difference, and groups of equal methods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vicinal._util.text import counted, p_text
from vicinal.errors import InputError, UnknownName
from vicinal.stats.pair_tests import PairTest, compare_pairs

__all__ = [
    "Friedman",
    "Missing",
    "Standing",
    "Tournament",
    "cliques",
    "critical_difference",
    "experiments_needed",
    "friedman",
    "nemenyi_quantile",
    "tournament",
]


# Friedman's test: do the methods differ at all over several experiments?

RANKS_AT_ONCE = 2**20  # permuted ranks in memory at a time


@dataclass(frozen=True)
class Friedman:
    """Result of Friedman's test.

    Args:
        chi_square: Friedman's statistic, corrected for ties.
        degrees: Degrees of freedom of chi_square, the number of methods minus one.
        chi_square_p: P-value of chi_square, valid for more than about 10 experiments and 5 methods.
        f: The less conservative statistic of Iman and Davenport; None if all experiments agree, where it is infinite.
        f_degrees: Its two degrees of freedom.
        f_p: Its p-value.
        p_value: P-value from permuting the ranks within each experiment, valid for any number of either.
    """

    chi_square: float
    degrees: int
    chi_square_p: float
    f: float | None
    f_degrees: tuple[int, int]
    f_p: float | None
    p_value: float

    def __str__(self) -> str:
        parts = [f"Friedman chi-square({self.degrees}) = {self.chi_square:.2f}, {p_text(self.chi_square_p)}"]
        if self.f is not None and self.f_p is not None:
            parts.append(f"Iman-Davenport F{self.f_degrees} = {self.f:.2f}, {p_text(self.f_p)}")
        return "; ".join([*parts, f"by permutation {p_text(self.p_value)}."])


def friedman(ranks: NDArray[np.float64], *, draws: int = 10_000, seed: int = 0) -> Friedman:
    """Test whether the mean ranks of methods (columns) over experiments (rows; at least 2) differ at all.

    Formula:
        chi^2 = (k - 1) sum_j (R_j - n (k + 1) / 2)^2 / sum_ij (r_ij - (k + 1) / 2)^2,
        F = (n - 1) chi^2 / (n (k - 1) - chi^2), with ranks r_ij, R_j = sum_i r_ij, n experiments, k methods.

    Args:
        ranks: Ranks within each experiment; equal scores share the mean of their ranks.
        draws: Number of permutations.
        seed: Seed of the permutations.

    Reference:
        Friedman 1937; Iman and Davenport 1980; Demsar, "Statistical comparisons of classifiers over multiple data
        sets", JMLR 2006.

    Example:
        >>> found = friedman(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0]]))
        >>> round(found.chi_square, 2), round(found.chi_square_p, 3)
        (6.5, 0.039)
    """
    from scipy import stats  # slow to import

    count, methods = ranks.shape
    centred = ranks - (methods + 1) / 2
    spread = float((centred**2).sum())
    degrees = (methods - 1, (methods - 1) * (count - 1))
    if spread == 0:  # every method ties with every other in every experiment
        return Friedman(0.0, degrees[0], 1.0, 0.0, degrees, 1.0, 1.0)
    observed = float((centred.sum(axis=0) ** 2).sum())
    chi_square = (methods - 1) * observed / spread
    left = count * (methods - 1) - chi_square
    f = (count - 1) * chi_square / left if left > 1e-9 * chi_square else None
    # The draws start from sorted rows in a canonical order, so that p does not depend on the order of the table.
    rows = np.sort(centred, axis=1)
    rows = rows[np.lexsort(rows.T)]
    generator = np.random.default_rng(seed)
    as_large = 0
    block = max(1, RANKS_AT_ONCE // rows.size)
    for start in range(0, draws, block):
        repeated = np.broadcast_to(rows, (min(block, draws - start), *rows.shape))
        totals = generator.permuted(repeated, axis=2).sum(axis=1)
        as_large += int(((totals**2).sum(axis=1) >= observed * (1 - 1e-9)).sum())
    return Friedman(
        chi_square=chi_square,
        degrees=degrees[0],
        chi_square_p=float(stats.chi2.sf(chi_square, degrees[0])),
        f=f,
        f_degrees=degrees,
        f_p=None if f is None else float(stats.f.sf(f, *degrees)),
        p_value=(1 + as_large) / (1 + draws),
    )


# Nemenyi's test: the critical difference of two mean ranks.


def nemenyi_quantile(methods: int, level: float = 0.05) -> float:
    """Return the quantile of the studentised range for this number of methods, divided by the square root of 2.

    Example:
        >>> round(nemenyi_quantile(10), 3)
        3.164
    """
    from scipy import stats  # slow to import

    return float(stats.studentized_range.ppf(1 - level, methods, np.inf)) / math.sqrt(2)


def critical_difference(methods: int, experiments: int, level: float = 0.05) -> float:
    """Return the smallest difference of two mean ranks that is significant at the given level, for any two methods.

    Formula:
        q sqrt(k (k + 1) / (6 n)), with k methods, n experiments and q from `nemenyi_quantile`.

    Reference:
        Nemenyi 1963; Demsar 2006.

    Example:
        >>> round(critical_difference(4, 14), 3)
        1.254
    """
    return nemenyi_quantile(methods, level) * math.sqrt(methods * (methods + 1) / (6 * experiments))


def experiments_needed(methods: int, level: float = 0.05) -> int:
    """Return the smallest number of experiments with which two mean ranks can be a critical difference apart.

    Example:
        >>> experiments_needed(10)
        3
    """
    return math.ceil(critical_difference(methods, 1, level) ** 2 / (methods - 1) ** 2)


def cliques(mean_ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return the longest runs of ascending mean ranks whose ends are less than a critical difference apart.

    Returns:
        First and last position of each run; no run is contained in another.

    Example:
        >>> cliques([1.0, 2.0, 2.5, 4.0], 1.2)
        [(0, 1), (1, 2), (3, 3)]
    """
    runs: list[tuple[int, int]] = []
    for first, rank in enumerate(mean_ranks):
        last = max(position for position, other in enumerate(mean_ranks) if other - rank < difference)
        if not runs or last > runs[-1][1]:
            runs.append((first, last))
    return runs


Missing = Literal["refuse", "drop experiments", "drop methods"]


@dataclass(frozen=True)
class Standing:
    """One row of a tournament's table.

    Args:
        method: Name of the method.
        total: Sum of its ranks.
        mean: Mean of its ranks.
        sd: Sample standard deviation of its ranks; 0 for a single experiment.
        firsts: Number of experiments in which no other method was better.
        score: Mean score.
    """

    method: str
    total: float
    mean: float
    sd: float
    firsts: int
    score: float


@dataclass(frozen=True, eq=False, repr=False)
class Tournament:
    """Methods ranked in each of several experiments; rank 1 is best, and ties share the mean of their ranks.

    Args:
        methods: Names of the columns, by ascending total of ranks.
        experiments: Names of the rows.
        scores: Score of every method in every experiment.
        ranks: Rank of every method in every experiment.
        level: Significance level of all tests: the rate of false positives.
        friedman: Test for any difference at all; None for a single experiment.
        critical_difference: Difference of two mean ranks that is significant (Nemenyi).
        notes: Notes on experiments or methods that were left out.
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
        lines += [f"Not significantly different: {', '.join(group)}." for group in self.groups if len(group) > 1]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"Tournament({len(self.methods)} methods, {len(self.experiments)} experiments, {self.methods[0]} first)"

    @property
    def mean_ranks(self) -> dict[str, float]:
        """Mean rank of each method, best first."""
        return dict(zip(self.methods, self.ranks.mean(axis=0).tolist(), strict=True))

    @property
    def significant(self) -> bool:
        """Whether Friedman's test finds any difference between the methods."""
        return self.friedman is not None and self.friedman.p_value < self.level

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Largest sets of methods that do not differ significantly, best first; each method is in at least one.

        The critical difference is used only if Friedman's test finds a difference (Demsar 2006).
        """
        if not self.significant:
            return (self.methods,)
        runs = cliques(list(self.mean_ranks.values()), self.critical_difference)
        return tuple(self.methods[first : last + 1] for first, last in runs)

    def pairs(self, *, confidence: float = 0.95) -> list[PairTest]:
        """Compare the scores of every two methods experiment by experiment.

        Nemenyi's test of two methods depends on which other methods take part, and uses only ranks. This test uses the
        scores of the two methods alone.
        """
        columns = dict(zip(self.methods, self.scores.T, strict=True))
        return compare_pairs(columns, unit="experiment", confidence=confidence)

    def table(self) -> list[Standing]:
        """Return one row per method, best first."""
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
        scores: Experiment -> method -> score; higher is better.
        level: Significance level of the tests.
        missing: Treatment of missing scores (absent, or NaN): refuse, or leave out whole experiments or whole methods,
            which is recorded in the notes of the result.
        seed: Seed of the permutations of Friedman's test.

    Example:
        >>> found = tournament({"cub": {"a": 0.6, "b": 0.5}, "cars": {"a": 0.8, "b": 0.7}})
        >>> found.methods, found.ranks.tolist()
        (('a', 'b'), [[1.0, 2.0], [1.0, 2.0]])
    """
    from scipy import stats  # slow to import

    if not 0 < level < 1:
        raise InputError(f"The level must be between 0 and 1, got {level}.")
    if missing not in get_args(Missing):
        raise UnknownName("treatment of missing scores", missing, get_args(Missing))
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
        experiments = [name for name, complete in zip(experiments, rows, strict=True) if complete]
        methods = [name for name, complete in zip(methods, columns, strict=True) if complete]
    if len(methods) < 2 or not experiments:
        left = f" after dropping: {notes[0]}" if notes else "."
        raise InputError(
            f"A tournament needs at least 2 methods and 1 experiment; got {len(methods)} and {len(experiments)}{left}"
        )
    ranks = stats.rankdata(-matrix, axis=1)
    # Methods are sorted by name first, so that equal totals come in the same order for any order of the input.
    order = np.argsort(ranks.sum(axis=0), kind="stable")
    return Tournament(
        methods=tuple(methods[column] for column in order),
        experiments=tuple(experiments),
        scores=matrix[:, order],
        ranks=ranks[:, order],
        level=level,
        friedman=friedman(ranks[:, order], seed=seed) if len(experiments) > 1 else None,
        critical_difference=critical_difference(len(methods), len(experiments), level),
        notes=notes,
    )


def _absences(absent: NDArray[np.bool_], experiments: list[str], methods: list[str], missing: Missing) -> str:
    """Return a note on missing scores and what is left out because of them, or raise if they must not be missing."""
    cells = [f"{methods[column]} in {experiments[row]}" for row, column in np.argwhere(absent).tolist()]
    shown = ", ".join(cells[:10]) + (f" and {len(cells) - 10} more" if len(cells) > 10 else "")
    if missing == "refuse":
        raise InputError(
            f"{len(cells)} scores are missing: {shown}. Ranks need all of them: run the missing experiments, or pass "
            "missing='drop experiments' or missing='drop methods'."
        )
    kind, names, axis = ("experiments", experiments, 1) if missing == "drop experiments" else ("methods", methods, 0)
    dropped = [names[index] for index in np.flatnonzero(absent.any(axis=axis))]
    return f"left out the {kind} {', '.join(dropped)}, because {len(cells)} scores are missing: {shown}."
