"""Statistics of scores: intervals, paired tests, ranks, correlation, and a verdict that says what can be concluded.

Several experiments (datasets, networks, sizes) are compared by ranks: `tournament`, `plot_critical_difference`. One
experiment is compared class by class, over one seed or several: `compare_pairs`, `compare_aligned` (where pairs share
different seeds), `probability_of_best`. `verdict` puts either in words. Nothing here knows of models or training; all
input is numbers.
"""

from __future__ import annotations

from vicinal.statistics.best import probability_of_best
from vicinal.statistics.class_scores import class_arrays
from vicinal.statistics.correlation import RankCorrelation, rank_correlation
from vicinal.statistics.diagram import plot_critical_difference
from vicinal.statistics.friedman_test import Friedman, friedman
from vicinal.statistics.holm_correction import holm
from vicinal.statistics.intervals import Difference, Interval, paired_difference, seed_interval
from vicinal.statistics.nemenyi import critical_difference
from vicinal.statistics.pair_tests import AlignedPair, PairTest, compare_aligned, compare_pairs
from vicinal.statistics.ranking import Standing, Tournament, tournament
from vicinal.statistics.score_table import read_scores
from vicinal.statistics.variance_split import split_variance
from vicinal.statistics.verdicts import Verdict, verdict

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
