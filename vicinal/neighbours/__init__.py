"""Exact nearest-neighbour search, and methods that improve its results: query expansion, re-ranking and whitening."""

from __future__ import annotations

from vicinal.neighbours.nearest import Neighbours, find_neighbours
from vicinal.neighbours.reranking import (
    Reranker,
    Reranking,
    Whitening,
    augment_references,
    expand_queries,
    learn_whitening,
)
from vicinal.neighbours.searcher import Searcher

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
