"""The next generation of an index: the same items written anew, without gaps or with another embedder."""

from __future__ import annotations

import re
import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

from vicinal.embedder import Embedder
from vicinal.errors import InputError
from vicinal.index.choosing_store import begin_store, server_of
from vicinal.index.embedded_store import EmbeddedStore
from vicinal.index.hits import Changes
from vicinal.index.item import Item
from vicinal.index.kept_model import header_for
from vicinal.index.sources import Source, as_source
from vicinal.index.store import Store
from vicinal.index.taking_in import embed_into
from vicinal.index.where import In
from vicinal.phrasing import counted

__all__ = ["name_in_server", "write_compacted", "write_reembedded"]

COPIED = 1 << 16  # items copied at a time


def name_in_server(path: Path) -> str:
    """A name for a new generation in a server that may hold many indexes."""
    plain = re.sub(r"[^a-z0-9]+", "_", path.name.lower()).strip("_")[:24] or "index"
    return f"i_{plain}_{secrets.token_hex(4)}"


def write_compacted(store: Store, building: Path) -> None:
    """Copy the items of a store into a new one in the folder `building`, without the rows that no item has."""
    with closing(EmbeddedStore.create(building, store.header)) as target:
        target.declare(store.columns())
        items, rows = store.get()
        for start in range(0, len(items), COPIED):
            target.add(items[start : start + COPIED], rows[start : start + COPIED])


def write_reembedded(store: Store, building: Path, path: Path, model: Embedder, data: Any, progress: bool) -> Changes:
    """Embed the items of a store with another embedder, into a new store; what was done before a kill is kept.

    Args:
        store: Of the present generation.
        building: The folder of the next one.
        path: Of the index, which the next one is named after in a server.
        model: The other embedder.
        data: Where the items are, if they are not files.
        progress: Whether to show a bar on standard error.
    """
    items, _ = store.get(vectors=False)
    source = _again(items, data)
    header = header_for(model)
    with closing(begin_store(building, header, server_of(store), name_in_server(path))) as target:
        if isinstance(target, EmbeddedStore):
            target.declare(store.columns())
        wanted = {item.id: item for item in items}
        done = {item.id for item in target.get(vectors=False)[0] if item == wanted.get(item.id)}
        places = [place for place, key in enumerate(source.ids) if key in wanted and key not in done]
        skipped = embed_into(target, model, source, places, wanted.__getitem__, progress)
        if gone := {item.id for item in target.get(vectors=False)[0]} - set(wanted):
            target.delete(In("id", tuple(gone)))
    return Changes(updated=len(places) - len(skipped), unchanged=len(done), skipped=skipped)


def _again(items: list[Item], data: Any) -> Source:
    """What items are embedded from a second time."""
    if data is not None:
        return as_source(data)
    lost = [item.id for item in items if item.path is None or item.id != item.path]
    if lost:
        raise InputError(
            f"Not whole files: {counted(len(lost), 'item')}, such as {lost[0]!r}; to embed them anew, give the data "
            "that they came from."
        )
    paths = [str(item.path) for item in items]
    return Source(paths, paths, paths)
