"""Tuning: the settings of a loss, searched on validation classes alone."""

from __future__ import annotations

from vicinal.tuning._tune import SearchOptions, tune
from vicinal.tuning.spaces import Choice, Range, Space, search_space
from vicinal.tuning.tuned import Attempt, Tuned

__all__ = ["Attempt", "Choice", "Range", "SearchOptions", "Space", "Tuned", "search_space", "tune"]
