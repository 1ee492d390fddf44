"""Friedman's test: do methods differ at all over several experiments?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vicinal.phrasing import p_text

__all__ = ["Friedman", "friedman"]

BLOCK = 2**20  # permuted ranks at once


@dataclass(frozen=True)
class Friedman:
    """What Friedman's test found.

    Args:
        chi_square: Friedman's statistic, corrected for ties.
        degrees: Its degrees of freedom, one less than there are methods.
        chi_square_p: Its p-value, which holds for more than about 10 experiments and 5 methods.
        f: The statistic of Iman and Davenport, less timid; None if all experiments agree, where it has no end.
        f_degrees: Its two degrees of freedom.
        f_p: Its p-value.
        p_value: By permuting the ranks within each experiment; this one holds for any number of either.
    """

    chi_square: float
    degrees: int
    chi_square_p: float
    f: float | None
    f_degrees: tuple[int, int]
    f_p: float | None
    p_value: float

    def __str__(self) -> str:
        told = [f"Friedman chi-square({self.degrees}) = {self.chi_square:.2f}, {p_text(self.chi_square_p)}"]
        if self.f is not None and self.f_p is not None:
            told.append(f"Iman-Davenport F{self.f_degrees} = {self.f:.2f}, {p_text(self.f_p)}")
        return "; ".join([*told, f"by permutation {p_text(self.p_value)}."])


def friedman(ranks: NDArray[np.float64], *, draws: int = 10_000, seed: int = 0) -> Friedman:
    """Test ranks of methods (columns) within experiments (rows; at least 2) for any difference of their means.

    Formula:
        chi^2 = (k - 1) sum_j (R_j - n (k + 1) / 2)^2 / sum_ij (r_ij - (k + 1) / 2)^2,
        F = (n - 1) chi^2 / (n (k - 1) - chi^2), with ranks r_ij, R_j = sum_i r_ij, n experiments, k methods.

    Args:
        ranks: Equal scores share the mean of their ranks.
        draws: Permutations.
        seed: Of the permutations.

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
    # The draws start from sorted rows in a fixed order, so that p does not depend on the order of the table.
    rows = np.sort(centred, axis=1)
    rows = rows[np.lexsort(rows.T)]
    generator = np.random.default_rng(seed)
    as_large = 0
    block = max(1, BLOCK // rows.size)
    for start in range(0, draws, block):
        many = np.broadcast_to(rows, (min(block, draws - start), *rows.shape))
        totals = generator.permuted(many, axis=2).sum(axis=1)
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
