"""For those who write a store of their own: the contract that `vicinal.index.Store` states in words, tried out."""

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
BATCH = 7  # items that are added at once
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
    found = []
    mine = query.astype(np.float64)
    for item, vector in zip(items, vectors.astype(np.float64), strict=True):
        if where is not None and not matches(where, item.values()):
            continue
        if distance == "euclidean":
            similarity = 0.0 - math.sqrt(float(np.square(mine - vector).sum()))
        else:
            lengths = math.sqrt(float(np.square(mine).sum())) * math.sqrt(float(np.square(vector).sum()))
            similarity = min(1.0, max(-1.0, float((mine * vector).sum()) / lengths)) if lengths else 0.0
        found.append((-similarity, item.id))
    return [(key, 0.0 - value) for value, key in sorted(found)[:k]]


def check_store(make: Callable[[Header], Store], reopen: Callable[[Store], Store] | None = None) -> None:
    """Try a store out: whatever an index relies on, with ties, zero vectors, missing values and hostile texts.

    What an index itself takes care of is not tried here: it refuses the vectors of another embedder by the header that
    the store kept.

    Args:
        make: Returns an empty store for a header, another one at every call.
        reopen: Closes a store and opens it again; what was added must still be there.

    Raises:
        AssertionError: With what was expected and what the store did.
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
            _same(store.header, header, "the header of a store that was opened again")
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
        kept = {name: value for name, value in metadata.items() if rng.integers(4)}
        items.append(
            Item(
                f"item {number:02}",
                path=f"/photos/é{number}.jpg" if number % 2 else None,
                label=labels[number % 5],
                metadata=kept,
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
    _same(store.version(), version, "version() when nothing was changed")


def _holds(store: Store, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"], distance: str) -> None:
    """Everything is there, and is found."""
    order = sorted(range(len(items)), key=lambda place: items[place].id)
    found, rows = store.get()
    _same(found, [items[place] for place in order], "get()")
    _same(rows.tolist(), vectors[order].tolist(), "the vectors of get()")
    _same(store.get(vectors=False)[0], found, "get(vectors=False)")
    _same(store.count(), len(items), "count()")
    for text in (None, *FILTERS):
        where = None if text is None else as_condition(text)
        passing = [item for item in found if where is None or matches(where, item.values())]
        _same(store.count(where), len(passing), f"count({text!r})")
        _same(store.get(where)[0], passing, f"get({text!r})")
        for k in (3, 100):
            answer = store.search(_queries(), k, where)
            for query, ids, values in zip(_queries(), answer.ids.tolist(), answer.similarities, strict=True):
                right = naive_search(items, vectors, query, k, distance, where)
                _same(ids, [key for key, _ in right], f"search(k={k}, {text!r}) for {query.tolist()}")
                _same(values.tolist(), [value for _, value in right], f"similarities of search(k={k}, {text!r})")
                for key in ids:
                    _same(answer.items[key], next(item for item in items if item.id == key), "an item that was found")
    plain, bare = store.search(_queries(), 3), store.search(_queries(), 3, items=False)
    _same(bare.ids.tolist(), plain.ids.tolist(), "search(items=False)")
    fast = store.search(_queries(), 3, fast=True)
    _same(fast.ids.shape, (len(_queries()), 3), "the shape of search(fast=True)")
    if not 0 < fast.recall <= 1:
        raise AssertionError(f"The recall of search(fast=True) is {fast.recall}; it must say what was measured.")


def _in_part(store: Store, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
    """Pages, labels, paths and samples are those of all items."""
    every, rows = store.get()
    some, some_rows = store.page(limit=7, offset=5)
    _same(some, every[5:12], "page(limit=7, offset=5)")
    _same(some_rows.tolist(), rows[5:12].tolist(), "the vectors of page(limit=7, offset=5)")
    _same(len(store.page(vectors=False)[0]), len(items), "the number of items of page()")
    labels: set[Any] = {item.label for item in items if item.label is not None}
    _same(list(store.labels(3)), sorted(labels)[:3], "labels(3)")
    paths = [item.path for item in items if item.path is not None]
    _same(store.path_range(), (min(paths), max(paths)), "path_range()")
    known = {tuple(row) for row in vectors.tolist()}
    drawn = store.sample(6).tolist()
    _same((len(drawn), {tuple(row) for row in drawn} <= known), (6, True), "the number and origin of sample(6)")


def _replaced(store: Store, items: list[Item], vectors: Float32[np.ndarray, "n d"], distance: str) -> None:
    """An item takes the place of the one of the same id; a new column is missing in all others."""
    new = Item(items[3].id, label="wren", metadata={"colour": "brown"})
    version = store.version()
    store.add([new], np.full((1, DIM), 9, np.float32))
    _differs(store.version(), version, "version() after an item was replaced")
    items[3], vectors[3] = new, 9
    _holds(store, items, vectors, distance)
    _same([item.id for item in store.get(as_condition("colour is not null"))[0]], [new.id], "a column that was added")


def _refused(store: Store) -> None:
    """What makes no sense is refused, and nothing of it is kept."""
    many, version = store.count(), store.version()
    row = np.ones((2, DIM), np.float32)
    _raises(InputError, lambda: store.add([Item("new")], np.ones((1, DIM + 1), np.float32)))
    _raises(InputError, lambda: store.search(np.ones((1, DIM - 1), np.float32), 1))
    _raises(InputError, lambda: store.add([Item("new"), Item("newer", metadata={"year": "text"})], row))
    _raises(InputError, lambda: store.add([Item("new"), Item(3)], row))
    _raises(UnknownName, lambda: store.search(_queries(), 1, as_condition("no_such_column = 1")))
    _raises(InputError, lambda: store.count(as_condition("year = 'text'")))
    _same(store.count(), many, "count() after what was refused")
    _same(store.version(), version, "version() after what was refused")


def _deleted(store: Store, items: list[Item], vectors: Float32[np.ndarray, "n d"], distance: str) -> None:
    gone = as_condition("label = 'crow' or year < 2004")
    kept = [place for place, item in enumerate(items) if not matches(gone, item.values())]
    version = store.version()
    _same(store.delete(gone), len(items) - len(kept), "delete()")
    _differs(store.version(), version, "version() after delete()")
    _same(store.delete(gone), 0, "delete() of what is gone")
    _holds(store, [items[place] for place in kept], vectors[kept], distance)
    _same(store.delete(In("id", tuple(item.id for item in items))), len(kept), "delete() of all")
    _same(store.search(_queries(), 3).ids.shape, (len(_queries()), 0), "the answer when all is deleted")


def _whole_numbers(store: Store) -> None:
    """Ids may be numbers, which sort as numbers do."""
    store.add([Item(10), Item(9), Item(-(2**40))], np.ones((3, DIM), np.float32))
    _same(store.search(_queries()[:1], 5).ids.tolist(), [[-(2**40), 9, 10]], "the order of ids that are numbers")
    _same([item.id for item in store.get(as_condition("id >= 9"))[0]], [9, 10], "get() by ids that are numbers")
    store.close()


def _lengths(make: Callable[[Header], Store]) -> None:
    """Lengths that float32 cannot square are compared all the same."""
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
    """What is no longer listed in a source can be told from the rest and removed."""
    items = [Item(f"{source}/{number}", source=source) for source in ("/a", "/b") for number in range(3)]
    store.add(items, np.ones((6, DIM), np.float32))
    before = store.get(Compare("source", "=", "/a"), vectors=False)[0]
    _same([item.id for item in before], ["/a/0", "/a/1", "/a/2"], "get() by source")
    _same(store.delete(In("id", ("/a/1", "/a/7"))), 1, "delete() of what is no longer listed")
    kept = ["/a/0", "/a/2", "/b/0", "/b/1", "/b/2"]
    _same([item.id for item in store.get()[0]], kept, "get() after what is no longer listed was deleted")
    store.close()


def _searched_at_once(store: Store) -> None:
    """Several threads that search get what one gets."""
    right = store.search(_queries(), 5)

    def ask(_: int) -> tuple[object, object]:
        answer = store.search(_queries(), 5)
        return answer.ids.tolist(), answer.similarities.tolist()

    with ThreadPoolExecutor(THREADS) as pool:
        for answer in pool.map(ask, range(2 * THREADS)):
            _same(answer, (right.ids.tolist(), right.similarities.tolist()), "search() in several threads at once")


def _read_while_written(store: Store) -> None:
    """Who reads while items are added sees whole additions, and never fewer than before."""
    batch, done = np.ones((BATCH, DIM), np.float32), threading.Event()

    def read() -> list[int]:
        seen: list[int] = []
        while not seen or not done.is_set():
            answer = store.search(batch[:1], 10_000)
            _same(len(answer.items), answer.ids.shape[1], "items that were found while others were added")
            seen.append(answer.ids.shape[1])
        return seen

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for first in range(0, 10 * BATCH, BATCH):
                store.add([Item(first + place) for place in range(BATCH)], batch)
        finally:
            done.set()
        for reader in readers:
            seen = reader.result()
            _same(seen, sorted(seen), "how many items one reader saw, one time after the other")
            _same([many for many in seen if many % BATCH], [], "numbers of items that are no whole additions")
    _same(store.search(batch[:1], 10_000).ids.shape, (1, 10 * BATCH), "search() after all was added")
    store.close()


def _differs(got: object, before: object, what: str) -> None:
    if got == before:
        raise AssertionError(f"{what}: expected another than {before!r}, got the same.")


def _same(got: object, expected: object, what: str) -> None:
    if got != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {got!r}.")


def _raises(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"Expected a {kind.__name__}; nothing was raised.")
