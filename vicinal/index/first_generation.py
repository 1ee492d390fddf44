"""The first generation of an index: its folder, its embedder and an empty or filled store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from vicinal.embedder import Embedder
from vicinal.errors import InputError, look_up
from vicinal.index.choosing_store import begin_store
from vicinal.index.exchange import ForeignVectors
from vicinal.index.given_rows import add_rows
from vicinal.index.index_folder import IndexFolder
from vicinal.index.item import Header
from vicinal.index.kept_model import header_for, keep_model, kept_in
from vicinal.index.new_generation import name_in_server
from vicinal.index.sources import Source
from vicinal.neighbours.rounded_rows import check_numbers
from vicinal.neighbours.similarity import DISTANCES

__all__ = ["check_claims", "hash_of", "header_of", "make_index"]


def make_index(
    path: str | Path,
    header: Header,
    model: Embedder | None = None,
    store: str = "",
    *,
    source: Source | None = None,
    rows: Float32[np.ndarray, "n d"] | None = None,
    files: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Make an index; it is there, whole, when this returns, or is not there.

    Args:
        path: Its folder.
        header: What all its vectors have in common.
        model: The embedder, if it is at hand.
        store: Where items and vectors are kept; empty for the folder.
        source: Ids, labels and metadata of the first items.
        rows: Their vectors.
        files: What is known of their files; see `add_rows`.
    """
    folder = IndexFolder(path)
    with folder.writing():
        building = folder.building("new", anew=True)  # whoever was killed before finishing it may have had other items
        keep_model(building, header.embedder, model)
        with closing(begin_store(building, header, store, name_in_server(folder.path))) as begun:
            if source is not None and rows is not None:
                add_rows(begun, source, rows, files)
        folder.finish(building)


def hash_of(embedder: Embedder | str | None) -> str:
    """The hash of an embedder, or of what is said by it; empty for none."""
    return embedder.identity() if isinstance(embedder, Embedder) else embedder or ""


def header_of(
    rows: Float32[np.ndarray, "n d"], distance: str, embedder: Embedder | str | None, numbers: str = "float32"
) -> Header:
    """What vectors have in common.

    Args:
        rows: The vectors.
        distance: How they are compared.
        embedder: What made them, or its hash.
        numbers: What each number is kept in; an embedder knows it.

    Raises:
        InputError: If the embedder cannot have made them.
    """
    dim = rows.shape[1]
    if isinstance(embedder, Embedder) and (embedder.dim, embedder.distance) != (dim, distance):
        raise InputError(
            f"The vectors have {dim} numbers and are compared by {distance}; the embedder that is said to have made "
            f"them gives {embedder.dim} numbers, compared by {embedder.distance}."
        )
    if isinstance(embedder, Embedder):
        return header_for(embedder)
    check_numbers(numbers, distance)
    return Header(dim, distance, hash_of(embedder), kept_in(numbers))


def check_claims(file: str | Path, found: ForeignVectors, model: Embedder | None, distance: str | None) -> None:
    """Refuse an embedder or a distance that is not what a file says of its vectors."""
    if model is not None and found.embedder and found.embedder != model.identity():
        raise InputError(
            f"{file} has the vectors of the embedder {found.embedder[:12]}; the one that was given is "
            f"{model.identity()[:12]}."
        )
    if distance is not None:
        look_up("distance", distance, dict.fromkeys(DISTANCES))
        if found.distance and found.distance != distance:
            raise InputError(f"{file} says that its vectors are compared by {found.distance}, not by {distance}.")
