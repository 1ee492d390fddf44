"""Tuning: search for the settings of a loss, using only validation classes."""

from __future__ import annotations

from vicinal.tuning._tune import SearchOptions, tune
from vicinal.tuning.spaces import Choice, Range, Space, search_space
from vicinal.tuning.tuned import Attempt, Tuned

__all__ = ["Attempt", "Choice", "Range", "SearchOptions", "Space", "Tuned", "search_space", "tune"]
