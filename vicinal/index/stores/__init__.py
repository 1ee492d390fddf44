"""Which store a generation of an index is kept in: its own folder, or a server that a file in the folder names."""

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
GROUP = "vicinal.stores"  # of entry points, by which other packages add stores


@runtime_checkable
class StoreType(Protocol):
    """What the scheme of a URL stands for: a class of stores, or anything else that opens and makes them."""

    def __call__(self, url: str, name: str) -> Store:
        """Open the store of that name at that address."""
        ...

    def create(self, url: str, header: Header, name: str) -> Store:
        """Make an empty store."""
        ...

    def exists(self, url: str, name: str) -> bool:
        """Whether there is a store of that name; raises a VicinalError where the server cannot be asked."""
        ...


BUILT_IN: Mapping[str, StoreType] = {
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
    server = store_type(url)
    begun = _named(folder) if place.is_file() else None
    if begun is not None and begun[0] == url:
        return _continued(server, url, header, begun[1])
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
    return store_type(url)(url, name)


def discard_store(folder: Path) -> bool:
    """Remove what a server keeps of a generation that is about to go; say whether the folder may go, too.

    It may not while somebody has the store open, or while the server cannot be reached: what it keeps would never be
    found again.
    """
    if not (folder / ELSEWHERE).is_file():
        return not in_use(folder / CATALOGUE)
    try:
        url, name = _named(folder)
    except VicinalError:
        return True  # it names nothing
    try:
        server = store_type(url)  # whose package may be gone
        if not server.exists(url, name):
            return True
        with closing(server(url, name)) as store:
            return store.drop()
    except VicinalError:
        return False


def store_type(url: str) -> StoreType:
    """Look up the scheme of a URL: among the stores of vicinal, then among those of installed packages.

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
    """Open a store that was begun for the same vectors, or make it again."""
    if server.exists(url, name):
        store = server(url, name)
        if store.header == header:
            return store
        with closing(store):
            store.drop()
    return server.create(url, header, name)


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
