"""An index behind HTTP, with the methods of an index that is at hand.

Written on `http.client` of the standard library: a client needs nothing but vicinal, a few connections are kept open
for whichever thread asks next, and what is sent and received is a few lines of JSON.
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


# Connections to a server that are kept open for whichever thread asks next: a few, however many ask.


@final
class KeptConnections:
    """Connections to one server.

    Args:
        parts: Of its address.
        timeout: Seconds that an answer may take.
        most: That are kept while nobody uses them.
    """

    def __init__(self, parts: SplitResult, timeout: float, most: int) -> None:
        self._parts, self._timeout, self._most = parts, timeout, most
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def take(self) -> http.client.HTTPConnection:
        """One that nobody uses, or a new one, which is not open yet."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Leave one that has been answered to whoever asks next; close it if there are enough."""
        with self._lock:
            if len(self._idle) < self._most:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close those that nobody uses; the others when they are given back."""
        with self._lock:
            idle, self._idle, self._most = self._idle, [], 0
        for connection in idle:
            connection.close()


# Pictures as they are sent to a server: the bytes of their files, in a body of their own or in a form.


def pictures_of(query: Any) -> tuple[list[Any], bool]:
    """What is to be sent, and whether it is one picture alone."""
    if isinstance(query, str | os.PathLike) and Path(query).is_dir():
        files = list(images_below(Path(query)))
        if not files:
            raise InputError("That folder has no images to search for.")
        return files, False
    if isinstance(query, str | os.PathLike | bytes | Image.Image):
        return [query], True
    if isinstance(query, np.ndarray) and (query.ndim == 2 or (query.ndim == 3 and query.shape[2] in (1, 3))):
        return [query], True
    return list(query), False


def file_content(picture: Any) -> bytes:
    """The bytes of a picture's file."""
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
    """A multipart body, and what it is called."""
    edge = secrets.token_hex(16)
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    parts += [(f'name="{name}"; filename="picture"', content) for name, content in files.items()]
    written = [
        f"--{edge}\r\nContent-Disposition: form-data; {name}\r\n\r\n".encode() + content + b"\r\n"
        for name, content in parts
    ]
    return f"multipart/form-data; boundary={edge}", b"".join([*written, f"--{edge}--\r\n".encode()])


T = TypeVar("T")

LISTED = 1000  # items of one reply
SENT = 500  # vectors of one request
SIDE_BY_SIDE = 8  # requests of one call, and connections that are kept
ATTEMPTS = 5
LATER = (429, 503)  # a server that asks to be asked again


def connect(url: str, *, token: str = "", timeout: float = 60.0) -> RemoteIndex:
    """Connect to a server that `vicinal serve` started.

    Args:
        url: Of the server, such as "http://127.0.0.1:8765".
        token: The server's, where it has one.
        timeout: Seconds that an answer may take.

    Returns:
        What has the methods of `Index` that can be asked from afar: search, nearest, get, count, calibration, add,
        update, remove; and `same` of its embedder.
    """
    return RemoteIndex(url, token=token, timeout=timeout)


@final
class RemoteIndex:
    """An index behind HTTP; several threads may ask it. Answers are those of the library, to the last digit.

    Args:
        url: Of the server.
        token: The server's, where it has one.
        timeout: Seconds that an answer may take.
    """

    def __init__(self, url: str, *, token: str = "", timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise InputError(f"The address of a server is like http://127.0.0.1:8765; got {url!r}.")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._timeout = timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connections = KeptConnections(parts, timeout, SIDE_BY_SIDE)
        try:
            self._info()
        except BaseException:
            self.close()
            raise

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return self._info()["dim"]

    @property
    def distance(self) -> str:
        """How vectors are compared: "cosine" or "euclidean"."""
        return self._info()["distance"]

    @property
    def embedder_hash(self) -> str:
        """Of the embedder that made the vectors; empty if they come from elsewhere."""
        return self._info()["embedder"]

    @property
    def generation(self) -> str:
        """A name of what is in it now: another after every change."""
        return self._info()["generation"]

    @property
    def calibration(self) -> Calibration | None:
        """From which similarity on a hit counts as the same; None if the embedder was not calibrated."""
        values = self._asked("GET", "/api/calibration")["calibration"]
        return None if values is None else Calibration.of(values)

    @property
    def columns(self) -> dict[str, str | None]:
        """What can be asked for in a filter, and what kind of values each column holds."""
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
        """Close the connections; those that are in use, when they have been answered."""
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
                A folder or a list of these asks several things at once. Files are sent as they are, images as PNG.
            k: How many.
            where: A filter.
            vector: An embedding, or several, in place of a query.
            item: The id of an item in place of a query; it does not find itself.
            fast: See `Index.search`.
            expand: See `Index.search`.
            rerank: See `Index.search`; a server re-ranks as `Reranking()` says, and with no other settings. Where it
                takes longer than the server allows, it is asked again while it prepares.

        Returns:
            `Hits` for one query, a list of them for several.
        """
        if sum(given is not None for given in (query, vector, item)) != 1:
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
            found = self._each(
                lambda row: self._asked("POST", "/search", ask, json_body={"vector": row}), rows.tolist()
            )
            return _hits(found[0]) if array.ndim == 1 else [_hits(reply) for reply in found]
        pictures, single = pictures_of(query)
        found = self._each(lambda picture: self._asked("POST", "/search", ask, body=file_content(picture)), pictures)
        return _hits(found[0]) if single else [_hits(reply) for reply in found]

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
        """The items that pass a filter in the order of their ids, and their vectors unless these are not wanted."""
        for _ in range(ATTEMPTS):
            replies = list(self._pages(where, vectors))
            if len({reply["generation"] for reply in replies}) == 1:
                break
        else:
            raise DataError(f"{self.url} changes faster than it can be read.", hint="Try again when it is at rest.")
        listed = [item for reply in replies for item in reply["items"]]
        rows = [item["vector"] for item in listed] if vectors else []
        return [_item(item) for item in listed], np.array(rows, dtype=np.float32).reshape(len(rows), self.dim)

    def count(self, where: Where | None = None) -> int:
        """How many items pass a filter."""
        return self._asked("GET", "/items", {**_filter(where), "limit": 0})["count"]

    def same(self, one: Any, other: Any) -> Sameness:
        """Say whether two pictures are of one class, as the embedder's calibration has it; see `Embedder.same`.

        Args:
            one: A path, the bytes of an image file, an image or a uint8 array.
            other: Another.
        """
        kind, body = form_body({}, {"a": file_content(one), "b": file_content(other)})
        reply = self._asked("POST", "/same", body=body, kind=kind)
        if reply["same"] is None:
            raise InputError(f"{self.url}: the index's embedder has no threshold yet; calibrate it there.")
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
        """Add pictures or vectors; the server must be writable, and the token right.

        Args:
            items: Paths, images or uint8 arrays, which the server embeds; it keeps no pictures.
            vectors: Embeddings in place of items, one row each.
            ids: One each; by default the absolute paths of files.
            labels: One each, or None.
            metadata: Further values by column, one each.
            embedder: For vectors, if the index has an embedder: the hash of what made them.
        """
        if (items is None) == (vectors is None):
            raise InputError("Give items or vectors.")
        given: list[Any] = pictures_of(items)[0] if vectors is None else checked_rows(vectors, "vectors").tolist()
        if ids is None:
            if vectors is not None or not all(isinstance(item, str | os.PathLike) for item in given):
                raise InputError("What is not a file needs ids, by which it can be found and removed again.")
            ids = [os.path.abspath(item) for item in given]
        columns: dict[str, Sequence[Any] | NDArray[Any]] = {"id": ids, **(metadata or {})} | (
            {} if labels is None else {"label": labels}
        )
        for name, column in columns.items():
            if len(column) != len(given):
                raise InputError(f"{name} must have one entry per item: {len(given)} items, {len(column)} entries.")
        plain = {name: [plain_value(value, name) for value in column] for name, column in columns.items()}
        if vectors is None:
            replies = [self._add_picture(item, place, plain) for place, item in enumerate(given)]
        else:
            replies = []
            for start in range(0, len(given), SENT):
                part = {name: column[start : start + SENT] for name, column in plain.items()}
                body = {
                    "vectors": given[start : start + SENT],
                    "ids": part.pop("id"),
                    "labels": part.pop("label", None),
                }
                replies.append(
                    self._asked("POST", "/items", json_body={**body, "metadata": part or None, "embedder": embedder})
                )
        return _joined(replies)

    def update(self, where: Where, values: Mapping[str, Any]) -> int:
        """Give the items that pass a filter other values by column, None to take one away; say how many there were."""
        plain = {name: plain_value(value, name) for name, value in values.items()}
        return self._asked("PATCH", "/items", json_body={**_filter(where), "values": plain})["updated"]

    def remove(self, where: Where | None = None, *, ids: Iterable[Id] | None = None) -> int:
        """Remove the items that pass a filter, or those of some ids, one after the other; say how many there were."""
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
        told = {"id": values.pop("id"), "label": values.pop("label", None), "metadata": values}
        kind, body = form_body({"item": json.dumps(told)}, {"file": file_content(item)})
        return self._asked("POST", "/items", body=body, kind=kind)

    def _each(self, ask: Callable[[Any], T], things: Sequence[Any]) -> list[T]:
        """Ask for several things side by side: the server works on them together."""
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
        """The reply to a request; `missing` in place of one that says that there is no such item."""
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
            told = reply.get("error") if isinstance(reply, dict) else None
            told = told or f"status {status}, and nothing that vicinal's server says; is it one?"
            raise (InputError if 400 <= status < 500 else DataError)(f"{self.url}: {told}")
        return reply

    def _sent(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, float, bytes]:
        """Status, seconds to wait before it is asked again, and content of one reply."""
        connection = self._connections.take()
        fresh = connection.sock is None
        try:
            connection.request(method, target, body, dict(headers))
            reply = connection.getresponse()
            content = reply.read()
            wait = reply.headers.get("Retry-After", "1")
            self._connections.give_back(connection)
            return reply.status, float(wait) if wait.isdecimal() else 1.0, content
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            # A connection that was kept may have been closed by the server meanwhile: then nothing was done.
            dropped = isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError)
            if dropped and not fresh:
                return self._sent(method, target, body, headers)
            raise DataError(
                f"{self.url} cannot be asked: {error or type(error).__name__}.",
                hint="Is the server there? Start it with: vicinal serve FOLDER.",
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
