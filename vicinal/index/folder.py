"""The folder of an index: its generations, the writer lock, and the switch from one generation to the next.

    birds.index/
      current               names the current generation and the previous one
      writer.lock           held by the process that writes
      generation-1/         items.sqlite, vectors.f32, model/, and caches for search
      building-NAME/        a generation that is not finished

A new generation is written next to the current one and gets its name when it is finished; then `current` is replaced.
The previous generation stays. Older ones are deleted, together with their data in a server, unless a process has them
open. Folders with other names are not touched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from vicinal._util.files import rename, sync_file, sync_folder
from vicinal._util.reading import fault_of_file, reading
from vicinal.errors import DataError, InputError
from vicinal.index.stores import discard_store

__all__ = ["BeingWritten", "IndexFolder", "is_index"]

CURRENT, LOCK = "current", "writer.lock"
DONE, BUILDING = "generation-", "building-"
GENERATION = re.compile(rf"{DONE}([0-9]{{1,18}})")
ANEW = (f"{BUILDING}new", f"{BUILDING}compact")  # always started from scratch
REEMBEDDED = re.compile(rf"{BUILDING}[0-9a-f]{{16}}")  # can be resumed


class BeingWritten(InputError):
    """Another process is writing to the index."""


def is_index(folder: str | Path) -> bool:
    """Return whether a folder holds an index."""
    return os.path.isfile(Path(folder) / CURRENT)


class IndexFolder:
    """Names, lock and lifecycle of an index's generations. Of their content it only knows how to delete it.

    Args:
        path: The folder; it need not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        self._mine = threading.RLock()

    def current(self) -> Path:
        """Return the folder of the current generation."""
        return self.path / self._named()[0]

    def previous(self) -> Path | None:
        """Return the folder of the previous generation, if it still exists."""
        name = self._named()[1]
        return self.path / name if name and (self.path / name).is_dir() else None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer lock, against other threads and other processes."""
        with self._mine:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock.acquire()
            except Timeout:
                raise BeingWritten(
                    f"{self.path} is being written by another process; an index has one writer at a time. Wait until "
                    "it has finished; searching is still possible."
                ) from None
            except OSError as error:
                raise DataError(
                    f"{self.path} cannot be written: {error.strerror or error}.",
                    hint="Choose another folder, or get write permission; searching does not need it.",
                ) from None
            try:
                yield
            except OSError as error:
                raise DataError(
                    f"{self.path} could not be written: {error.strerror or error}.",
                    hint="Free some space or check the disk. The previous state is unchanged.",
                ) from error
            finally:
                self._lock.release()

    def building(self, name: str, *, fresh: bool = False) -> Path:
        """Return the folder of an unfinished generation.

        Args:
            name: Name of the work, by which it can be resumed.
            fresh: Whether to start from scratch; otherwise the folder keeps what was written before an interruption.
        """
        path = self.path / f"{BUILDING}{name}"
        if fresh and path.is_dir():
            discard_store(path)  # a server that cannot be reached keeps an orphaned table
            shutil.rmtree(path)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def finish(self, building: Path) -> Path:
        """Make a finished generation the current one; the previous one stays, older ones are deleted."""
        for path in sorted(building.rglob("*")):
            if path.is_file():
                sync_file(path)
            else:
                sync_folder(path)
        sync_folder(building)
        before = self._named()[0] if is_index(self.path) else ""
        name = f"{DONE}{max((_number(path) for path in self._generations()), default=0) + 1}"
        rename(building, self.path / name)
        self._point(name, before)
        self.tidy(reembeddings=building.name not in ANEW)
        return self.path / name

    def rollback(self) -> Path:
        """Swap the current and the previous generation; doing so twice changes nothing."""
        before = self.previous()
        if before is None:
            raise InputError(f"{self.path} has no earlier generation to roll back to.")
        self._point(before.name, self.current().name)
        return before

    def tidy(self, *, reembeddings: bool = False) -> None:
        """Delete unfinished work, and generations that `current` does not name and no process has open.

        Args:
            reembeddings: Whether to delete interrupted re-embeddings, too, which could still be resumed.
        """
        named = set(self._named())
        for path in self._generations():
            if path.name not in named and discard_store(path):
                shutil.rmtree(path, ignore_errors=True)
        for path in self.path.glob(f"{BUILDING}*"):
            given_up = path.name in ANEW or (reembeddings and REEMBEDDED.fullmatch(path.name))
            if given_up and discard_store(path):
                shutil.rmtree(path, ignore_errors=True)

    def _generations(self) -> list[Path]:
        return [path for path in self.path.glob(f"{DONE}*") if GENERATION.fullmatch(path.name)]

    def _named(self) -> tuple[str, str]:
        pointer = self.path / CURRENT
        if not is_index(self.path) and fault_of_file(pointer) in ("missing", "unreadable (Not a directory)"):
            raise DataError(
                f"{self.path} is not an index.",
                hint="Build one: vicinal index MODEL PHOTOS --out FOLDER, or Index.build in Python.",
            )
        hint = f'It should be like {{"generation": "{DONE}1", "previous": ""}} and name the latest folder.'
        with reading(pointer, "the name of a generation", hint):
            content = json.loads(pointer.read_text(encoding="utf-8"))
        names = [content.get(key) for key in ("generation", "previous")] if isinstance(content, dict) else [None]
        current, previous = (*names, None)[:2]
        if not isinstance(current, str) or not isinstance(previous, str):
            raise DataError(f"{pointer} is damaged: it does not name two generations.", hint=hint)
        if not GENERATION.fullmatch(current) or not (self.path / current).is_dir():
            raise DataError(
                f"{pointer} names the generation {current!r}, which does not exist.",
                hint=f"There are: {', '.join(sorted(path.name for path in self._generations())) or 'none'}.",
            )
        return current, previous if GENERATION.fullmatch(previous) else ""

    def _point(self, current: str, previous: str) -> None:
        partial = self.path / f".{CURRENT}.partial"
        partial.write_text(json.dumps({"generation": current, "previous": previous}) + "\n", encoding="utf-8")
        sync_file(partial)
        rename(partial, self.path / CURRENT)


def _number(generation: Path) -> int:
    return int(generation.name.removeprefix(DONE))
