"""Comparisons of losses: equal conditions, runs side by side, a journal that survives, one leaderboard."""

from __future__ import annotations

from vicinal.comparing._compare import compare

__all__ = ["compare"]
