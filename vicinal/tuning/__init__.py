"""Tuning: the settings of a loss, searched on validation classes alone."""

from __future__ import annotations

from vicinal.tuning.names import search_space
from vicinal.tuning.ranges import Choice, Range, Space
from vicinal.tuning.study import tune
from vicinal.tuning.tuned import Trial, Tuned

__all__ = ["Choice", "Range", "Space", "Trial", "Tuned", "search_space", "tune"]
