"""The folder of a run: held by one process, begun once, and never two runs in one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from vicinal.atomic import write_atomically
from vicinal.errors import InputError
from vicinal.recipe import Recipe
from vicinal.results.run import RunFiles

__all__ = ["alone_in", "open_run"]

PATIENCE = 10  # seconds until a run's folder counts as in use


@contextmanager
def alone_in(folder: str | Path | None) -> Iterator[None]:
    """Hold the folder of a run against a second process; of the processes of a torchrun the first one does."""
    if folder is None or os.environ.get("RANK", "0") != "0":
        yield
        return
    files = RunFiles(Path(folder))
    made = not os.path.exists(files.folder)
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(files.lock)
        # The workers of a process that was killed hold its lock until they notice.
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise InputError(
            f"Another process is at work on the run in {folder}: wait for it, or choose another folder."
        ) from None
    except OSError as error:
        raise InputError(f"Cannot make the run's folder {folder}: {error.strerror}.") from None
    try:
        yield
    finally:
        lock.release()
        with suppress(OSError):  # nothing is left of a run that did not fit together
            if [path.name for path in files.folder.iterdir()] == [files.lock.name]:
                files.lock.unlink()
                if made:
                    files.folder.rmdir()


def open_run(files: RunFiles, recipe: Recipe, resume: bool) -> None:
    """Begin or take up a run in its folder; refuse to mix two runs in one."""
    started = files.recipe.exists() or files.last.exists()
    if started and not resume:
        raise InputError(f"{files.folder} holds a run already: give --resume to go on with it, or another folder.")
    if started and (not files.recipe.exists() or Recipe.read(files.recipe) != recipe):
        raise InputError(
            f"{files.folder} was started with another recipe than this one: resume with the same settings (they are in "
            f"{files.recipe}), or start a new run in another folder."
        )
    write_atomically(files.recipe, recipe.toml())
