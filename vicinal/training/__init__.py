"""Training: the training loop, its settings and its hooks."""

from __future__ import annotations

from vicinal.training.log import TensorBoard
from vicinal.training.settings import CCP, Settings
from vicinal.training.state import Hook

__all__ = ["CCP", "Hook", "Settings", "TensorBoard"]
