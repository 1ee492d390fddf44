"""Vectors of one embedder only: what another made is refused, with the command that changes an index to it."""

from __future__ import annotations

from pathlib import Path

from vicinal.embedder import Embedder
from vicinal.errors import InputError
from vicinal.index.first_generation import hash_of

__all__ = ["check_made_by", "check_query_made_by", "other_embedder"]


def check_query_made_by(embedder: Embedder | str | None, known: str, path: Path) -> None:
    """Refuse queries of another embedder, where both are known.

    Args:
        embedder: What made them, or its hash.
        known: The hash of the index's own.
        path: Of the index, for messages.
    """
    if embedder and known and hash_of(embedder) != known:
        raise other_embedder("has the vectors of", known, path)


def check_made_by(embedder: Embedder | str | None, known: str, path: Path) -> None:
    """Refuse items of another embedder, or of one that nobody knows; see `check_query_made_by`."""
    given = hash_of(embedder)
    if known and not given:
        raise InputError(
            f"{path} has an embedder, so that vectors must say which one made them: pass embedder=, "
            "or pass items, which it embeds by itself."
        )
    if given != known:
        raise other_embedder("has the vectors of", known, path)


def other_embedder(how: str, known: str, path: Path, folder: object = None) -> InputError:
    """What is said of the embedder that an index has, where another was given.

    Args:
        how: What the index has to do with its own ("was built with").
        known: The hash of its own.
        path: Of the index.
        folder: Of the other embedder, if it was given as one.
    """
    mine = f"the embedder {known[:12]}" if known else "no embedder, its vectors come from elsewhere"
    return InputError(
        f"{path} {how} {mine}; what another embedder makes cannot be compared with that. To change all of "
        f"it to the other one: vicinal index {path} --model {folder or 'FOLDER'} (or index.reembed(embedder))."
    )
