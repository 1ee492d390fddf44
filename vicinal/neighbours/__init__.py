"""Exact nearest neighbours: used by everything that searches; and what makes better ones of the same vectors."""

from __future__ import annotations

from vicinal.neighbours.expansion import augment_references, expand_queries
from vicinal.neighbours.nearest import Neighbours, find_neighbours
from vicinal.neighbours.reranking import Reranker, Reranking
from vicinal.neighbours.searcher import Searcher
from vicinal.neighbours.whitening import Whitening, learn_whitening

__all__ = [
    "Neighbours",
    "Reranker",
    "Reranking",
    "Searcher",
    "Whitening",
    "augment_references",
    "expand_queries",
    "find_neighbours",
    "learn_whitening",
]
