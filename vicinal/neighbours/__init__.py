"""Exact nearest neighbours: used by everything that searches."""

from __future__ import annotations

from vicinal.neighbours.nearest import Neighbours, find_neighbours
from vicinal.neighbours.searcher import Searcher

__all__ = ["Neighbours", "Searcher", "find_neighbours"]
