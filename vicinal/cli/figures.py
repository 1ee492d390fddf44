"""Figures and pictures that a verb writes: refused before the work where they cannot be, and whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.atomic import prepare_output, replacing
from vicinal.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

__all__ = ["prepare_figure", "prepare_picture", "save_figure", "save_picture"]


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
