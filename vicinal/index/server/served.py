"""Served: the index of the present generation, and what all routes share."""

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

__all__ = ["KeptResults", "SealedIds", "Served", "ServedIndex", "SharedResults", "Snapshot"]


# Ids that do not tell what they are: those of files are paths, which are nobody's business where these are private.
#
# A sealed id is the id, encrypted by AES-SIV (RFC 5297) with a key of the server: the same id gives the same text (so
# that addresses can be shared), nobody without the key can read or guess it, and none but the server can make one.
# Nothing is looked up, so that a million items cost nothing.

STEP = 32  # bytes, of which lengths are multiples, as they would tell something
FIRST = "i"  # character of every sealed id


class SealedIds:
    """Seals and opens ids.

    Args:
        secret: Secret from which the key is derived; with another one all ids look different. Empty for a random one.

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
        """Return the form that is shown: letters, digits, - and _, with a letter first.

        What begins with - is a formula in a table, and an option in a terminal.
        """
        plain = text.encode()
        plain += b"\0" * (STEP - len(plain) % STEP)  # no id holds a zero character
        return FIRST + base64.urlsafe_b64encode(self._cipher.encrypt(plain, None)).decode().rstrip("=")

    def opened(self, shown: str) -> str | None:
        """Return the id, or None for what this server has not sealed."""
        if not shown.startswith(FIRST):
            return None
        coded = shown.removeprefix(FIRST)
        try:
            content = base64.urlsafe_b64decode(coded.encode("ascii") + b"=" * (-len(coded) % 4))
            plain = self._cipher.decrypt(content, None)
        except (ValueError, binascii.Error, InvalidTag):
            return None
        return plain.rstrip(b"\0").decode()


# Results that take a while: computed once for each state of the index, at once or in the background.

T = TypeVar("T")

MOST_WAITING = 8  # computations; who asks for more is told to wait, too


@final
class KeptResults:
    """Keeps one result under each name, for the latest state of the index that it was asked for."""

    def __init__(self) -> None:
        self._results: dict[str, tuple[str, Any]] = {}
        self._failures: dict[str, tuple[str, Exception]] = {}
        self._running: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()

    def now(self, name: str, generation: str, compute: Callable[[], T]) -> T:
        """The result, computed in this thread if it is not there.

        Args:
            name: Of the result.
            generation: The state of the index that it is of.
            compute: How to get it.
        """
        with self._lock:
            kept = self._results.get(name)
        if kept is None or kept[0] != generation:
            kept = generation, compute()
            with self._lock:
                self._results[name] = kept
        return cast(T, kept[1])

    def later(self, name: str, generation: str, compute: Callable[[], T]) -> T | None:
        """The result, or None while it is computed in the background; what went wrong there is raised here, once."""
        with self._lock:
            kept = self._results.get(name)
            if kept is not None and kept[0] == generation:
                return cast(T, kept[1])
            failed = self._failures.pop(name, None)
            if failed is not None and failed[0] == generation:
                raise failed[1]
            if (name, generation) not in self._running and len(self._running) < MOST_WAITING:
                self._running.add((name, generation))
                # A daemon: whoever stops the server does not wait for it.
                threading.Thread(target=self._run, args=(name, generation, compute), name=name, daemon=True).start()
        return None

    def _run(self, name: str, generation: str, compute: Callable[[], Any]) -> None:
        try:
            with self._one_at_a_time:
                result = compute()
            with self._lock:
                self._results[name] = generation, result
        except Exception as error:  # told to whoever asks next
            with self._lock:
                self._failures[name] = generation, error
        finally:
            with self._lock:
                self._running.discard((name, generation))


async def _results_of_app(request: Request) -> KeptResults:
    return request.app.state.results


SharedResults = Annotated[KeptResults, Depends(_results_of_app)]  # for routes


MOST_LABELS = 1000  # that are listed
LOOK_EVERY = 0.5  # seconds, for a new generation
BLANK = Image.new("RGB", (32, 32))
READERS = 4  # threads for what is not computing


@final
@dataclass(frozen=True)
class Snapshot:
    """All items of a generation.

    Attributes:
        generation: Of which.
        embedder: That made the embeddings; empty if they come from elsewhere.
        items: In the order of their ids.
        embeddings: One row each.
    """

    generation: str
    embedder: str
    items: list[Item]
    embeddings: Float32[np.ndarray, "n d"]

    @property
    def ids(self) -> list[Id]:
        """Of the items."""
        return [item.id for item in self.items]

    @property
    def labels(self) -> list[Value | None]:
        """Of the items."""
        return [item.label for item in self.items]


@final
@dataclass(frozen=True)
class Overview:
    """What is known of a generation as a whole.

    Attributes:
        labels: In order, at most a thousand.
        root: The folder that all files lie in, links resolved; None if there are none.
    """

    labels: list[Value]
    root: str | None


@final
class Served:
    """An index that is asked by many at once, always of one generation, and moves on when there is another.

    Args:
        index: What is served; changes go through it, searches through a second handle that stays where it is until
            the next generation is ready to answer.
        settings: What is allowed.
    """

    def __init__(self, index: Index, settings: ServerSettings) -> None:
        _check_private(index, settings)
        self.settings = settings
        self.writer = index
        self.index = Index.open(index.path, follow=False, allow_code=index.trust.sources)
        self.name = index.path.name
        self.searching = ThreadPoolExecutor(1, "search")  # which uses all cores itself
        self.reranking = ThreadPoolExecutor(1, "rerank")  # whose first search of an index takes long
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
        """Get ready to answer, and look out for new generations from now on."""
        _warm(self.index)
        self.ready = True
        self._watcher.start()

    def end(self) -> None:
        """Let go of threads and files."""
        self._done.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for pool in (self.searching, self.reranking, self.embedding, self.reading):
            pool.shutdown(cancel_futures=True)
        self.index.close()

    async def read(self, function: Callable[[Index], T]) -> T:
        """Ask the index something, in another thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.reading, partial(self.ask, function))

    async def change(self, function: Callable[[Index], T]) -> T:
        """Change the index, in another thread and one change at a time.

        Raises:
            Refusal: If the server only answers.
        """
        self.check_writable()
        async with self._writing:
            return await asyncio.get_running_loop().run_in_executor(self.reading, function, self.writer)

    def check_writable(self) -> None:
        """Refuse changes, unless they are allowed."""
        if not self.settings.writable:
            raise Refusal(403, "This server only answers; start it with --writable and --token to change its items.")

    def ask(self, function: Callable[[Index], T]) -> T:
        """Ask the index something; if its generation was removed meanwhile, the next one."""
        index = self.index
        try:
            return function(index)
        except (OSError, DataError):
            if not self.move_on(index):
                raise
            return function(self.index)

    def move_on(self, since: Index | None = None) -> bool:
        """Serve the latest generation, once it is ready to answer; say whether it is another than before."""
        before = since or self.index
        with self._swapping:
            latest = Index.open(self.writer.path, follow=False, allow_code=self.writer.trust.sources)
            if _number(latest) == _number(self.index):
                latest.close()
                return self.index is not before
            _warm(latest)
            self.index = latest  # the former one is let go by the last who uses it
            return True

    def snapshot(self) -> Snapshot:
        """All items with their embeddings, read once for each state of the index."""

        def read(index: Index) -> Snapshot:
            generation = index.generation
            items, rows = index.get()
            return Snapshot(generation, index.embedder_hash, items, rows)

        return self._once("snapshot", read)

    def overview(self) -> Overview:
        """What is known of the index as a whole, read once for each state of it."""
        return self._once("overview", lambda index: _overview(index, self.settings.root))

    def _once(self, name: str, read: Callable[[Index], T]) -> T:
        with self._keeping:
            generation = self.ask(lambda index: index.generation)
            kept = self._kept.get(name)
            if kept is None or kept[0] != generation:
                kept = self._kept[name] = generation, self.ask(read)
            return kept[1]

    def condition(self, where: str | None) -> Condition | None:
        """A filter that asks for nothing private."""
        if where is None or not where.strip():
            return None
        condition = as_condition(where)
        private = sorted(_columns(condition) & self.settings.hidden)
        if private:
            raise Refusal(403, f"{', '.join(private)} cannot be asked for here.")
        return condition

    def shown_id(self, key: Id) -> Id:
        """An id as it is shown."""
        return self._ids.sealed(key) if self.settings.sealed_ids and isinstance(key, str) else key

    def asked_id(self, shown: Id) -> Id:
        """The id that is meant; one that there cannot be is refused."""
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
        """The item of an id as it is shown."""
        key = self.asked_id(shown)
        items = self.ask(lambda index: index.get(Compare("id", "=", key), vectors=False)[0])
        if not items:
            raise Refusal(404, "There is no such item.")
        return items[0]

    def shown(self, item: Item | Hit) -> dict[str, Any]:
        """An item or hit as it is shown: without what is private, with the address of its picture."""
        fields: dict[str, Any] = item.as_dict() if isinstance(item, Hit) else asdict(item)
        fields["id"] = self.shown_id(item.id)
        fields["image"] = None if item.path is None else f"/items/{quote(str(fields['id']), safe='')}/image"
        fields["metadata"] = {name: value for name, value in item.metadata.items() if name not in self.settings.private}
        for name in fields.keys() & (self.settings.hidden - {"id"}):
            fields[name] = None
        return fields

    def told(self, error: VicinalError) -> str:
        """What an error says, without the folders of this machine."""
        text = printable(error).strip().splitlines()[0]
        return text.replace(f"{self.writer.path}{os.sep}", "").replace(str(self.writer.path), self.name)

    def _watch(self) -> None:
        while not self._done.wait(LOOK_EVERY):
            with suppress(VicinalError, OSError):  # an index that cannot be read now: the former goes on serving
                if _number(self.writer) != _number(self.index):
                    self.move_on()


async def _of_app(request: Request) -> Served:
    return request.app.state.served


ServedIndex = Annotated[Served, Depends(_of_app)]  # for routes


def _check_private(index: Index, settings: ServerSettings) -> None:
    """Find that what is to be hidden is there: under a name that is spelt wrongly it would be shown."""
    unknown = [name for name in settings.private if name not in index.columns]
    if unknown:
        raise InputError(
            f"{', '.join(unknown)} cannot be kept private: the index has no such column. It has "
            f"{', '.join(index.columns)}."
        )


def _number(index: Index) -> str:
    """Of the generation alone: what is added to one and removed from it is seen without opening it again."""
    return index.generation.partition(".")[0]


def _warm(index: Index) -> None:
    """Have what the first search would wait for."""
    if len(index):
        probe: NDArray[np.float32] = np.zeros((1, index.dim), np.float32)
        probe[0, 0] = 1.0
        index.nearest(probe, 1)
    if index.can_embed:  # making an engine for the network takes seconds; it is kept by the network's content
        with suppress(VicinalError):  # what cannot be embedded is told to those who ask
            embed_queries(index.embedder(), [BLANK])


def _overview(index: Index, root: Path | None) -> Overview:
    labels, paths = index.store.labels(MOST_LABELS), index.store.path_range()
    if root is not None:
        return Overview(labels, os.path.realpath(root))
    if paths is None:
        return Overview(labels, None)
    # What the first and the last have in common, all between them have, too.
    return Overview(labels, os.path.realpath(os.path.commonpath(list(map(os.path.dirname, paths)))))


def _columns(condition: Condition) -> set[str]:
    if isinstance(condition, And | Or):
        return {name for part in condition.parts for name in _columns(part)}
    return _columns(condition.part) if isinstance(condition, Not) else {condition.column}
