"""Training: one visible loop, its settings, and what may take part in it."""

from __future__ import annotations

from vicinal.training.hooks import Hook
from vicinal.training.settings import CCP, Settings

__all__ = ["CCP", "Hook", "Settings"]
