"""Statistics of scores: intervals, paired tests, ranks, correlation, and a verdict that says what can be concluded.

Several experiments (datasets, networks, sizes) are compared by ranks: `tournament`, `plot_critical_difference`. One
experiment is compared class by class, over one seed or several: `compare_pairs`, `compare_aligned` (where pairs share
different seeds), `probability_of_best`. `verdict` states the outcome of either in words. `class_interval` is the
interval of one score. Nothing here depends on models or training: all input is numbers.
"""

from __future__ import annotations

from vicinal.stats.correlation import RankCorrelation, rank_correlation, split_variance
from vicinal.stats.diagram import plot_critical_difference
from vicinal.stats.intervals import (
    Difference,
    Interval,
    class_interval,
    class_sums,
    paired_difference,
    seed_interval,
)
from vicinal.stats.pair_tests import AlignedPair, PairTest, class_arrays, compare_aligned, compare_pairs, holm
from vicinal.stats.ranks import Friedman, Standing, Tournament, critical_difference, friedman, tournament
from vicinal.stats.table import read_scores
from vicinal.stats.verdicts import Verdict, probability_of_best, verdict

__all__ = [
    "AlignedPair",
    "Difference",
    "Friedman",
    "Interval",
    "PairTest",
    "RankCorrelation",
    "Standing",
    "Tournament",
    "Verdict",
    "class_arrays",
    "class_interval",
    "class_sums",
    "compare_aligned",
    "compare_pairs",
    "critical_difference",
    "friedman",
    "holm",
    "paired_difference",
    "plot_critical_difference",
    "probability_of_best",
    "rank_correlation",
    "read_scores",
    "seed_interval",
    "split_variance",
    "tournament",
    "verdict",
]
