"""Exact nearest neighbours: used by everything that searches."""

from __future__ import annotations

from vicinal.neighbours.nearest import Neighbours, neighbours

__all__ = ["Neighbours", "neighbours"]
