"""Stores of an index: a generation is stored in its own folder, or in a server that a file in the folder names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

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

__all__ = ["StoreType", "begin_store", "discard_store", "open_store", "store_type"]

ELSEWHERE = "store.json"  # names the server
GROUP = "vicinal.stores"  # entry point group for stores of other packages


@runtime_checkable
class StoreType(Protocol):
    """Type of store that a URL scheme stands for: a store class, or any object that opens and creates stores."""

    def __call__(self, url: str, name: str) -> Store:
        """Open the store with that name at that address."""
        ...

    def create(self, url: str, header: Header, name: str) -> Store:
        """Create an empty store."""
        ...

    def exists(self, url: str, name: str) -> bool:
        """Return whether there is a store with that name; raise a VicinalError if the server cannot be reached."""
        ...


BUILT_IN: Mapping[str, StoreType] = {
    "postgresql": PostgresStore,
    "postgres": PostgresStore,
    "milvus": MilvusStore,
    "milvus+https": MilvusStore,
}


def begin_store(folder: Path, header: Header, url: str = "", name: str = "") -> Store:
    """Create a store for a generation, or open one that was started there for the same vectors.

    The server is written to a file in the folder before anything is created in it, so that unfinished work can be
    found and removed later. If creation fails, the file is deleted.

    Args:
        folder: Folder of the generation.
        header: Properties shared by all vectors.
        url: URL of a server; empty for the folder itself.
        name: Name of this generation in the server.
    """
    pointer = folder / ELSEWHERE
    if not url:
        pointer.unlink(missing_ok=True)
        return EmbeddedStore.open_or_create(folder, header)
    server = store_type(url)
    begun = _named(folder) if pointer.is_file() else None
    if begun is not None and begun[0] == url:
        return _continued(server, url, header, begun[1])
    pointer.write_text(json.dumps({"url": url, "name": name}) + "\n", encoding="utf-8")
    sync_file(pointer)
    try:
        return server.create(url, header, name)
    except VicinalError:
        pointer.unlink()
        raise


def open_store(folder: Path) -> Store:
    """Open the store of a generation."""
    if not (folder / ELSEWHERE).is_file():
        return EmbeddedStore(folder)
    url, name = _named(folder)
    return store_type(url)(url, name)


def discard_store(folder: Path) -> bool:
    """Remove the data of a generation from its server, and return whether its folder may be deleted.

    It may not while a process has the store open, or while the server cannot be reached: its data would be orphaned.
    """
    if not (folder / ELSEWHERE).is_file():
        return not in_use(folder / CATALOGUE)
    try:
        url, name = _named(folder)
    except VicinalError:
        return True  # the file names no server
    try:
        server = store_type(url)  # its package may have been uninstalled
        if not server.exists(url, name):
            return True
        with closing(server(url, name)) as store:
            return store.drop()
    except VicinalError:
        return False


def store_type(url: str) -> StoreType:
    """Look up the scheme of a URL, first in vicinal's own stores, then in those of installed packages.

    Raises:
        InputError: If no store has that scheme, or its package cannot be imported.
    """
    scheme, separator, _ = url.partition("://")
    if separator and scheme in BUILT_IN:
        return BUILT_IN[scheme]
    others = entry_points(group=GROUP)
    if not separator or scheme not in others.names:
        raise InputError(
            "A store is named by a URL such as postgresql://user@host/database or milvus://host:19530; got "
            f"{masked(url)!r}. Schemes: {', '.join(sorted({*BUILT_IN, *others.names}))}."
        )
    try:
        return others[scheme].load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"The store {scheme}:// is installed but cannot be imported: {error}") from error


def _continued(server: StoreType, url: str, header: Header, name: str) -> Store:
    """Open a store that was started for the same vectors, or create it again."""
    if server.exists(url, name):
        store = server(url, name)
        if store.header == header:
            return store
        with closing(store):
            store.drop()
    return server.create(url, header, name)


def _named(folder: Path) -> tuple[str, str]:
    """Return the URL of the server that a folder names, and the name of the generation there."""
    content = read_json(folder / ELSEWHERE)
    url, name = (content.get("url"), content.get("name")) if isinstance(content, dict) else (None, None)
    if not isinstance(url, str) or not isinstance(name, str):
        raise DataError(
            f"{folder / ELSEWHERE} is corrupted: it names no server.",
            hint='It should be like {"url": "postgresql://user@host/database", "name": "i_birds_0123abcd"}.',
        )
    return url, name
