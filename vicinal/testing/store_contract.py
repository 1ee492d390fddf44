"""Checks for a custom store: tests of the contract that `vicinal.index.Store` describes."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Float32

from vicinal.errors import InputError, UnknownName
from vicinal.index import Header, Item, Store
from vicinal.index.filters import And, Compare, Condition, In, as_condition, matches
from vicinal.index.item import Id

__all__ = ["check_store", "naive_search"]

DIM = 4
THREADS = 4
BATCH = 7  # items added in one call
FILTERS = (
    "label = 'wren'",
    "not label = 'wren'",
    "year >= 2020 and not label = 'crow'",
    "year is null or wet = true",
    "weight < 2.5 and label in ('wren', 'it''s')",
    "label = '; DROP TABLE items; --' or label = '''; DROP TABLE items; --'",
    "place = 'Ulm''); DELETE FROM items; --'",
    "id > 'item 20'",
    "year = 1",
)


def naive_search(
    items: Sequence[Item],
    vectors: Float32[np.ndarray, "n d"],
    query: Float32[np.ndarray, " d"],
    k: int,
    distance: str,
    where: Condition | None = None,
) -> list[tuple[Id, float]]:
    """Compare a query with every item in float64; return ids and similarities, sorted by similarity, then by id.

    Example:
        >>> naive_search([Item("b"), Item("a")], np.float32([[1, 0], [2, 0]]), np.float32([1, 0]), 2, "cosine")
        [('a', 1.0), ('b', 1.0)]
    """
    scored = []
    wide = query.astype(np.float64)
    for item, vector in zip(items, vectors.astype(np.float64), strict=True):
        if where is not None and not matches(where, item.values()):
            continue
        if distance == "euclidean":
            similarity = 0.0 - math.sqrt(float(np.square(wide - vector).sum()))
        else:
            lengths = math.sqrt(float(np.square(wide).sum())) * math.sqrt(float(np.square(vector).sum()))
            similarity = min(1.0, max(-1.0, float((wide * vector).sum()) / lengths)) if lengths else 0.0
        scored.append((-similarity, item.id))
    return [(key, 0.0 - value) for value, key in sorted(scored)[:k]]


def check_store(make: Callable[[Header], Store], reopen: Callable[[Store], Store] | None = None) -> None:
    """Test everything that an index relies on in a store, with ties, zero vectors, missing values and hostile strings.

    Checks that the index itself makes are not tested here: it rejects the vectors of another embedder by the header
    that the store keeps.

    Args:
        make: Function that returns an empty store for a header, a new one in every call.
        reopen: Function that closes a store and opens it again; all items must still be there.

    Raises:
        AssertionError: If a check fails, with the expected and the actual result.
    """
    for distance in ("cosine", "euclidean"):
        header = Header(DIM, distance, "some embedder")
        store = make(header)
        _same(store.header, header, "the header")
        _nothing(store)
        items, vectors = _examples()
        store.add(items[:20], vectors[:20])
        store.add(items[20:], vectors[20:])
        _holds(store, items, vectors, distance)
        if reopen is not None:
            store = reopen(store)
            _same(store.header, header, "the header of a reopened store")
            _holds(store, items, vectors, distance)
        _in_part(store, items, vectors)
        _searched_at_once(store)
        _replaced(store, items, vectors, distance)
        _refused(store)
        _deleted(store, items, vectors, distance)
        _same(store.verify(), [], "verify()")
        store.close()
    _whole_numbers(make(Header(DIM)))
    _lengths(make)
    _refreshed(make(Header(DIM)))
    _read_while_written(make(Header(DIM)))


def _examples() -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
    rng = np.random.default_rng(0)
    labels = ["wren", "crow", None, "it's", "'; DROP TABLE items; --"]
    items, rows = [], []
    for number in rng.permutation(30).tolist():
        metadata = {"year": 2000 + number, "weight": number / 8, "wet": number % 3 == 0, "place": "Ulm'); DELETE --"}
        present = {name: value for name, value in metadata.items() if rng.integers(4)}
        items.append(
            Item(
                f"item {number:02}",
                path=f"/photos/é{number}.jpg" if number % 2 else None,
                label=labels[number % 5],
                metadata=present,
                source="/photos",
                stamp=f"{number}-1",
                hash=f"{number:064x}",
            )
        )
        rows.append(rng.integers(-1, 2, DIM))  # a lattice: ties, duplicates and zero vectors
    return items, np.array(rows, dtype=np.float32)


def _queries() -> Float32[np.ndarray, "n d"]:
    return np.array([[1, 0, 0, 0], [1, 1, -1, 0], [0, 0, 0, 0], [0.3, -0.2, 0.9, 0.1]], dtype=np.float32)


def _nothing(store: Store) -> None:
    _same(store.count(), 0, "count() of an empty store")
    _same(store.search(_queries(), 3).ids.shape, (len(_queries()), 0), "the answer of an empty store")
    _same(store.delete(And(())), 0, "delete() in an empty store")
    version = store.version()
    store.add([], np.empty((0, DIM), np.float32))
    _same(store.version(), version, "version() without a change")


def _holds(store: Store, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"], distance: str) -> None:
    """Check that all items are stored and are found."""
    order = sorted(range(len(items)), key=lambda index: items[index].id)
    stored, rows = store.get()
    _same(stored, [items[index] for index in order], "get()")
    _same(rows.tolist(), vectors[order].tolist(), "the vectors of get()")
    _same(store.get(vectors=False)[0], stored, "get(vectors=False)")
    _same(store.count(), len(items), "count()")
    for text in (None, *FILTERS):
        where = None if text is None else as_condition(text)
        passing = [item for item in stored if where is None or matches(where, item.values())]
        _same(store.count(where), len(passing), f"count({text!r})")
        _same(store.get(where)[0], passing, f"get({text!r})")
        for k in (3, 100):
            answer = store.search(_queries(), k, where)
            for query, ids, values in zip(_queries(), answer.ids.tolist(), answer.similarities, strict=True):
                right = naive_search(items, vectors, query, k, distance, where)
                _same(ids, [key for key, _ in right], f"search(k={k}, {text!r}) for {query.tolist()}")
                _same(values.tolist(), [value for _, value in right], f"similarities of search(k={k}, {text!r})")
                for key in ids:
                    _same(answer.items[key], next(item for item in items if item.id == key), "an item in the answer")
    plain, bare = store.search(_queries(), 3), store.search(_queries(), 3, items=False)
    _same(bare.ids.tolist(), plain.ids.tolist(), "search(items=False)")
    fast = store.search(_queries(), 3, fast=True)
    _same(fast.ids.shape, (len(_queries()), 3), "the shape of search(fast=True)")
    if not 0 < fast.recall <= 1:
        raise AssertionError(f"The recall of search(fast=True) is {fast.recall}; it must be the measured recall.")


def _in_part(store: Store, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    """Check pages, labels, paths and samples against all items."""
    every, rows = store.get()
    some, some_rows = store.page(limit=7, offset=5)
    _same(some, every[5:12], "page(limit=7, offset=5)")
    _same(some_rows.tolist(), rows[5:12].tolist(), "the vectors of page(limit=7, offset=5)")
    _same(len(store.page(vectors=False)[0]), len(items), "the number of items of page()")
    labels: set[Any] = {item.label for item in items if item.label is not None}
    _same(list(store.labels(3)), sorted(labels)[:3], "labels(3)")
    paths = [item.path for item in items if item.path is not None]
    _same(store.path_range(), (min(paths), max(paths)), "path_range()")
    stored = {tuple(row) for row in vectors.tolist()}
    drawn = store.sample(6).tolist()
    _same((len(drawn), {tuple(row) for row in drawn} <= stored), (6, True), "the number and origin of sample(6)")


def _replaced(store: Store, items: list[Item], vectors: Float32[np.ndarray, "n d"], distance: str) -> None:
    """Check that an item replaces the one with the same id, and that a new column is missing in all others."""
    new = Item(items[3].id, label="wren", metadata={"colour": "brown"})
    version = store.version()
    store.add([new], np.full((1, DIM), 9, np.float32))
    _differs(store.version(), version, "version() after an item was replaced")
    items[3], vectors[3] = new, 9
    _holds(store, items, vectors, distance)
    _same([item.id for item in store.get(as_condition("colour is not null"))[0]], [new.id], "an added column")


def _refused(store: Store) -> None:
    """Check that invalid input is rejected, and that nothing of it is stored."""
    count, version = store.count(), store.version()
    row = np.ones((2, DIM), np.float32)
    _raises(InputError, lambda: store.add([Item("new")], np.ones((1, DIM + 1), np.float32)))
    _raises(InputError, lambda: store.search(np.ones((1, DIM - 1), np.float32), 1))
    _raises(InputError, lambda: store.add([Item("new"), Item("newer", metadata={"year": "text"})], row))
    _raises(InputError, lambda: store.add([Item("new"), Item(3)], row))
    _raises(UnknownName, lambda: store.search(_queries(), 1, as_condition("no_such_column = 1")))
    _raises(InputError, lambda: store.count(as_condition("year = 'text'")))
    _same(store.count(), count, "count() after rejected input")
    _same(store.version(), version, "version() after rejected input")


def _deleted(store: Store, items: list[Item], vectors: Float32[np.ndarray, "n d"], distance: str) -> None:
    gone = as_condition("label = 'crow' or year < 2004")
    remaining = [index for index, item in enumerate(items) if not matches(gone, item.values())]
    version = store.version()
    _same(store.delete(gone), len(items) - len(remaining), "delete()")
    _differs(store.version(), version, "version() after delete()")
    _same(store.delete(gone), 0, "delete() of deleted items")
    _holds(store, [items[index] for index in remaining], vectors[remaining], distance)
    _same(store.delete(In("id", tuple(item.id for item in items))), len(remaining), "delete() of all")
    _same(store.search(_queries(), 3).ids.shape, (len(_queries()), 0), "the answer when all is deleted")


def _whole_numbers(store: Store) -> None:
    """Check ids that are numbers, which sort as numbers."""
    store.add([Item(10), Item(9), Item(-(2**40))], np.ones((3, DIM), np.float32))
    _same(store.search(_queries()[:1], 5).ids.tolist(), [[-(2**40), 9, 10]], "the order of ids that are numbers")
    _same([item.id for item in store.get(as_condition("id >= 9"))[0]], [9, 10], "get() by ids that are numbers")
    store.close()


def _lengths(make: Callable[[Header], Store]) -> None:
    """Check vectors of lengths whose squares overflow or underflow float32."""
    lengths = 10.0 ** np.array([-30, -20, -1, 0, 20, 30])
    rows = np.random.default_rng(1).normal(size=(24, DIM)) * np.tile(lengths, 4)[:, None]
    vectors = rows.astype(np.float32)
    items = [Item(number) for number in range(len(vectors))]
    for distance in ("cosine", "euclidean"):
        store = make(Header(DIM, distance))
        store.add(items, vectors)
        answer = store.search(vectors[:12], 3)
        for query, ids in zip(vectors[:12], answer.ids.tolist(), strict=True):
            right = [key for key, _ in naive_search(items, vectors, query, 3, distance)]
            _same(ids, right, f"search({query.tolist()}) by {distance}")
        store.close()


def _refreshed(store: Store) -> None:
    """Check that items no longer listed in a source can be identified and removed."""
    items = [Item(f"{source}/{number}", source=source) for source in ("/a", "/b") for number in range(3)]
    store.add(items, np.ones((6, DIM), np.float32))
    before = store.get(Compare("source", "=", "/a"), vectors=False)[0]
    _same([item.id for item in before], ["/a/0", "/a/1", "/a/2"], "get() by source")
    _same(store.delete(In("id", ("/a/1", "/a/7"))), 1, "delete() of items that are no longer listed")
    remaining = ["/a/0", "/a/2", "/b/0", "/b/1", "/b/2"]
    _same([item.id for item in store.get()[0]], remaining, "get() after items that are no longer listed were deleted")
    store.close()


def _searched_at_once(store: Store) -> None:
    """Check that several threads get the same results as one."""
    right = store.search(_queries(), 5)

    def ask(_: int) -> tuple[object, object]:
        answer = store.search(_queries(), 5)
        return answer.ids.tolist(), answer.similarities.tolist()

    with ThreadPoolExecutor(THREADS) as pool:
        for answer in pool.map(ask, range(2 * THREADS)):
            _same(answer, (right.ids.tolist(), right.similarities.tolist()), "search() in several threads at once")


def _read_while_written(store: Store) -> None:
    """Check that readers see only whole additions while items are added, and never fewer items than before."""
    batch, done = np.ones((BATCH, DIM), np.float32), threading.Event()

    def read() -> list[int]:
        seen: list[int] = []
        while not seen or not done.is_set():
            answer = store.search(batch[:1], 10_000)
            _same(len(answer.items), answer.ids.shape[1], "items found while others were added")
            seen.append(answer.ids.shape[1])
        return seen

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for first in range(0, 10 * BATCH, BATCH):
                store.add([Item(first + number) for number in range(BATCH)], batch)
        finally:
            done.set()
        for reader in readers:
            seen = reader.result()
            _same(seen, sorted(seen), "item counts of one reader over time")
            _same([count for count in seen if count % BATCH], [], "item counts that are not whole additions")
    _same(store.search(batch[:1], 10_000).ids.shape, (1, 10 * BATCH), "search() after all items were added")
    store.close()


def _differs(got: object, before: object, what: str) -> None:
    if got == before:
        raise AssertionError(f"{what}: expected a value other than {before!r}, got the same.")


def _same(got: object, expected: object, what: str) -> None:
    if got != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {got!r}.")


def _raises(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"Expected {kind.__name__}; nothing was raised.")
