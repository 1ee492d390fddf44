"""Search for many users: pictures are embedded in parallel, and vectors are searched in batches."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, final

import numpy as np
from fastapi import Depends, Request
from jaxtyping import Float32

from vicinal.embedder import Embedder
from vicinal.embedder.queries import QueryEmbedder
from vicinal.errors import DataError, InputError
from vicinal.index.filters import Compare, Condition
from vicinal.index.hits import Hits
from vicinal.index.index import Index
from vicinal.index.item import Id, Item
from vicinal.index.server.metrics import Counts
from vicinal.index.server.models import Refusal
from vicinal.index.server.served import Served
from vicinal.index.server.uploads import DAMAGED, open_picture
from vicinal.index.sources import check_directions
from vicinal.neighbours import Reranking

__all__ = ["Found", "Queries", "Search", "SharedQueries", "Vector", "checked_vector"]


# Dynamic batching of concurrent requests.
#
# An idle server does not wait: a single request is processed immediately. Requests that arrive while others are being
# processed form the next batch. After a batch of several, the next one waits a few milliseconds for more requests,
# since clients that have just been answered tend to ask again.

Key = TypeVar("Key", bound=Hashable)
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Gathering(Generic[Key, Asked, Answer]):
    """Answers requests in batches, one batch after another.

    Args:
        answer: Function that answers a batch of requests with the same key; an exception is raised for all of them.
        pool: Executor that calls it.
        most: Largest number of requests in a batch.
        company: Seconds to wait for more requests after a batch of several.
        tell: Callback that receives the size of each batch.
    """

    def __init__(
        self,
        answer: Callable[[Key, Sequence[Asked]], Sequence[Answer]],
        pool: Executor,
        *,
        most: int = 64,
        company: float = 0.002,
        tell: Callable[[int], object] = int,
    ) -> None:
        self._answer, self._pool, self._most, self._company, self._tell = answer, pool, most, company, tell
        self._waiting: list[tuple[Key, Asked, asyncio.Future[Answer]]] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, key: Key, asked: Asked) -> Answer:
        """Submit a request and wait for its answer; requests with the same key may be answered together."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, asked, future))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        size = 1
        while self._waiting:
            if size > 1 and len(self._waiting) < min(size, self._most):
                await asyncio.sleep(self._company)
            # Requests whose client has disconnected or timed out are dropped.
            self._waiting = [entry for entry in self._waiting if not entry[2].done()]
            if not self._waiting:
                return
            key = self._waiting[0][0]
            group = [entry for entry in self._waiting if entry[0] == key][: self._most]
            taken = {id(entry) for entry in group}
            self._waiting = [entry for entry in self._waiting if id(entry) not in taken]
            size = len(group)
            self._tell(size)
            try:
                answers = await loop.run_in_executor(
                    self._pool, self._answer, key, [request for _, request, _ in group]
                )
                for (_, _, future), answer in zip(group, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
            except Exception as error:
                for _, _, future in group:
                    if not future.done():
                        future.set_exception(error)


REMEMBERED = 512  # uploads
MINUTES = 15.0
ATTEMPTS = 5

T = TypeVar("T")

Vector = Float32[np.ndarray, " d"]
Found = tuple[Hits, str]  # hits, and the generation that was searched


class Search(NamedTuple):
    """Search options, named as in `Index.search`.

    Attributes:
        k: Number of neighbours.
        where: Filter on the items.
        fast: Whether to search by codes.
        expand: Number of items that a query is averaged with.
        rerank: Whether to order hits by shared neighbours.
    """

    k: int
    where: Condition | None = None
    fast: bool = False
    expand: int = 0
    rerank: bool = False

    @property
    def words(self) -> dict[str, Any]:
        """Keyword arguments for `Index.search`."""
        return {**self._asdict(), "rerank": Reranking() if self.rerank else None}


class Together(NamedTuple):
    """Key of a batch: queries that agree on it are searched together; see `Queries.nearest`."""

    search: Search
    made_by: str
    dim: int


class Moved(Exception):
    """The index has another embedder than the one that made a vector, so they cannot be compared."""


@final
class Queries:
    """Answers queries of many users.

    Args:
        served: The served index.
        counts: Metrics, updated with the size of each batch.
    """

    def __init__(self, served: Served, counts: Counts) -> None:
        self.served = served
        self.gathering: Gathering[Together, Vector, Found] = Gathering(
            self._search, served.searching, tell=counts.grouped
        )
        self._embedder: tuple[Embedder, QueryEmbedder] | None = None
        self._uploads: OrderedDict[str, tuple[float, Vector, str]] = OrderedDict()

    async def nearest(self, vector: Vector, search: Search, made_by: str = "") -> Found:
        """Return the nearest items of a vector.

        Args:
            vector: Vector that `checked_vector` returned.
            search: Search options.
            made_by: Hash of the embedder that made the vector, if known.

        Raises:
            Moved: If the index has switched to another embedder.
        """
        together = Together(search, made_by, len(vector))
        if search.rerank:  # the first re-ranking takes long, and other searches need not wait for it
            loop = asyncio.get_running_loop()
            return (await loop.run_in_executor(self.served.reranking, self._search, together, [vector]))[0]
        return await self.gathering.ask(together, vector)

    async def nearest_of_item(self, key: Id, search: Search) -> tuple[Item, Found]:
        """Return the nearest items of an item, without the item itself."""

        def search_alone(index: Index) -> tuple[Item, Found]:
            self._check(index, search)
            (item,), _ = _one(index, key)
            generation = index.generation
            return item, (index.search(item=key, **search.words), generation)

        async def ask() -> tuple[Item, Found]:
            if search.expand or search.rerank:  # these need the item's id: it must not be averaged with itself itself
                loop, pool = asyncio.get_running_loop(), self.served.searching
                pool = self.served.reranking if search.rerank else pool
                return await loop.run_in_executor(pool, self.served.ask, search_alone)
            items, rows, made_by = await self.served.read(lambda index: (*_one(index, key), index.embedder_hash))
            hits, generation = await self.nearest(rows[0], search._replace(k=search.k + 1), made_by)
            return items[0], (replace(hits, hits=tuple(hit for hit in hits if hit.id != key)[: search.k]), generation)

        return await _until_settled(ask)

    async def nearest_of_picture(self, picture: bytes, search: Search) -> tuple[str, Found]:
        """Return the name under which the picture's embedding is remembered, and its nearest items."""

        async def ask() -> tuple[str, Found]:
            vector, made_by = await self.embed(picture)
            answer = await self.nearest(vector, search, made_by)
            return self.remember(vector, made_by), answer

        return await _until_settled(ask)

    async def compared(self, pictures: Sequence[bytes], compare: Callable[[Index, list[Vector]], T]) -> T:
        """Return the result of `compare` on the embeddings of some pictures, all made by the index's embedder."""

        async def ask() -> T:
            embedded = [await self.embed(picture) for picture in pictures]

            def settled(index: Index) -> T:
                if any(made_by != index.embedder_hash for _, made_by in embedded):
                    raise Moved
                return compare(index, [vector for vector, _ in embedded])

            return await self.served.read(settled)

        return await _until_settled(ask)

    async def embed(self, picture: bytes) -> tuple[Vector, str]:
        """Return the embedding of a picture (bit-identical to the library's), and the hash of its embedder."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.served.embedding, self.served.ask, partial(self._embed, picture))

    def remember(self, vector: Vector, made_by: str) -> str:
        """Remember the embedding of an upload and its embedder for some minutes, and return its name."""
        name = secrets.token_urlsafe(12)
        self._uploads[name] = (time.monotonic() + 60 * MINUTES, vector, made_by)
        while len(self._uploads) > REMEMBERED:
            self._uploads.popitem(last=False)
        return name

    def remembered(self, name: str, embedder: str) -> Vector:
        """Return the embedding of an upload, if that embedder made it."""
        until, vector, made_by = self._uploads.get(name, (0.0, None, ""))
        if vector is None or until < time.monotonic():
            raise Refusal(404, "The upload has expired; send it again.")
        if made_by != embedder:
            raise Refusal(409, "The model of the index has changed; search again.")
        return vector

    def _search(self, together: Together, vectors: Sequence[Vector]) -> list[Found]:
        search, made_by, _ = together

        def find(index: Index) -> list[Found]:
            if made_by and made_by != index.embedder_hash:
                raise Moved
            self._check(index, search)
            generation = index.generation
            # Only plain exact searches are batched: the candidates or last bits of others depend on the batch.
            at_once = [np.stack(vectors)] if search == Search(search.k, search.where) else vectors
            answers = [index.search(vector=rows, **search.words) for rows in at_once]
            several = [[answer] if isinstance(answer, Hits) else answer for answer in answers]
            return [(hits, generation) for answer in several for hits in answer]

        return self.served.ask(find)

    def _check(self, index: Index, search: Search) -> None:
        most = self.served.settings.max_reranked
        if search.rerank and len(index) > most:
            raise Refusal(
                422, f"This server re-ranks only in indexes of at most {most:,} items; this one has {len(index):,}."
            )

    def _embed(self, picture: bytes, index: Index) -> tuple[Vector, str]:
        embedder = index.embedder()
        opened = open_picture(picture, self.served.settings)
        cached = self._embedder
        if cached is None or cached[0] is not embedder:
            cached = self._embedder = embedder, QueryEmbedder(embedder)
        try:
            row = cached[1](opened)
        except DataError:
            raise Refusal(422, DAMAGED) from None
        return checked_vector(row, index), index.embedder_hash


async def _of_app(request: Request) -> Queries:
    return request.app.state.queries


SharedQueries = Annotated[Queries, Depends(_of_app)]  # for routes


def checked_vector(values: Any, index: Index) -> Vector:
    """Check a vector and return it as float32.

    Raises:
        InputError: If it cannot be compared with those of the index: one bad vector must not fail its whole batch.
    """
    with np.errstate(over="ignore"):
        vector: Vector = np.asarray(values, dtype=np.float32)
    if len(vector) != index.dim:
        raise InputError(f"The vectors of this index have {index.dim} numbers; got {len(vector)}.")
    if not np.isfinite(vector).all():
        raise InputError("The vector holds NaN or infinity, or numbers that are too large for float32.")
    check_directions(vector[None], index.distance)
    return vector


def _one(index: Index, key: Id) -> tuple[list[Item], Float32[np.ndarray, "1 d"]]:
    items, rows = index.get(Compare("id", "=", key))
    if not items:
        raise Refusal(404, "There is no such item.")
    return items, rows


async def _until_settled(search: Callable[[], Awaitable[T]]) -> T:
    """Retry a search if the index switched to another embedder between embedding and searching."""
    for _ in range(ATTEMPTS):
        with suppress(Moved):
            return await search()
    raise Refusal(503, "The index is changing its embedder; try again in a moment.", {"Retry-After": "1"})
