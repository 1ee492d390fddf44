"""Comparisons of losses: equal conditions, parallel runs, a crash-safe journal, and one leaderboard."""

from __future__ import annotations

from vicinal.comparing._compare import compare

__all__ = ["compare"]
