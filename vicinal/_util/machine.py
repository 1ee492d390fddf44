"""Facts about this machine: cores, processes, peak memory, and the cache folder."""

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

__all__ = ["cache_folder", "cores", "is_gone", "peak_memory_mib", "release_memory", "this_process"]


def cache_folder() -> Path:
    """Return the folder of cached features and downloaded weights: `$VICINAL_CACHE`, or in the user's cache folder."""
    named = os.environ.get("VICINAL_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else home / "vicinal"


def cores() -> int:
    """Return the number of cores that this process may use; `$OMP_NUM_THREADS` lowers it."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    requested = os.environ.get("OMP_NUM_THREADS", "")
    return min(allowed, int(requested)) if requested.isdigit() and int(requested) else allowed


def peak_memory_mib() -> float:
    """Return the peak memory of this process so far; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def this_process() -> str:
    """Return a unique name of this process: machine, boot, namespace, process id and start time.

    The process id alone is reused, in a restarted container immediately.
    """
    return f"{_system()} {os.getpid()} {_started(os.getpid())}"


def is_gone(process: str) -> bool | None:
    """Return whether a process is known to have ended; None for a process of another machine.

    Args:
        process: Name of the process from `this_process`.

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
    """Return the scope of process ids: a machine since its boot, and a container on it."""
    boot, namespace = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    # As a few digits that fit into a file name.
    return hashlib.sha256(f"{socket.gethostname()}/{boot}/{namespace}".encode()).hexdigest()[:12]


def _started(number: int) -> str | None:
    """Return the start of a process in ticks since the boot; "" if the system does not report it, None if it ended."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except OSError:  # alive, but owned by another user
        pass
    try:
        # The name in brackets may contain anything; after it come the state and, 19 fields later, the start.
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return None if fields[0] in "ZX" else fields[19]


# Return freed memory to the system, which the C library would keep.


def release_memory() -> None:
    """Make the C library return unused pages to the system; does nothing if it cannot.

    Blocks of products are allocated and freed by the hundred thousand, with longer-lived data scattered among them:
    the heap is fragmented, and glibc requests more and more memory.
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
