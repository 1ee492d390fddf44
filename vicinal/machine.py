"""What this machine has: processors, memory used so far, and a folder for what can be computed again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder", "cores", "peak_memory_mib"]


def cache_folder() -> Path:
    """Return where features and downloaded weights are kept: `$VICINAL_CACHE`, or the user's cache folder."""
    named = os.environ.get("VICINAL_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else home / "vicinal"


def cores() -> int:
    """Return how many processors this process may use; `$OMP_NUM_THREADS` lowers it."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(allowed, int(asked)) if asked.isdigit() and int(asked) else allowed


def peak_memory_mib() -> float:
    """Return the most memory that this process has held so far; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
