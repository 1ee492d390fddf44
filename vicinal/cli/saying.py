"""Notes: what a person has to know beside the results, on standard error, and not under `--quiet`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import typer

__all__ = ["quietly", "say_notes"]

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly(quiet: bool) -> Iterator[None]:
    """Say no notes inside, if so asked."""
    before = _quiet.set(quiet)
    try:
        yield
    finally:
        _quiet.reset(before)


def say_notes(notes: Iterable[str]) -> None:
    """Say each of the notes in a line of its own."""
    if not _quiet.get():
        for note in notes:
            typer.echo(f"Note: {note}", err=True)
