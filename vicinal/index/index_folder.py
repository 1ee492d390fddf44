"""The folder of an index: generations of its content, of which one is current; who may write; how they change places.

    birds.index/
      current               names the generation that serves, and the one before it
      writer.lock           held by the one who writes
      generation-1/         items.sqlite, vectors.f32, model/, and caches for search
      building-NAME/        a generation that is not finished

A generation is written beside the one that serves and gets its name when it is finished; then `current` is replaced.
Whoever has the old one open keeps it.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from vicinal.errors import DataError, InputError
from vicinal.index.durable_files import rename, sync_file, sync_folder

__all__ = ["BeingWritten", "IndexFolder", "is_index"]

CURRENT, LOCK = "current", "writer.lock"
DONE, BUILDING = "generation-", "building-"


class BeingWritten(InputError):
    """Another process writes to the index now."""


def is_index(folder: str | Path) -> bool:
    """Whether a folder holds an index."""
    return (Path(folder) / CURRENT).is_file()


class IndexFolder:
    """Names, locks and changes of generations; what is in them is not its business.

    Args:
        path: The folder; it need not be there yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path / LOCK, timeout=0, thread_local=False)
        self._mine = threading.RLock()

    def current(self) -> Path:
        """The generation that serves."""
        return self.path / self._named()[0]

    def previous(self) -> Path | None:
        """The generation that served before, if it is still there."""
        name = self._named()[1]
        return self.path / name if name and (self.path / name).is_dir() else None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the one who writes, in this process and among all."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self._mine:
            try:
                self._lock.acquire()
            except Timeout:
                raise BeingWritten(
                    f"{self.path} is being written by another process; an index has one writer at a time. Wait until "
                    "that one is done (searching is possible meanwhile)."
                ) from None
            try:
                yield
            except OSError as error:
                raise DataError(
                    f"{self.path} could not be written: {error.strerror or error}.",
                    hint="Free some space or mend the disk; what was there before is untouched.",
                ) from error
            finally:
                self._lock.release()

    def building(self, name: str) -> Path:
        """The folder of a generation that is not finished; what was written of it before a kill is still there."""
        path = self.path / f"{BUILDING}{name}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def finish(self, building: Path) -> Path:
        """Make a generation that was built the current one; the one before it stays, older ones go."""
        for path in sorted(building.rglob("*")):
            if path.is_file():
                sync_file(path)
            else:
                sync_folder(path)
        sync_folder(building)
        before = self._named()[0] if is_index(self.path) else ""
        numbers = [int(path.name[len(DONE) :]) for path in self.path.glob(f"{DONE}*")]
        name = f"{DONE}{max(numbers, default=0) + 1}"
        rename(building, self.path / name)
        self._point(name, before)
        self.tidy()
        return self.path / name

    def rollback(self) -> Path:
        """Go back to the generation before; doing so twice changes nothing."""
        before = self.previous()
        if before is None:
            raise InputError(f"{self.path} has no generation before this one; there is nothing to go back to.")
        self._point(before.name, self.current().name)
        return before

    def tidy(self) -> None:
        """Remove generations that nothing names."""
        named = set(self._named())
        for path in self.path.glob(f"{DONE}*"):
            if path.name not in named:
                shutil.rmtree(path, ignore_errors=True)

    def _named(self) -> tuple[str, str]:
        try:
            content = json.loads((self.path / CURRENT).read_text(encoding="utf-8"))
            current, previous = str(content["generation"]), str(content["previous"])
        except FileNotFoundError:
            raise DataError(
                f"{self.path} is not an index.",
                hint="Make one: vicinal index MODEL PHOTOS --out FOLDER, or Index.build, Index.of_vectors in Python.",
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self.path / CURRENT} is damaged: {error}.",
                hint=f'It should be like {{"generation": "{DONE}1", "previous": ""}} and name the latest folder.',
            ) from None
        if not current.startswith(DONE) or not (self.path / current).is_dir():
            raise DataError(
                f"{self.path / CURRENT} names the generation {current!r}, which is not there.",
                hint=f"There are: {', '.join(sorted(p.name for p in self.path.glob(f'{DONE}*'))) or 'none'}.",
            )
        return current, previous

    def _point(self, current: str, previous: str) -> None:
        partial = self.path / f".{CURRENT}.partial"
        partial.write_text(json.dumps({"generation": current, "previous": previous}) + "\n", encoding="utf-8")
        sync_file(partial)
        rename(partial, self.path / CURRENT)
