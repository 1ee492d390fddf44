"""Output of verbs: JSON, notes, figures and images."""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Iterator
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

    from vicinal.evaluation import Scores

__all__ = [
    "prepare_figure",
    "prepare_picture",
    "print_json",
    "print_scores",
    "quietly",
    "save_figure",
    "save_picture",
    "say_notes",
]


def print_json(value: Any) -> None:
    """Print data as JSON, including tensors and arrays; values that JSON lacks, such as infinity, become null."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Return JSON-compatible data.

    Example:
        >>> plain({"bound": float("inf"), "kept": (1, 2.5)})
        {'bound': None, 'kept': [1, 2.5]}
    """
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # PyTorch and NumPy, without importing either
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Scores: the four that matter most and those that the user requested.

MEANINGS = {
    "P@1": "the nearest item has the query's class",
    "R@k": "one of the k nearest items has the query's class",
    "MAP@R": "items of the query's class fill the top of its ranking",
    "NMI": "k-means clusters agree with the classes",
}
# Scores that are computed by default, but printed only on request.
DETAILS = {
    *("R@1", "P@R", "mAP", "MRR", "nDCG", "AMI", "F1", "covering radius", "inter-class distance"),
    *("intra-class distance", "density", "spectral decay", "effective rank", "uniformity", "alignment", "hubness"),
}


def print_scores(scores: Scores, requested: Container[str] = (), *, everything: bool = False) -> None:
    """Print P@1, R@k of the largest k, MAP@R, NMI and requested scores, with the meaning of the four.

    Args:
        scores: Result of an evaluation.
        requested: Names of scores that the user asked for, among those that are computed by default.
        everything: Whether to print all scores.
    """
    if everything:
        typer.echo(str(scores))
        return
    recalls = [name for name in scores.overall if name.startswith("R@")]
    hidden = DETAILS | set(recalls[:-1])
    shown = [name for name in scores.overall if name in requested or name not in hidden]
    typer.echo(f"{scores.table(shown)}\n")
    for name in shown:
        meaning = MEANINGS.get("R@k" if name in recalls else name)
        if meaning is not None and name not in hidden:
            typer.echo(f"{name}: {meaning.replace('k nearest', f'{name[2:]} nearest')}.")
    if len(shown) < len(scores.overall):
        typer.echo(f"{len(scores.overall) - len(shown)} more scores: add --all or --json.")


# Notes on the results, printed to standard error unless `--quiet`.

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly(quiet: bool) -> Iterator[None]:
    """Suppress notes inside the context if `quiet`."""
    before = _quiet.set(quiet)
    try:
        yield
    finally:
        _quiet.reset(before)


def say_notes(notes: Iterable[str]) -> None:
    """Print each note on a separate line."""
    if not _quiet.get():
        for note in notes:
            typer.echo(f"Note: {note}", err=True)


# Figures and images: checked before the work starts, and written atomically.


def prepare_figure(path: Path | None, flag: str) -> None:
    """Check that a figure can be written, before minutes of work.

    Args:
        path: Path of the figure; None for none.
        flag: Flag that requested it.
    """
    if path is not None:
        from matplotlib.figure import Figure  # slow to import

        _require_suffix(path, {f".{kind}" for kind in Figure().canvas.get_supported_filetypes()}, flag)
        prepare_output(path)


def prepare_picture(path: Path | None, flag: str) -> None:
    """Check that an image can be written, like `prepare_figure`."""
    if path is not None:
        from PIL import Image

        Image.init()
        _require_suffix(path, {end for end, kind in Image.registered_extensions().items() if kind in Image.SAVE}, flag)
        prepare_output(path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure atomically."""
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)


def save_picture(picture: Image, path: Path) -> None:
    """Write an image atomically."""
    from PIL.Image import registered_extensions

    with replacing(path) as file:
        picture.save(file, format=registered_extensions()[path.suffix.lower()])


def _require_suffix(path: Path, known: set[str], flag: str) -> None:
    if path.suffix.lower() not in known:
        raise InputError(f"{flag} must end in the suffix of an image type, such as .png, .jpg or .pdf; got {path}.")
