"""Tuning: the settings of a loss, searched on validation classes alone."""

from __future__ import annotations

from vicinal.tune.names import search_space
from vicinal.tune.space import Choice, Range, Space
from vicinal.tune.tune import tune
from vicinal.tune.tuned import Trial, Tuned

__all__ = ["Choice", "Range", "Space", "Trial", "Tuned", "search_space", "tune"]
