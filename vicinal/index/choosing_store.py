"""Which store a generation of an index is kept in: its own folder, or a server that a file in the folder names."""

from __future__ import annotations

import json
from pathlib import Path

from vicinal.errors import InputError
from vicinal.index.durable_files import sync_file
from vicinal.index.embedded_store import EmbeddedStore
from vicinal.index.item import Header
from vicinal.index.postgres_store import PostgresStore
from vicinal.index.store import Store

__all__ = ["begin_store", "open_store"]

ELSEWHERE = "store.json"  # names the server
SCHEMES = ("postgresql://", "postgres://")


def begin_store(folder: Path, header: Header, url: str = "", name: str = "") -> Store:
    """Make a store for a generation, or go on with one that was begun for the same vectors.

    Args:
        folder: Of the generation.
        header: What all vectors have in common.
        url: Of a server; empty for the folder itself.
        name: Of this generation in the server.
    """
    if not url:
        return EmbeddedStore.open_or_create(folder, header)
    if not url.startswith(SCHEMES):
        raise InputError(f"A store is named by a URL such as postgresql://user@host/database; got {url!r}.")
    place = folder / ELSEWHERE
    if place.is_file():
        store = open_store(folder)
        if store.header == header:
            return store
        store.close()
    place.write_text(json.dumps({"url": url, "name": name}) + "\n", encoding="utf-8")
    sync_file(place)
    return PostgresStore.create(url, header, name)


def open_store(folder: Path) -> Store:
    """Open the store of a generation."""
    place = folder / ELSEWHERE
    if not place.is_file():
        return EmbeddedStore(folder)
    named = json.loads(place.read_text(encoding="utf-8"))
    return PostgresStore(named["url"], named["name"])
