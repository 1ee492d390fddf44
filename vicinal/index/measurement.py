"""Speed and memory of exact and fast search in an index, and the recall of fast search."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from vicinal._util.text import counted
from vicinal.errors import InputError, MissingExtra
from vicinal.index.stores.store import Answer, Store

__all__ = ["Measurement", "measure_store"]

TRIED = 50  # queries, timed one by one


@dataclass(frozen=True)
class Measurement:
    """Measurements with the index's own items as queries.

    Attributes:
        items: Number of items.
        dim: Dimension of the vectors.
        k: Number of neighbours.
        exact_ms: Median time of one exact query, in milliseconds.
        fast_ms: Median time of one query with fast=True, in milliseconds; None without faiss.
        recall: Share of the exact neighbours that fast search found; None without faiss.
        memory: Memory of exact search in bytes; None if a server does not report it.
        codes: Additional memory of fast search in bytes; None if a server does not report it.
        disk: Size of all files in bytes; None if a server does not report it.
        fast_is_exact: Whether fast=True searched exactly: there are few items, or a server has no index for it.
    """

    items: int
    dim: int
    k: int
    exact_ms: float
    fast_ms: float | None
    recall: float | None
    memory: int | None
    codes: int | None
    disk: int | None
    fast_is_exact: bool = False

    def __str__(self) -> str:
        vectors = self.items * self.dim * 4
        lines = [
            f"{counted(self.items, 'item')} of {self.dim} numbers, k = {self.k}",
            f"exact   {self.exact_ms:8.2f} ms per query, recall 1",
        ]
        if self.fast_ms is not None:
            method = ", by exact search" if self.fast_is_exact else ""
            lines.append(f"fast    {self.fast_ms:8.2f} ms per query, recall {self.recall:.4f}{method}")
        lines.append(f"memory  {_size(self.memory, vectors)}")
        if self.codes:
            lines.append(f"codes   {_size(self.codes, vectors)}, in addition for fast")
        lines.append(f"disk    {_size(self.disk)}")
        return "\n".join(lines)


def measure_store(store: Store, k: int = 10, seed: int = 0) -> Measurement:
    """Time queries one by one; the queries are items of the store with a little noise."""
    if not store.count():
        raise InputError("The index is empty; there is nothing to measure.")
    queries = store.sample(TRIED, seed)
    noise = np.random.default_rng(seed).normal(size=queries.shape)
    queries = (queries + 0.1 * np.std(queries) * noise).astype(np.float32)
    exact, exact_ms = _timed(lambda query: store.search(query, k), queries)
    fast_ms = recall = None
    same_way = False
    try:
        fast, fast_ms = _timed(lambda query: store.search(query, k, fast=True), queries)
        pairs = zip(exact, fast, strict=True)
        recall = float(np.mean([np.isin(right.ids, approximate.ids).mean() for right, approximate in pairs]))
        same_way = all(answer.exact for answer in fast)
    except MissingExtra:
        pass
    return Measurement(store.count(), store.header.dim, k, exact_ms, fast_ms, recall, *store.space(), same_way)


def _size(many: int | None, vectors: int = 0) -> str:
    if many is None:
        return " unknown (not reported by the store)"
    return f"{many / 2**20:8.1f} MiB" + (f" ({many / vectors:.2f} of the vectors)" if vectors else "")


def _timed(
    search: Callable[[Float32[np.ndarray, "1 d"]], Answer], queries: Float32[np.ndarray, "n d"]
) -> tuple[list[Answer], float]:
    search(queries[:1])  # prepares
    answers, times = [], []
    for query in queries:
        start = time.perf_counter()
        answers.append(search(query[None]))
        times.append(time.perf_counter() - start)
    return answers, float(np.median(times)) * 1e3
