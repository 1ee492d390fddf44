"""What this machine has: processors, processes, memory used so far, a folder for what can be computed again."""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["cache_folder", "cores", "give_back", "is_gone", "peak_memory_mib", "this_process"]


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


def this_process() -> str:
    """Return a name of this process that no other has: machine, boot, namespace, number and start.

    The number alone is given out again, after a restart of a container at once.
    """
    return f"{_system()} {os.getpid()} {_started(os.getpid())}"


def is_gone(process: str) -> bool | None:
    """Return whether a process is known to have ended; None for one of another machine, of which nothing is known.

    Args:
        process: As `this_process` named it there.

    Example:
        >>> is_gone(this_process()), is_gone("elsewhere 1 2")
        (False, None)
    """
    system, _, rest = process.partition(" ")
    number, _, started = rest.partition(" ")
    if system != _system() or not number.isdigit():
        return None
    now = _started(int(number))
    return now is None or now != started


def _system() -> str:
    """Return what numbers of processes are counted in: a machine since its start, and a container of it."""
    boot, namespace = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    # As a few digits that fit into the name of a file.
    return hashlib.sha256(f"{socket.gethostname()}/{boot}/{namespace}".encode()).hexdigest()[:12]


def _started(number: int) -> str | None:
    """Return when a process started, in ticks since the boot; "" where the system does not tell, None if it is gone."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except OSError:  # alive, and somebody else's
        pass
    try:
        # The name in brackets may hold anything; what follows is the state, and 19 fields later the start.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return None if fields[0] in "ZX" else fields[19]


# Memory that was freed goes back to the system, where the C library would keep it.


def give_back() -> None:
    """Have the C library return whole pages that nothing uses; nothing happens where it cannot.

    Blocks of products come and go by the hundred thousand, and what is kept between them lies scattered among the
    freed ones: glibc then asks for ever more instead of finding room.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim  # glibc's
    except (AttributeError, OSError, TypeError):
        return None
