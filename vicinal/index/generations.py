"""Generations of an index: creating the first, writing the next, and opening the current one."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float32

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.text import counted
from vicinal.embedder import Embedder
from vicinal.errors import InputError, look_up
from vicinal.index.exchange import ForeignVectors
from vicinal.index.filters import In
from vicinal.index.folder import IndexFolder
from vicinal.index.hits import Changes
from vicinal.index.item import Header, Item
from vicinal.index.model import header_for, keep_model, kept_in
from vicinal.index.refresh import embed_into
from vicinal.index.sources import Source, add_rows, as_source
from vicinal.index.stores import begin_store, open_store
from vicinal.index.stores.embedded import EmbeddedStore
from vicinal.index.stores.store import Store
from vicinal.neighbours.rounding import check_numbers
from vicinal.neighbours.similarity import DISTANCES

__all__ = [
    "Generation",
    "Generations",
    "check_claims",
    "check_made_by",
    "check_query_made_by",
    "header_of",
    "make_index",
    "other_embedder",
    "write_compacted",
    "write_reembedded",
]


@dataclass(frozen=True, eq=False)
class Generation:
    """One open generation. It stays usable after another one has become current.

    Attributes:
        folder: Folder of the generation.
        store: Open store of its items.
    """

    folder: Path
    store: Store

    @property
    def embedder(self) -> str:
        """Hash of the embedder that made its vectors; empty if they come from elsewhere."""
        return self.store.header.embedder

    def state(self) -> str:
        """Return the version of the content; it changes with every write."""
        return f"{self.folder.name.rpartition('-')[2]}.{self.store.version()}"


@final
class Generations:
    """Opens the current generation, and the next one when it becomes current.

    Args:
        path: Folder of an index.
        follow: Whether to switch to a new generation (after compacting, re-embedding or a rollback).
    """

    def __init__(self, path: str | Path, follow: bool) -> None:
        self.index = IndexFolder(path)
        self._follow = follow
        self._changing = threading.Lock()
        self._now = _opened(self.index.current())

    def latest(self) -> Generation:
        """Return the current generation; a search in the previous one continues there until it is done."""
        if not self._follow:
            return self._now
        with self._changing:
            current = self.index.current()
            if current != self._now.folder:
                self._now = _opened(current)
            return self._now

    @contextmanager
    def writing(self) -> Iterator[Generation]:
        """Yield the current generation while holding the writer lock."""
        with self.index.writing():
            yield self.latest()

    def close(self) -> None:
        """Close the files of the generation."""
        self._now.store.close()


def _opened(folder: Path) -> Generation:
    return Generation(folder, open_store(folder))


# The next generation of an index: the same items rewritten, without gaps or with another embedder.

COPIED = 1 << 16  # items copied at a time


def name_in_server(path: Path) -> str:
    """Return a unique name for a new generation in a server that may hold many indexes."""
    plain = re.sub(r"[^a-z0-9]+", "_", path.name.lower()).strip("_")[:24] or "index"
    return f"i_{plain}_{secrets.token_hex(4)}"


def write_compacted(store: Store, building: Path) -> None:
    """Copy the items of a store into a new one in the folder `building`, without unused rows."""
    with closing(EmbeddedStore.create(building, store.header)) as target:
        target.declare(store.columns())
        items, rows = store.get()
        for start in range(0, len(items), COPIED):
            target.add(items[start : start + COPIED], rows[start : start + COPIED])


def write_reembedded(
    store: Store,
    building: Path,
    path: Path,
    model: Embedder,
    data: Any,
    progress: bool,
    trust: Trust = NO_TRUST,
) -> Changes:
    """Embed the items of a store with another embedder, into a new store; an interrupted call can be resumed.

    Args:
        store: Store of the current generation.
        building: Folder of the next one.
        path: Folder of the index, after which the next generation is named in a server.
        model: The new embedder.
        data: Data that holds the items, if they are not files.
        progress: Whether to show a progress bar on standard error.
        trust: Code that the name of the data may import.
    """
    items, _ = store.get(vectors=False)
    source = _again(items, data, trust)
    header = header_for(model)
    with closing(begin_store(building, header, store.url, name_in_server(path))) as target:
        target.declare(store.columns())
        wanted = {item.id: item for item in items}
        done = {item.id for item in target.get(vectors=False)[0] if item == wanted.get(item.id)}
        pending = [position for position, key in enumerate(source.ids) if key in wanted and key not in done]
        skipped = embed_into(target, model, source, pending, wanted.__getitem__, progress)
        if gone := {item.id for item in target.get(vectors=False)[0]} - set(wanted):
            target.delete(In("id", tuple(gone)))
    return Changes(updated=len(pending) - len(skipped), unchanged=len(done), skipped=skipped)


def _again(items: list[Item], data: Any, trust: Trust) -> Source:
    """Return the source from which items are re-embedded."""
    if data is not None:
        return as_source(data, trust=trust)
    lost = [item.id for item in items if item.path is None or item.id != item.path]
    if lost:
        raise InputError(
            f"{counted(len(lost), 'item')} (such as {lost[0]!r}) are not files; pass data= to re-embed them."
        )
    paths = [str(item.path) for item in items]
    return Source(paths, paths, paths)


# The first generation of an index: its folder, its embedder, and an empty or filled store.


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
    """Create an index atomically.

    Args:
        path: Folder of the index.
        header: Properties shared by all its vectors.
        model: The embedder, if available.
        store: URL of the store for items and vectors; empty for the folder.
        source: Ids, labels and metadata of the first items.
        rows: Vectors of the first items.
        files: Columns about their files; see `add_rows`.
    """
    folder = IndexFolder(path)
    with folder.writing():
        building = folder.building("new", fresh=True)  # an interrupted build may have had other items
        keep_model(building, header.embedder, model)
        with closing(begin_store(building, header, store, name_in_server(folder.path))) as begun:
            if source is not None and rows is not None:
                add_rows(begun, source, rows, files)
        folder.finish(building)


def hash_of(embedder: Embedder | str | None) -> str:
    """Return the hash of an embedder, which may be passed as its hash already; empty for none."""
    return embedder.identity() if isinstance(embedder, Embedder) else embedder or ""


def header_of(
    rows: Float32[np.ndarray, "n d"], distance: str, embedder: Embedder | str | None, numbers: str = "float32"
) -> Header:
    """Return the properties shared by some vectors.

    Args:
        rows: The vectors.
        distance: Distance that compares them.
        embedder: Embedder that made them, or its hash.
        numbers: Number format; taken from the embedder if there is one.

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
    """Refuse an embedder or a distance that contradicts what a file states about its vectors."""
    if model is not None and found.embedder and found.embedder != model.identity():
        raise InputError(
            f"{file} has the vectors of the embedder {found.embedder[:12]}; the one that was given is "
            f"{model.identity()[:12]}."
        )
    if distance is not None:
        look_up("distance", distance, dict.fromkeys(DISTANCES))
        if found.distance and found.distance != distance:
            raise InputError(f"{file} says that its vectors are compared by {found.distance}, not by {distance}.")


# An index holds vectors of one embedder. Vectors of another are refused, with the command that re-embeds the index.


def check_query_made_by(embedder: Embedder | str | None, known: str, path: Path) -> None:
    """Refuse queries of another embedder, if both embedders are known.

    Args:
        embedder: Embedder that made the queries, or its hash.
        known: Hash of the index's embedder.
        path: Folder of the index, for messages.
    """
    if embedder and known and hash_of(embedder) != known:
        raise other_embedder("has the vectors of", known, path)


def check_made_by(embedder: Embedder | str | None, known: str, path: Path) -> None:
    """Refuse items of another or an unknown embedder; see `check_query_made_by`."""
    requested = hash_of(embedder)
    if known and not requested:
        raise InputError(
            f"{path} has an embedder, so that vectors must say which one made them: pass embedder=, "
            "or pass items, which it embeds by itself."
        )
    if requested != known:
        raise other_embedder("has the vectors of", known, path)


def other_embedder(how: str, known: str, path: Path, folder: object = None) -> InputError:
    """Return the error for an embedder that is not the index's own.

    Args:
        how: Verb that relates the index to its own embedder ("was built with").
        known: Hash of the index's embedder.
        path: Folder of the index.
        folder: Folder of the other embedder, if it was passed as one.
    """
    mine = f"the embedder {known[:12]}" if known else "no embedder, its vectors come from elsewhere"
    return InputError(
        f"{path} {how} {mine}; what another embedder makes cannot be compared with that. To change all of "
        f"it to the other one: vicinal index reembed {path} {folder or 'MODEL'} (or index.reembed(embedder))."
    )
