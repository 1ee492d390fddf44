"""Which store a generation of an index is kept in: its own folder, or a server that a file in the folder names."""

from __future__ import annotations

import json
from pathlib import Path

from vicinal.errors import InputError
from vicinal.index.durable_files import sync_file
from vicinal.index.embedded_store import EmbeddedStore
from vicinal.index.item import Header
from vicinal.index.milvus_store import MilvusStore
from vicinal.index.postgres_store import PostgresStore
from vicinal.index.store import Store

__all__ = ["begin_store", "open_store", "server_of"]

ELSEWHERE = "store.json"  # names the server
SERVERS: dict[str, type[PostgresStore] | type[MilvusStore]] = {
    "postgresql": PostgresStore,
    "postgres": PostgresStore,
    "milvus": MilvusStore,
}


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
    server = _server(url)
    place = folder / ELSEWHERE
    if place.is_file():
        store = open_store(folder)
        if store.header == header:
            return store
        store.close()
    place.write_text(json.dumps({"url": url, "name": name}) + "\n", encoding="utf-8")
    sync_file(place)
    return server.create(url, header, name)


def open_store(folder: Path) -> Store:
    """Open the store of a generation."""
    place = folder / ELSEWHERE
    if not place.is_file():
        return EmbeddedStore(folder)
    named = json.loads(place.read_text(encoding="utf-8"))
    return _server(named["url"])(named["url"], named["name"])


def server_of(store: Store) -> str:
    """The URL of the server that keeps a store; empty for a folder."""
    return store.url if isinstance(store, PostgresStore | MilvusStore) else ""


def _server(url: str) -> type[PostgresStore] | type[MilvusStore]:
    scheme = url.split("://")[0]
    if "://" not in url or scheme not in SERVERS:
        raise InputError(
            f"A store is named by a URL such as postgresql://user@host/database or milvus://host:19530; got {url!r}."
        )
    return SERVERS[scheme]
