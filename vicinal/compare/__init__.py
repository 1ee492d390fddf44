"""Comparisons of losses: equal conditions, a journal that survives, a leaderboard with intervals and a verdict."""

from vicinal.compare.board import Board
from vicinal.comparing.comparison import compare
from vicinal.compare.comparison import Comparison
from vicinal.compare.row import Row

__all__ = ["Board", "Comparison", "Row", "compare"]
