"""Tournaments of methods: ranks, tests, and a verdict that says what can be concluded.

Several experiments (datasets, networks, sizes) are compared by ranks: `tournament`, `plot_critical_difference`. One
experiment is compared class by class, over one seed or several: `compare_pairs`, `probability_of_best`. `verdict` puts
either in words. Nothing here knows of models or training; all input is numbers.
"""

from __future__ import annotations

from vicinal.tournament.best import probability_of_best
from vicinal.tournament.correlation import RankCorrelation, rank_correlation
from vicinal.tournament.diagram import plot_critical_difference
from vicinal.tournament.friedman import Friedman, friedman
from vicinal.tournament.holm import holm
from vicinal.tournament.nemenyi import critical_difference
from vicinal.tournament.pair_tests import PairTest, compare_pairs
from vicinal.tournament.per_class import class_arrays
from vicinal.tournament.published import Published, published, thesis_tables
from vicinal.tournament.ranking import Standing, Tournament, tournament
from vicinal.tournament.table import read_scores
from vicinal.tournament.verdict import Verdict, verdict

__all__ = [
    "Friedman",
    "PairTest",
    "Published",
    "RankCorrelation",
    "Standing",
    "Tournament",
    "Verdict",
    "class_arrays",
    "compare_pairs",
    "critical_difference",
    "friedman",
    "holm",
    "plot_critical_difference",
    "probability_of_best",
    "published",
    "rank_correlation",
    "read_scores",
    "thesis_tables",
    "tournament",
    "verdict",
]
