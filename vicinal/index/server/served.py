"""`Served`: the current generation of an index, and the objects that all routes share."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, final
from urllib.parse import quote

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from fastapi import Depends, Request
from jaxtyping import Float32
from numpy.typing import NDArray
from PIL import Image

from vicinal._util.machine import cores
from vicinal._util.reading import printable
from vicinal.embedder.queries import embed_queries
from vicinal.errors import DataError, InputError, VicinalError
from vicinal.index.filters import And, Compare, Condition, Not, Or, Value, as_condition
from vicinal.index.hits import Hit
from vicinal.index.index import Index
from vicinal.index.item import Id, Item
from vicinal.index.server.models import Refusal
from vicinal.index.server.settings import ServerSettings

__all__ = ["CachedResults", "SealedIds", "Served", "ServedIndex", "SharedResults", "Snapshot"]


# Encrypted ids. The ids of files are their paths, which must not be shown if paths are private.
#
# A sealed id is the id, encrypted by AES-SIV (RFC 5297) with a key of the server. The same id gives the same text, so
# URLs can be shared; without the key, no one can read, guess or forge it. There is no lookup table, so a million items
# cost nothing.

STEP = 32  # bytes; lengths are padded to multiples, because exact lengths would reveal something
FIRST = "i"  # first character of every sealed id


class SealedIds:
    """Encrypts and decrypts ids.

    Args:
        secret: Secret from which the key is derived; another secret gives other sealed ids. Empty for a random one.

    Example:
        >>> ids = SealedIds("a token")
        >>> ids.opened(ids.sealed("/photos/a.jpg"))
        '/photos/a.jpg'
        >>> ids.opened("invented") is None
        True
    """

    def __init__(self, secret: str = "") -> None:
        source = secret.encode() or secrets.token_bytes(32)
        self._cipher = AESSIV(hashlib.blake2b(source, digest_size=64, person=b"vicinal ids").digest())

    def sealed(self, text: str) -> str:
        """Return the sealed form: letters, digits, - and _, with a letter first.

        Text that starts with - is a formula in a spreadsheet and an option in a terminal.
        """
        plain = text.encode()
        plain += b"\0" * (STEP - len(plain) % STEP)  # ids contain no NUL characters
        return FIRST + base64.urlsafe_b64encode(self._cipher.encrypt(plain, None)).decode().rstrip("=")

    def opened(self, shown: str) -> str | None:
        """Return the id, or None if this server did not seal it."""
        if not shown.startswith(FIRST):
            return None
        coded = shown.removeprefix(FIRST)
        try:
            content = base64.urlsafe_b64decode(coded.encode("ascii") + b"=" * (-len(coded) % 4))
            plain = self._cipher.decrypt(content, None)
        except (ValueError, binascii.Error, InvalidTag):
            return None
        return plain.rstrip(b"\0").decode()


# Cache of slow results: computed once per state of the index, immediately or in the background.

T = TypeVar("T")

MOST_WAITING = 8  # computations that run or wait; a client that requests any more has to retry


@final
class CachedResults:
    """Caches one result per name, for the latest requested state of the index."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[str, Any]] = {}
        self._failures: dict[str, tuple[str, Exception]] = {}
        self._running: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def now(self, name: str, generation: str, compute: Callable[[], T]) -> T:
        """Return a result; if it is not cached, compute it in this thread.

        Args:
            name: Name of the result.
            generation: State of the index that it belongs to.
            compute: Function that computes it.
        """
        with self._lock:
            cached = self._results.get(name)
        if cached is None or cached[0] != generation:
            cached = generation, compute()
            with self._lock:
                self._results[name] = cached
        return cast(T, cached[1])

    def later(self, name: str, generation: str, compute: Callable[[], T]) -> T | None:
        """Return a result, or None while it is computed in the background; an error there is raised here, once."""
        with self._lock:
            cached = self._results.get(name)
            if cached is not None and cached[0] == generation:
                return cast(T, cached[1])
            failed = self._failures.pop(name, None)
            if failed is not None and failed[0] == generation:
                raise failed[1]
            if (name, generation) not in self._running and len(self._running) < MOST_WAITING:
                self._running.add((name, generation))
                # A daemon thread, so that stopping the server does not wait for it.
                threading.Thread(target=self._run, args=(name, generation, compute), name=name, daemon=True).start()
        return None

    def _run(self, name: str, generation: str, compute: Callable[[], Any]) -> None:
        try:
            with self._one_at_a_time:
                result = compute()
            with self._lock:
                self._results[name] = generation, result
        except Exception as error:  # raised for the next request
            with self._lock:
                self._failures[name] = generation, error
        finally:
            with self._lock:
                self._running.discard((name, generation))


async def _results_of_app(request: Request) -> CachedResults:
    return request.app.state.results


SharedResults = Annotated[CachedResults, Depends(_results_of_app)]  # for routes


MOST_LABELS = 1000  # largest number of labels that are listed
LOOK_EVERY = 0.5  # seconds between checks for a new generation
BLANK = Image.new("RGB", (32, 32))
READERS = 4  # threads for reading rather than computing


@final
@dataclass(frozen=True)
class Snapshot:
    """All items of a generation.

    Attributes:
        generation: State of the index.
        embedder: Hash of the embedder that made the embeddings; empty if they come from elsewhere.
        items: Items, ordered by id.
        embeddings: One row per item.
    """

    generation: str
    embedder: str
    items: list[Item]
    embeddings: Float32[np.ndarray, "n d"]

    @property
    def ids(self) -> list[Id]:
        """Ids of the items."""
        return [item.id for item in self.items]

    @property
    def labels(self) -> list[Value | None]:
        """Labels of the items."""
        return [item.label for item in self.items]


@final
@dataclass(frozen=True)
class Overview:
    """Summary of a generation.

    Attributes:
        labels: Distinct labels, sorted, at most a thousand.
        root: Folder that contains all files, with links resolved; None if there are no files.
    """

    labels: list[Value]
    root: str | None


@final
class Served:
    """An index that serves many clients, always from one generation, and switches when there is a new one.

    Args:
        index: Index to serve. Changes go through it; searches go through a second handle that stays on its generation
            until the next one is ready to answer.
        settings: Settings of the server.
    """

    def __init__(self, index: Index, settings: ServerSettings) -> None:
        _check_private(index, settings)
        self.settings = settings
        self.writer = index
        self.index = Index.open(index.path, follow=False, allow_code=index.trust.sources)
        self.name = index.path.name
        self.searching = ThreadPoolExecutor(1, "search")  # a search uses all cores itself
        self.reranking = ThreadPoolExecutor(1, "rerank")  # the first re-ranking of an index takes long
        self.embedding = ThreadPoolExecutor(cores(), "embed")  # one core each
        self.reading = ThreadPoolExecutor(READERS, "read")
        self.ready = False
        self._ids = SealedIds(settings.token)
        self._writing = asyncio.Lock()
        self._swapping = threading.Lock()
        self._kept: dict[str, tuple[str, Any]] = {}
        self._keeping = threading.Lock()
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="generations", daemon=True)

    def begin(self) -> None:
        """Prepare to answer requests, and start to watch for new generations."""
        _warm(self.index)
        self.ready = True
        self._watcher.start()

    def end(self) -> None:
        """Stop all threads and close all files."""
        self._done.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for pool in (self.searching, self.reranking, self.embedding, self.reading):
            pool.shutdown(cancel_futures=True)
        self.index.close()

    async def read(self, function: Callable[[Index], T]) -> T:
        """Call a function with the index, in another thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.reading, partial(self.ask, function))

    async def change(self, function: Callable[[Index], T]) -> T:
        """Change the index, in another thread and one change at a time.

        Raises:
            Refusal: If the server is read-only.
        """
        self.check_writable()
        async with self._writing:
            return await asyncio.get_running_loop().run_in_executor(self.reading, function, self.writer)

    def check_writable(self) -> None:
        """Refuse changes unless the server is writable."""
        if not self.settings.writable:
            raise Refusal(403, "This server is read-only; start it with --writable and --token to change items.")

    def ask(self, function: Callable[[Index], T]) -> T:
        """Call a function with the index; if its generation was removed meanwhile, retry with the next one."""
        index = self.index
        try:
            return function(index)
        except (OSError, DataError):
            if not self.move_on(index):
                raise
            return function(self.index)

    def move_on(self, since: Index | None = None) -> bool:
        """Switch to the latest generation once it is ready to answer; return whether the generation changed."""
        before = since or self.index
        with self._swapping:
            latest = Index.open(self.writer.path, follow=False, allow_code=self.writer.trust.sources)
            if _number(latest) == _number(self.index):
                latest.close()
                return self.index is not before
            _warm(latest)
            self.index = latest  # the previous one is freed when its last user is done
            return True

    def snapshot(self) -> Snapshot:
        """Return all items with their embeddings, read once per state of the index."""

        def read(index: Index) -> Snapshot:
            generation = index.generation
            items, rows = index.get()
            return Snapshot(generation, index.embedder_hash, items, rows)

        return self._once("snapshot", read)

    def overview(self) -> Overview:
        """Return a summary of the index, computed once per state."""
        return self._once("overview", lambda index: _overview(index, self.settings.root))

    def _once(self, name: str, read: Callable[[Index], T]) -> T:
        with self._keeping:
            generation = self.ask(lambda index: index.generation)
            cached = self._kept.get(name)
            if cached is None or cached[0] != generation:
                cached = self._kept[name] = generation, self.ask(read)
            return cached[1]

    def condition(self, where: str | None) -> Condition | None:
        """Parse a filter, and refuse one that names private columns."""
        if where is None or not where.strip():
            return None
        condition = as_condition(where)
        private = sorted(_columns(condition) & self.settings.hidden)
        if private:
            raise Refusal(403, f"{', '.join(private)} is private on this server.")
        return condition

    def shown_id(self, key: Id) -> Id:
        """Return an id as it is shown to clients."""
        return self._ids.sealed(key) if self.settings.sealed_ids and isinstance(key, str) else key

    def asked_id(self, shown: Id) -> Id:
        """Return the id that a client means; an impossible one is refused."""
        text = str(shown)
        if self.ask(lambda index: index.columns["id"]) == "integer":
            digits = text.removeprefix("-").lstrip("0") or "0"
            if text.removeprefix("-").isdecimal() and text.isascii() and len(digits) < 20 and int(digits) < 2**63:
                return -int(digits) if text.startswith("-") else int(digits)
            raise Refusal(404, "There is no such item: ids are whole numbers here.")
        if not self.settings.sealed_ids:
            return text
        opened = self._ids.opened(text)
        if opened is None:
            raise Refusal(404, "There is no such item.")
        return opened

    def item(self, shown: Id) -> Item:
        """Return the item with an id as it is shown to clients."""
        key = self.asked_id(shown)
        items = self.ask(lambda index: index.get(Compare("id", "=", key), vectors=False)[0])
        if not items:
            raise Refusal(404, "There is no such item.")
        return items[0]

    def shown(self, item: Item | Hit) -> dict[str, Any]:
        """Return an item or hit as it is shown to clients: without private values, with the URL of its picture."""
        fields: dict[str, Any] = item.as_dict() if isinstance(item, Hit) else asdict(item)
        fields["id"] = self.shown_id(item.id)
        fields["image"] = None if item.path is None else f"/items/{quote(str(fields['id']), safe='')}/image"
        fields["metadata"] = {name: value for name, value in item.metadata.items() if name not in self.settings.private}
        for name in fields.keys() & (self.settings.hidden - {"id"}):
            fields[name] = None
        return fields

    def message(self, error: VicinalError) -> str:
        """Return the message of an error, without the folders of this machine."""
        text = printable(error).strip().splitlines()[0]
        return text.replace(f"{self.writer.path}{os.sep}", "").replace(str(self.writer.path), self.name)

    def _watch(self) -> None:
        while not self._done.wait(LOOK_EVERY):
            with suppress(VicinalError, OSError):  # if the new one cannot be read yet, keep serving the current one
                if _number(self.writer) != _number(self.index):
                    self.move_on()


async def _of_app(request: Request) -> Served:
    return request.app.state.served


ServedIndex = Annotated[Served, Depends(_of_app)]  # for routes


def _check_private(index: Index, settings: ServerSettings) -> None:
    """Check that private columns exist: a misspelt name would leave its column visible."""
    unknown = [name for name in settings.private if name not in index.columns]
    if unknown:
        raise InputError(
            f"{', '.join(unknown)} cannot be kept private: the index has no such column. It has "
            f"{', '.join(index.columns)}."
        )


def _number(index: Index) -> str:
    """Return the number of the generation only; changes within a generation are visible without reopening it."""
    return index.generation.partition(".")[0]


def _warm(index: Index) -> None:
    """Prepare everything that the first search would otherwise wait for."""
    if len(index):
        probe: NDArray[np.float32] = np.zeros((1, index.dim), np.float32)
        probe[0, 0] = 1.0
        index.nearest(probe, 1)
    if index.can_embed:  # building an engine for the network takes seconds; it is cached by the network's content
        with suppress(VicinalError):  # an embedding error is reported to the client that causes it
            embed_queries(index.embedder(), [BLANK])


def _overview(index: Index, root: Path | None) -> Overview:
    labels, paths = index.store.labels(MOST_LABELS), index.store.path_range()
    if root is not None:
        return Overview(labels, os.path.realpath(root))
    if paths is None:
        return Overview(labels, None)
    # A prefix that the first and the last path share is shared by all paths between them.
    return Overview(labels, os.path.realpath(os.path.commonpath(list(map(os.path.dirname, paths)))))


def _columns(condition: Condition) -> set[str]:
    if isinstance(condition, And | Or):
        return {name for part in condition.parts for name in _columns(part)}
    return _columns(condition.part) if isinstance(condition, Not) else {condition.column}
