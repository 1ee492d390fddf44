"""Results that take a while: computed once for each state of the index, at once or in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast, final

__all__ = ["KeptResults"]

T = TypeVar("T")

MOST_WAITING = 8  # computations; who asks for more is told to wait, too


@final
class KeptResults:
    """Keeps one result under each name, for the latest state of the index that it was asked for."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[str, Any]] = {}
        self._failures: dict[str, tuple[str, Exception]] = {}
        self._running: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def now(self, name: str, generation: str, compute: Callable[[], T]) -> T:
        """The result, computed in this thread if it is not there.

        Args:
            name: Of the result.
            generation: The state of the index that it is of.
            compute: How to get it.
        """
        with self._lock:
            kept = self._results.get(name)
        if kept is None or kept[0] != generation:
            kept = generation, compute()
            with self._lock:
                self._results[name] = kept
        return cast(T, kept[1])

    def later(self, name: str, generation: str, compute: Callable[[], T]) -> T | None:
        """The result, or None while it is computed in the background; what went wrong there is raised here, once."""
        with self._lock:
            kept = self._results.get(name)
            if kept is not None and kept[0] == generation:
                return cast(T, kept[1])
            failed = self._failures.pop(name, None)
            if failed is not None and failed[0] == generation:
                raise failed[1]
            if (name, generation) not in self._running and len(self._running) < MOST_WAITING:
                self._running.add((name, generation))
                # A daemon: whoever stops the server does not wait for it.
                threading.Thread(target=self._run, args=(name, generation, compute), name=name, daemon=True).start()
        return None

    def _run(self, name: str, generation: str, compute: Callable[[], Any]) -> None:
        try:
            with self._one_at_a_time:
                result = compute()
            with self._lock:
                self._results[name] = generation, result
        except Exception as error:  # told to whoever asks next
            with self._lock:
                self._failures[name] = generation, error
        finally:
            with self._lock:
                self._running.discard((name, generation))
