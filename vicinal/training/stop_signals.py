"""Ctrl-C and SIGTERM as a question that a loop can ask between two steps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["asked_to_stop"]


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Turn a Ctrl-C or SIGTERM into a question the loop can ask between two steps; a second one acts at once."""
    asked: list[int] = []
    former: dict[int, Any] = {}

    def note(number: int, _: Any) -> None:
        asked.append(number)
        signal.signal(number, former[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        try:
            former[number] = signal.signal(number, note)
        except ValueError:  # not in the main thread, where signals cannot be caught
            break
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
