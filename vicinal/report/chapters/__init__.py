"""Chapters of a report: functions from a leaderboard to a list of chapters, in reading order.

A function with nothing to report returns an empty list. To add a chapter, add a line to `CHAPTERS`.
"""

from __future__ import annotations

from collections.abc import Callable

from vicinal.leaderboard import Leaderboard
from vicinal.report.blocks import Chapter
from vicinal.report.chapters.audits import distance_audits
from vicinal.report.chapters.certainty import significance
from vicinal.report.chapters.costs import cost, repeat, size_chapter
from vicinal.report.chapters.curves import dimension_curves, proxy_instances, recall_curves, spectral, training_curves
from vicinal.report.chapters.equal_conditions import conditions, failures
from vicinal.report.chapters.influences import influence_chapter
from vicinal.report.chapters.pair_weights import pair_weight_curves
from vicinal.report.chapters.papers import published_numbers
from vicinal.report.chapters.same_or_different import verification_chapter
from vicinal.report.chapters.standings import leaderboard_tables
from vicinal.report.chapters.winner import pictures

__all__ = ["CHAPTERS"]

CHAPTERS: dict[str, Callable[[Leaderboard], list[Chapter]]] = {
    # The result in numbers and images.
    "leaderboard": leaderboard_tables,
    "failed runs": failures,
    "pictures": pictures,
    # How certain the result is.
    "significance": significance,
    "what mattered": influence_chapter,
    "conditions": conditions,
    # Analysis.
    "training": training_curves,
    "recall": recall_curves,
    "same or different": verification_chapter,
    "dimensions": dimension_curves,
    "bytes": size_chapter,
    "proxies": proxy_instances,
    "pair weights": pair_weight_curves,
    "distances": distance_audits,
    "spectral decay": spectral,
    "published numbers": published_numbers,
    "cost": cost,
    "repeat": repeat,
}
