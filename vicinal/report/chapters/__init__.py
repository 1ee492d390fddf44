"""The chapters of a report: functions from a comparison to what is to be said about it, in the order of reading.

A chapter that has nothing to say returns nothing; another one is added by a line in `CHAPTERS`.
"""

from __future__ import annotations

from collections.abc import Callable

from vicinal.report.blocks import Chapter
from vicinal.report.chapters.conditions import conditions, failures
from vicinal.report.chapters.cost import cost, repeat
from vicinal.report.chapters.curves import dimension_curves, recall_curves, training_curves
from vicinal.report.chapters.distances import distance_audits
from vicinal.report.chapters.leaderboard import leaderboard
from vicinal.report.chapters.pair_weights import pair_weight_curves
from vicinal.report.chapters.pictures import pictures
from vicinal.report.chapters.proxies import proxy_instances
from vicinal.report.chapters.published import published_numbers
from vicinal.report.chapters.significance import significance
from vicinal.report.chapters.space import spectral
from vicinal.report.comparison import Comparison

__all__ = ["CHAPTERS"]

CHAPTERS: dict[str, Callable[[Comparison], list[Chapter]]] = {
    "leaderboard": leaderboard,
    "failed runs": failures,
    "significance": significance,
    "conditions": conditions,
    "recall": recall_curves,
    "dimensions": dimension_curves,
    "training": training_curves,
    "proxies": proxy_instances,
    "pair weights": pair_weight_curves,
    "distances": distance_audits,
    "spectral decay": spectral,
    "pictures": pictures,
    "cost": cost,
    "published numbers": published_numbers,
    "repeat": repeat,
}
