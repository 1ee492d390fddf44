"""Tuning: the settings of a loss, searched on validation classes alone."""

from __future__ import annotations

from vicinal.tuning.ranges import Choice, Range, Space
from vicinal.tuning.rate_first import tune
from vicinal.tuning.search_spaces import search_space
from vicinal.tuning.tuned import Attempt, Tuned

__all__ = ["Attempt", "Choice", "Range", "Space", "Tuned", "search_space", "tune"]
