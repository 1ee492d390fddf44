"""Leaderboards: the runs of one question, sorted, with gains, advice and how sure all of it is."""

from __future__ import annotations

from vicinal.leaderboard.advice import Advice
from vicinal.leaderboard.entry import Entry
from vicinal.leaderboard.gain import Gain
from vicinal.leaderboard.influences import Influence, weigh_influences
from vicinal.leaderboard.leaderboard import Leaderboard, leaderboards

__all__ = ["Advice", "Entry", "Gain", "Influence", "Leaderboard", "leaderboards", "weigh_influences"]
