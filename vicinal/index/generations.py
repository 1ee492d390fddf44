"""The generation of an index that serves now, and those before it that somebody still searches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from vicinal.index.choosing_store import open_store
from vicinal.index.index_folder import IndexFolder
from vicinal.index.store import Store

__all__ = ["Generation", "Generations"]


@dataclass(frozen=True, eq=False)
class Generation:
    """One generation, for as long as somebody works with it: another may serve by then.

    Attributes:
        folder: Of the generation.
        store: Of its items, open.
    """

    folder: Path
    store: Store

    @property
    def embedder(self) -> str:
        """The hash of the embedder that made its vectors; empty if they come from elsewhere."""
        return self.store.header.embedder

    def state(self) -> str:
        """A name of what is in it now: another after every change."""
        return f"{self.folder.name.rpartition('-')[2]}.{self.store.version()}"


@final
class Generations:
    """Opens the generation that serves, and the next one once there is one.

    Args:
        path: The folder of an index.
        follow: Whether to go on in a new generation (after compacting, embedding anew, rolling back).
    """

    def __init__(self, path: str | Path, follow: bool) -> None:
        self.index = IndexFolder(path)
        self._follow = follow
        self._changing = threading.Lock()
        self._now = _opened(self.index.current())

    def latest(self) -> Generation:
        """The generation that serves now; who searches in the one before goes on there, and lets go of it at last."""
        if not self._follow:
            return self._now
        with self._changing:
            current = self.index.current()
            if current != self._now.folder:
                self._now = _opened(current)
            return self._now

    @contextmanager
    def writing(self) -> Iterator[Generation]:
        """The generation that serves now, which nobody else changes for as long as this lasts."""
        with self.index.writing():
            yield self.latest()

    def close(self) -> None:
        """Let go of its files."""
        self._now.store.close()


def _opened(folder: Path) -> Generation:
    return Generation(folder, open_store(folder))
