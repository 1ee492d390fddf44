"""Where vicinal keeps what can be computed again: features, and which engine was fastest on this machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return where such files are kept: `$VICINAL_CACHE`, or the user's cache folder."""
    named = os.environ.get("VICINAL_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(named) if named else home / "vicinal"
