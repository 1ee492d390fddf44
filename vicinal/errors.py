"""Errors that vicinal raises on purpose; each message says what is wrong, what was got, and what to do.

VicinalError
├── InputError     (ValueError)   an argument of the wrong shape, length, range or content
├── UnknownName    (ValueError)   a name that does not exist, with the nearest one that does
├── DataError      (ValueError)   files or tables that cannot be used; all problems listed at once
├── Interrupted                    work was interrupted; it is saved and can be resumed
├── NotFinite      (ArithmeticError)   NaN or infinity where numbers were needed
└── MissingExtra   (ImportError)  an optional dependency is not installed, with the pip command
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

__all__ = [
    "DataError",
    "InputError",
    "Interrupted",
    "MissingExtra",
    "NotFinite",
    "UnknownName",
    "VicinalError",
    "look_up",
]

T = TypeVar("T")


class VicinalError(Exception):
    """Base of every error that vicinal raises on purpose."""


class InputError(VicinalError, ValueError):
    """An argument has the wrong shape, length, range or content."""


class Interrupted(VicinalError):
    """Work was interrupted; everything is saved and it can be resumed."""


class NotFinite(VicinalError, ArithmeticError):
    """NaN or infinity appeared where finite numbers were needed."""


class UnknownName(VicinalError, ValueError):
    """A name that does not exist; the message suggests the nearest one.

    Args:
        kind: Kind of object that was looked up ("loss", "dataset").
        name: Name that was got.
        choices: Names that exist.

    Example:
        >>> str(UnknownName("loss", "tripplet", ["triplet", "circle"]))
        "Unknown loss 'tripplet'; did you mean 'triplet'? Choose from: circle, triplet."
    """

    def __init__(self, kind: str, name: str, choices: Iterable[str]) -> None:
        ordered = sorted(set(choices))
        near = difflib.get_close_matches(name, ordered, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        super().__init__(f"Unknown {kind} {name!r}{hint} Choose from: {', '.join(ordered)}.")


class DataError(VicinalError, ValueError):
    """Files or tables that cannot be used; every problem is listed, not just the first.

    Args:
        summary: One sentence saying what was being read.
        problems: Problems, one line each.
        hint: Advice to the user.
    """

    def __init__(self, summary: str, problems: Sequence[str] = (), hint: str = "") -> None:
        self.problems = tuple(problems)
        shown = [f"  - {problem}" for problem in self.problems[:20]]
        if len(self.problems) > 20:
            shown.append(f"  - ... and {len(self.problems) - 20} more")
        super().__init__("\n".join([summary, *shown, *([hint] if hint else [])]))


class MissingExtra(VicinalError, ImportError):
    """An optional dependency is not installed.

    Example:
        >>> str(MissingExtra("faiss", "clustering with faiss"))
        "clustering with faiss needs the extra 'faiss': pip install 'vicinal[faiss]'"
    """

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the extra {extra!r}: pip install 'vicinal[{extra}]'")


def look_up(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Return `table[name]`, or raise `UnknownName` with a suggestion.

    Example:
        >>> look_up("colour", "red", {"red": 1, "blue": 2})
        1
    """
    try:
        return table[name]
    except KeyError:
        raise UnknownName(kind, name, table) from None
