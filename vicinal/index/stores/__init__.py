"""Which store a generation of an index is kept in: its own folder, or a server that a file in the folder names."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from vicinal._util.files import sync_file
from vicinal._util.reading import read_json
from vicinal._util.secrets import masked
from vicinal.errors import DataError, InputError, VicinalError
from vicinal.index.item import Header
from vicinal.index.stores.catalogue import in_use
from vicinal.index.stores.embedded import CATALOGUE, EmbeddedStore
from vicinal.index.stores.milvus import MilvusStore
from vicinal.index.stores.postgres import PostgresStore
from vicinal.index.stores.store import Store

__all__ = ["begin_store", "discard_store", "open_store", "server_of"]

ELSEWHERE = "store.json"  # names the server
SERVERS: dict[str, type[PostgresStore] | type[MilvusStore]] = {
    "postgresql": PostgresStore,
    "postgres": PostgresStore,
    "milvus": MilvusStore,
    "milvus+https": MilvusStore,
}


def begin_store(folder: Path, header: Header, url: str = "", name: str = "") -> Store:
    """Make a store for a generation, or go on with one that was begun there for the same vectors.

    The folder names the server before anything is made there, so that what is begun can be found again and removed;
    where nothing could be made, it names none.

    Args:
        folder: Of the generation.
        header: What all vectors have in common.
        url: Of a server; empty for the folder itself.
        name: Of this generation in the server.
    """
    place = folder / ELSEWHERE
    if not url:
        place.unlink(missing_ok=True)
        return EmbeddedStore.open_or_create(folder, header)
    server = _server(url)
    begun = _named(folder) if place.is_file() else None
    if begun is not None and begun[0] == url:
        return server.open_or_create(url, header, begun[1])
    place.write_text(json.dumps({"url": url, "name": name}) + "\n", encoding="utf-8")
    sync_file(place)
    try:
        return server.create(url, header, name)
    except VicinalError:
        place.unlink()
        raise


def open_store(folder: Path) -> Store:
    """Open the store of a generation."""
    if not (folder / ELSEWHERE).is_file():
        return EmbeddedStore(folder)
    url, name = _named(folder)
    return _server(url)(url, name)


def discard_store(folder: Path) -> bool:
    """Remove what a server keeps of a generation that is about to go; say whether the folder may go, too.

    It may not while somebody has the store open, or while the server cannot be reached: what it keeps would never be
    found again.
    """
    if not (folder / ELSEWHERE).is_file():
        return not in_use(folder / CATALOGUE)
    try:
        url, name = _named(folder)
        server = _server(url)
    except VicinalError:
        return True  # it names nothing
    try:
        if not server.exists(url, name):
            return True
        with closing(server(url, name)) as store:
            return store.drop()
    except VicinalError:
        return False


def server_of(store: Store) -> str:
    """The URL of the server that keeps a store; empty for a folder."""
    return store.url if isinstance(store, PostgresStore | MilvusStore) else ""


def _named(folder: Path) -> tuple[str, str]:
    """The server that a folder names, and the name of the generation there."""
    content = read_json(folder / ELSEWHERE)
    url, name = (content.get("url"), content.get("name")) if isinstance(content, dict) else (None, None)
    if not isinstance(url, str) or not isinstance(name, str):
        raise DataError(
            f"{folder / ELSEWHERE} is damaged: it names no server.",
            hint='It should be like {"url": "postgresql://user@host/database", "name": "i_birds_0123abcd"}.',
        )
    return url, name


def _server(url: str) -> type[PostgresStore] | type[MilvusStore]:
    scheme = url.split("://")[0]
    if "://" not in url or scheme not in SERVERS:
        raise InputError(
            "A store is named by a URL such as postgresql://user@host/database or milvus://host:19530; "
            f"got {masked(url)!r}."
        )
    return SERVERS[scheme]
