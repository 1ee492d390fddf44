"""Client for an index behind HTTP, with the same methods as a local `Index`.

It uses `http.client` of the standard library, so a client needs nothing but vicinal. A few connections stay open and
are shared by all threads; requests and replies are a few lines of JSON.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar, final, overload
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import numpy as np
from jaxtyping import Float32, Float64
from numpy.typing import NDArray
from PIL import Image

from vicinal._util.text import counted
from vicinal.data.readers.layout import images_below
from vicinal.embedder.calibration import Calibration, Sameness
from vicinal.errors import DataError, InputError
from vicinal.index.filters import Where, as_condition, as_text, plain_value
from vicinal.index.hits import Changes, Hit, Hits
from vicinal.index.item import Id, Item
from vicinal.index.sources import checked_rows
from vicinal.neighbours import Reranking
from vicinal.neighbours.inputs import as_array, checked_count
from vicinal.neighbours.reranking import as_reranking

__all__ = ["RemoteIndex", "connect", "form_body"]


# A small pool of open connections to a server, shared by all threads.


@final
class ConnectionPool:
    """Pool of connections to one server.

    Args:
        parts: Parts of the server's address.
        timeout: Timeout of a request, in seconds.
        most: Largest number of idle connections to keep.
    """

    def __init__(self, parts: SplitResult, timeout: float, most: int) -> None:
        self._parts, self._timeout, self._most = parts, timeout, most
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def take(self) -> http.client.HTTPConnection:
        """Return an idle connection, or a new one that is not open yet."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def release(self, connection: http.client.HTTPConnection) -> None:
        """Return a connection to the pool after its reply was read; close it if the pool is full."""
        with self._lock:
            if len(self._idle) < self._most:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close idle connections now, and the others when they are given back."""
        with self._lock:
            idle, self._idle, self._most = self._idle, [], 0
        for connection in idle:
            connection.close()


# Pictures as request bodies: the bytes of a file, alone or as part of a form.


def pictures_of(query: Any) -> tuple[list[Any], bool]:
    """Return the pictures to send, and whether the query is a single picture."""
    if isinstance(query, str | os.PathLike) and Path(query).is_dir():
        files = list(images_below(Path(query)))
        if not files:
            raise InputError("The folder contains no images.")
        return files, False
    if isinstance(query, str | os.PathLike | bytes | Image.Image):
        return [query], True
    if isinstance(query, np.ndarray) and (query.ndim == 2 or (query.ndim == 3 and query.shape[2] in (1, 3))):
        return [query], True
    return list(query), False


def file_content(picture: Any) -> bytes:
    """Return the bytes of a picture's file."""
    if isinstance(picture, bytes):
        return picture
    if isinstance(picture, str | os.PathLike):
        try:
            return Path(picture).read_bytes()
        except OSError as error:
            raise DataError(f"{picture} cannot be read: {error.strerror or error}.") from None
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8:
            raise InputError(f"An image array must be uint8; got {picture.dtype}.")
        picture = Image.fromarray(picture.squeeze(2) if picture.shape[2:] == (1,) else picture)
    if not isinstance(picture, Image.Image):
        raise InputError(f"A picture is a path, bytes, an image or an array; got {type(picture).__name__}.")
    content = BytesIO()
    (picture if picture.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else picture.convert("RGB")).save(
        content, "PNG"
    )
    return content.getvalue()


def form_body(fields: Mapping[str, str], files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return the content type and the bytes of a multipart form."""
    edge = secrets.token_hex(16)
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    parts += [(f'name="{name}"; filename="picture"', content) for name, content in files.items()]
    written = [
        f"--{edge}\r\nContent-Disposition: form-data; {name}\r\n\r\n".encode() + content + b"\r\n"
        for name, content in parts
    ]
    return f"multipart/form-data; boundary={edge}", b"".join([*written, f"--{edge}--\r\n".encode()])


T = TypeVar("T")

LISTED = 1000  # items per reply
SENT = 500  # vectors per request
SIDE_BY_SIDE = 8  # concurrent requests of one call, and idle connections kept
ATTEMPTS = 5
LATER = (429, 503)  # status codes that ask the client to retry


def connect(url: str, *, token: str = "", timeout: float = 60.0) -> RemoteIndex:
    """Connect to a server that `vicinal serve` started.

    Args:
        url: Address of the server, such as "http://127.0.0.1:8765".
        token: Access token, if the server requires one.
        timeout: Timeout of a request, in seconds.

    Returns:
        A client with the methods of `Index` that work remotely: search, nearest, get, count, calibration, add,
        update, remove; and `same` of its embedder.
    """
    return RemoteIndex(url, token=token, timeout=timeout)


@final
class RemoteIndex:
    """An index behind HTTP. It is thread-safe, and its answers equal those of the library to the last digit.

    Args:
        url: Address of the server.
        token: Access token, if the server requires one.
        timeout: Timeout of a request, in seconds.
    """

    def __init__(self, url: str, *, token: str = "", timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise InputError(f"The address of a server is like http://127.0.0.1:8765; got {url!r}.")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._timeout = timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connections = ConnectionPool(parts, timeout, SIDE_BY_SIDE)
        try:
            self._info()
        except BaseException:
            self.close()
            raise

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self._info()["dim"]

    @property
    def distance(self) -> str:
        """How vectors are compared: "cosine" or "euclidean"."""
        return self._info()["distance"]

    @property
    def embedder_hash(self) -> str:
        """Hash of the embedder that made the vectors; empty if they come from elsewhere."""
        return self._info()["embedder"]

    @property
    def generation(self) -> str:
        """Version of the content; changes with every write."""
        return self._info()["generation"]

    @property
    def calibration(self) -> Calibration | None:
        """Calibration with the threshold above which a hit counts as the same; None if there is none."""
        values = self._asked("GET", "/api/calibration")["calibration"]
        return None if values is None else Calibration.of(values)

    @property
    def columns(self) -> dict[str, str | None]:
        """Columns that a filter may name, and the kind of value that each holds."""
        return self._info()["columns"]

    def __len__(self) -> int:
        return self._info()["count"]

    def __repr__(self) -> str:
        info = self._info()
        size = f"{counted(info['count'], 'item')}, {info['dim']} dimensions"
        return f"RemoteIndex({self.url!r}: {size}, {info['distance']})"

    def __enter__(self) -> RemoteIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; those in use are closed once their reply was read."""
        self._connections.close()

    @overload
    def search(
        self,
        query: None = None,
        k: int = 10,
        where: Where | None = None,
        *,
        item: Id,
        fast: bool = False,
        expand: int = 0,
        rerank: Reranking | bool | None = None,
    ) -> Hits: ...
    @overload
    def search(
        self,
        query: Any = None,
        k: int = 10,
        where: Where | None = None,
        *,
        vector: Any = None,
        fast: bool = False,
        expand: int = 0,
        rerank: Reranking | bool | None = None,
    ) -> Hits | list[Hits]: ...
    def search(
        self,
        query: Any = None,
        k: int = 10,
        where: Where | None = None,
        *,
        vector: Any = None,
        item: Id | None = None,
        fast: bool = False,
        expand: int = 0,
        rerank: Reranking | bool | None = None,
    ) -> Hits | list[Hits]:
        """Find the k items nearest to a query, as `Index.search` does.

        Args:
            query: A path, the bytes of an image file, an image, a uint8 array; a vector if the index has no embedder.
                A folder or a list of these is a batch of queries. Files are sent unchanged, images as PNG.
            k: Number of neighbours.
            where: Filter on the items.
            vector: One or more embeddings instead of a query.
            item: Id of an item to search by instead of a query; the item itself is not returned.
            fast: See `Index.search`.
            expand: See `Index.search`.
            rerank: See `Index.search`; a server supports only the default settings, `Reranking()`. If preparing
                takes longer than the server allows, the request is retried until it is done.

        Returns:
            `Hits` for a single query, a list of them for a batch.
        """
        if sum(source is not None for source in (query, vector, item)) != 1:
            raise InputError("Give one of query, vector and item.")
        k, expand = checked_count(k, "k"), checked_count(expand, "expand", least=0)
        settings = as_reranking(rerank)
        if settings not in (None, Reranking()):
            raise InputError(f"{self.url} re-ranks as Reranking() says; got {settings}.")
        ask = {"k": k, **_filter(where), "exact": "false" if fast else "true", "expand": expand}
        ask |= {} if settings is None else {"rerank": "true"}
        if item is not None:
            return _hits(self._asked("POST", "/search", ask, json_body={"item": plain_value(item, "id")}))
        if vector is None and not self._info()["can_embed"]:
            vector = query
        if vector is not None:
            array = as_array(vector, "queries")
            rows = checked_rows(array[None] if array.ndim == 1 else array, "queries")
            replies = self._each(
                lambda row: self._asked("POST", "/search", ask, json_body={"vector": row}), rows.tolist()
            )
            return _hits(replies[0]) if array.ndim == 1 else [_hits(reply) for reply in replies]
        pictures, single = pictures_of(query)
        replies = self._each(lambda picture: self._asked("POST", "/search", ask, body=file_content(picture)), pictures)
        return _hits(replies[0]) if single else [_hits(reply) for reply in replies]

    def nearest(
        self, queries: Any, k: int = 10, where: Where | None = None, *, fast: bool = False
    ) -> tuple[NDArray[Any], Float64[np.ndarray, "n k"]]:
        """Find the ids of the items nearest to vectors, and their similarities: arrays in, arrays out."""
        array = as_array(queries, "queries")
        rows = checked_rows(array[None] if array.ndim == 1 else array, "queries")
        answers = self.search(vector=rows, k=k, where=where, fast=fast)
        assert isinstance(answers, list)  # there are rows
        ids = np.array([[hit.id for hit in hits] for hits in answers])
        return ids, np.array([[hit.similarity for hit in hits] for hits in answers], dtype=np.float64)

    def get(self, where: Where | None = None, *, vectors: bool = True) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """Return the items that pass a filter, ordered by id, and their vectors if `vectors` is True."""
        for _ in range(ATTEMPTS):
            replies = list(self._pages(where, vectors))
            if len({reply["generation"] for reply in replies}) == 1:
                break
        else:
            raise DataError(f"{self.url} kept changing while it was read.", hint="Try again when no one is writing.")
        listed = [item for reply in replies for item in reply["items"]]
        rows = [item["vector"] for item in listed] if vectors else []
        return [_item(item) for item in listed], np.array(rows, dtype=np.float32).reshape(len(rows), self.dim)

    def count(self, where: Where | None = None) -> int:
        """Return the number of items that pass a filter."""
        return self._asked("GET", "/items", {**_filter(where), "limit": 0})["count"]

    def same(self, first: Any, second: Any) -> Sameness:
        """Return whether two pictures are of the same class, by the embedder's calibration; see `Embedder.same`.

        Args:
            first: A path, the bytes of an image file, an image or a uint8 array.
            second: The picture to compare with, in any of these forms.
        """
        kind, body = form_body({}, {"a": file_content(first), "b": file_content(second)})
        reply = self._asked("POST", "/same", body=body, kind=kind)
        if reply["same"] is None:
            raise InputError(f"{self.url}: the index's model has no similarity threshold; calibrate it there.")
        return Sameness(**reply)

    def add(
        self,
        items: Any = None,
        *,
        vectors: Any = None,
        ids: Sequence[Id] | NDArray[Any] | None = None,
        labels: Sequence[Any] | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
        embedder: str | None = None,
    ) -> Changes:
        """Add pictures or vectors; the server must be writable and the token valid.

        Args:
            items: Paths, images or uint8 arrays, which the server embeds; it does not store pictures.
            vectors: Embeddings instead of items, one row per item.
            ids: One id per item; by default the absolute paths of files.
            labels: One label per item, or None.
            metadata: Additional columns, one value per item.
            embedder: Hash of the embedder that made the vectors; required if the index has an embedder.
        """
        if (items is None) == (vectors is None):
            raise InputError("Give items or vectors.")
        contents: list[Any] = pictures_of(items)[0] if vectors is None else checked_rows(vectors, "vectors").tolist()
        if ids is None:
            if vectors is not None or not all(isinstance(item, str | os.PathLike) for item in contents):
                raise InputError("Items that are not files need ids.")
            ids = [os.path.abspath(item) for item in contents]
        columns: dict[str, Sequence[Any] | NDArray[Any]] = {"id": ids, **(metadata or {})} | (
            {} if labels is None else {"label": labels}
        )
        for name, column in columns.items():
            if len(column) != len(contents):
                raise InputError(f"{name} must have one entry per item: {len(contents)} items, {len(column)} entries.")
        plain = {name: [plain_value(value, name) for value in column] for name, column in columns.items()}
        if vectors is None:
            replies = [self._add_picture(item, position, plain) for position, item in enumerate(contents)]
        else:
            replies = []
            for start in range(0, len(contents), SENT):
                part = {name: column[start : start + SENT] for name, column in plain.items()}
                body = {
                    "vectors": contents[start : start + SENT],
                    "ids": part.pop("id"),
                    "labels": part.pop("label", None),
                }
                replies.append(
                    self._asked("POST", "/items", json_body={**body, "metadata": part or None, "embedder": embedder})
                )
        return _joined(replies)

    def update(self, where: Where, values: Mapping[str, Any]) -> int:
        """Set columns of the items that pass a filter (None removes a value), and return the number of items."""
        plain = {name: plain_value(value, name) for name, value in values.items()}
        return self._asked("PATCH", "/items", json_body={**_filter(where), "values": plain})["updated"]

    def remove(self, where: Where | None = None, *, ids: Iterable[Id] | None = None) -> int:
        """Remove items by filter or by id, one request each, and return the number of items removed."""
        if (where is None) == (ids is None):
            raise InputError("Give a filter, or ids.")
        wanted = [item.id for item in self.get(where, vectors=False)[0]] if ids is None else dict.fromkeys(ids)
        gone = 0
        for key in wanted:
            reply = self._asked(
                "DELETE", f"/items/{quote(str(plain_value(key, 'id')), safe='')}", missing={"removed": 0}
            )
            gone += reply["removed"]
        return gone

    def _info(self) -> dict[str, Any]:
        return self._asked("GET", "/api/info")

    def _pages(self, where: Where | None, vectors: bool) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            ask = {**_filter(where), "limit": LISTED, "offset": offset, "vectors": str(vectors).lower()}
            reply = self._asked("GET", "/items", ask)
            yield reply
            offset += LISTED
            if offset >= reply["count"]:
                return

    def _add_picture(self, item: Any, place: int, columns: Mapping[str, list[Any]]) -> dict[str, Any]:
        values = {name: column[place] for name, column in columns.items()}
        description = {"id": values.pop("id"), "label": values.pop("label", None), "metadata": values}
        kind, body = form_body({"item": json.dumps(description)}, {"file": file_content(item)})
        return self._asked("POST", "/items", body=body, kind=kind)

    def _each(self, ask: Callable[[Any], T], things: Sequence[Any]) -> list[T]:
        """Send several requests concurrently, so that the server can process them as a batch."""
        if len(things) < 2:
            return [ask(thing) for thing in things]
        with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(things))) as pool:
            return list(pool.map(ask, things))

    def _asked(
        self,
        method: str,
        path: str,
        ask: Mapping[str, Any] | None = None,
        *,
        json_body: Any = None,
        body: bytes | None = None,
        kind: str = "application/octet-stream",
        missing: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the reply, or `missing` if the server answers that there is no such item."""
        headers = dict(self._headers)
        if json_body is not None:
            body, kind = json.dumps(json_body).encode(), "application/json"
        if body is not None:
            headers["Content-Type"] = kind
        target = f"{path}?{urlencode(ask)}" if ask else path
        until = time.monotonic() + self._timeout
        while True:
            status, wait, content = self._sent(method, target, body, headers)
            if status not in LATER or time.monotonic() + wait > until:
                break
            time.sleep(wait)
        try:
            reply = json.loads(content)
        except ValueError:
            reply = None
        if status == 404 and missing is not None:
            return missing
        if status >= 400 or not isinstance(reply, dict):
            message = reply.get("error") if isinstance(reply, dict) else None
            message = message or f"status {status}, and nothing that vicinal's server says; is it one?"
            raise (InputError if 400 <= status < 500 else DataError)(f"{self.url}: {message}")
        return reply

    def _sent(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, float, bytes]:
        """Send a request once; return status, seconds to wait before a retry, and content."""
        connection = self._connections.take()
        fresh = connection.sock is None
        try:
            connection.request(method, target, body, dict(headers))
            reply = connection.getresponse()
            content = reply.read()
            wait = reply.headers.get("Retry-After", "1")
            self._connections.release(connection)
            return reply.status, float(wait) if wait.isdecimal() else 1.0, content
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            # The server may have closed an idle connection meanwhile. In that case nothing was done, so retry.
            dropped = isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError)
            if dropped and not fresh:
                return self._sent(method, target, body, headers)
            raise DataError(
                f"{self.url} does not answer: {error or type(error).__name__}.",
                hint="Is the server running? Start it with: vicinal serve FOLDER",
            ) from None


def _filter(where: Where | None) -> dict[str, str]:
    return {} if where is None else {"where": where if isinstance(where, str) else as_text(as_condition(where))}


def _hits(reply: Mapping[str, Any]) -> Hits:
    names = ("id", "path", "label", "similarity", "metadata", "same", "probability")
    hits = tuple(Hit(**{name: hit[name] for name in names}) for hit in reply["hits"])
    return Hits(
        hits,
        reply["recall"],
        reply["measured"],
        reply.get("improved", ""),
        reply.get("expanded", 0),
        reply.get("reranked", False),
    )


def _item(reply: Mapping[str, Any]) -> Item:
    return Item(**{name: reply[name] for name in ("id", "path", "label", "metadata", "source", "stamp", "hash")})


def _joined(replies: Sequence[Mapping[str, Any]]) -> Changes:
    counts = {name: sum(reply[name] for reply in replies) for name in ("added", "updated", "removed", "unchanged")}
    return Changes(**counts, skipped=tuple((key, why) for reply in replies for key, why in reply["skipped"]))
