"""Runs: a recipe, how it is trained, and the record and folder that it leaves."""

from __future__ import annotations

from vicinal.runs._train import fit, train
from vicinal.runs.journal import Journal, read_journals
from vicinal.runs.recipe import Recipe
from vicinal.runs.record import Network, Record, SearchRecord, read_searches
from vicinal.runs.run import EmbeddedItems, Run, RunFiles, score_test_items

__all__ = [
    "EmbeddedItems",
    "Journal",
    "Network",
    "Recipe",
    "Record",
    "Run",
    "RunFiles",
    "SearchRecord",
    "fit",
    "read_journals",
    "read_searches",
    "score_test_items",
    "train",
]
