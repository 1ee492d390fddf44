"""Leaderboards: comparable runs, ranked, with gains, advice and confidence intervals."""

from __future__ import annotations

from vicinal.leaderboard.advice import Advice
from vicinal.leaderboard.entry import Entry
from vicinal.leaderboard.gain import Gain
from vicinal.leaderboard.influences import Influence, weigh_influences
from vicinal.leaderboard.leaderboard import Leaderboard, leaderboards

__all__ = ["Advice", "Entry", "Gain", "Influence", "Leaderboard", "leaderboards", "weigh_influences"]
