"""Memory that was freed goes back to the system, where the C library would keep it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

__all__ = ["give_back"]


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
