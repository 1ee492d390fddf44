"""How fast an index answers, how much memory that takes, and how often the fast way is right."""

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

TRIED = 50  # queries, one by one


@dataclass(frozen=True)
class Measurement:
    """What was measured, on the index's own items as queries.

    Attributes:
        items: How many there are.
        dim: Numbers in a vector.
        k: Neighbours asked for.
        exact_ms: Median time of one exact query, in milliseconds.
        fast_ms: Of one with fast=True; None without faiss.
        recall: The share of the exact neighbours that the fast way found; None without faiss.
        memory: Bytes that exact search holds; None where a server holds them, which does not say.
        codes: Bytes that fast search holds in addition; None likewise.
        disk: Bytes of all files; None likewise.
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
            way = ", by exact search" if self.fast_is_exact else ""
            lines.append(f"fast    {self.fast_ms:8.2f} ms per query, recall {self.recall:.4f}{way}")
        lines.append(f"memory  {_size(self.memory, vectors)}")
        if self.codes:
            lines.append(f"codes   {_size(self.codes, vectors)}, in addition for fast")
        lines.append(f"disk    {_size(self.disk)}")
        return "\n".join(lines)


def measure_store(store: Store, k: int = 10, seed: int = 0) -> Measurement:
    """Search for items of the store itself, moved a little, one by one."""
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
        recall = float(np.mean([np.isin(right.ids, found.ids).mean() for right, found in pairs]))
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
