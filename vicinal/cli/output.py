"""What verbs print and write: JSON, notes and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vicinal._util.files import prepare_output, replacing
from vicinal.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

__all__ = ["prepare_figure", "prepare_picture", "print_json", "quietly", "save_figure", "save_picture", "say_notes"]


def print_json(value: Any) -> None:
    """Print plain data, tensors and arrays among it; what JSON has no word for, such as infinity, is null."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Return what JSON has words for.

    Example:
        >>> plain({"bound": float("inf"), "kept": (1, 2.5)})
        {'bound': None, 'kept': [1, 2.5]}
    """
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # of torch and numpy, neither of which need be imported here
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Notes: what a person has to know beside the results, on standard error, and not under `--quiet`.

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


# Figures and pictures that a verb writes: refused before the work where they cannot be, and whole or not at all.


def prepare_figure(path: Path | None, flag: str) -> None:
    """Find out before minutes of work that a figure cannot be written.

    Args:
        path: Of the figure; None for none.
        flag: Where it was asked for.
    """
    if path is not None:
        from matplotlib.figure import Figure  # slow to import

        _require_suffix(path, {f".{kind}" for kind in Figure().canvas.get_supported_filetypes()}, flag)
        prepare_output(path)


def prepare_picture(path: Path | None, flag: str) -> None:
    """Find out before the work that a picture cannot be written; as `prepare_figure`."""
    if path is not None:
        from PIL import Image

        Image.init()
        _require_suffix(path, {end for end, kind in Image.registered_extensions().items() if kind in Image.SAVE}, flag)
        prepare_output(path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all."""
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)


def save_picture(picture: Image, path: Path) -> None:
    """Write a picture whole or not at all."""
    from PIL.Image import registered_extensions

    with replacing(path) as file:
        picture.save(file, format=registered_extensions()[path.suffix.lower()])


def _require_suffix(path: Path, known: set[str], flag: str) -> None:
    if path.suffix.lower() not in known:
        raise InputError(f"{flag} must end in one of {', '.join(sorted(known))}; got {path}.")
