"""How fast an index answers, how much memory that takes, and how often the fast way is right."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from vicinal.errors import InputError, MissingExtra
from vicinal.index.embedded_store import EmbeddedStore
from vicinal.index.store import Answer

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
        memory: Bytes that exact search holds.
        disk: Bytes of all files.
    """

    items: int
    dim: int
    k: int
    exact_ms: float
    fast_ms: float | None
    recall: float | None
    memory: int
    disk: int

    def __str__(self) -> str:
        vectors = self.items * self.dim * 4
        lines = [
            f"{self.items:,} items of {self.dim} numbers, k = {self.k}",
            f"exact   {self.exact_ms:8.2f} ms per query, recall 1",
        ]
        if self.fast_ms is not None:
            lines.append(f"fast    {self.fast_ms:8.2f} ms per query, recall {self.recall:.4f}")
        lines.append(f"memory  {self.memory / 2**20:8.1f} MiB ({self.memory / max(1, vectors):.2f} of the vectors)")
        lines.append(f"disk    {self.disk / 2**20:8.1f} MiB")
        return "\n".join(lines)


def measure_store(store: EmbeddedStore, k: int = 10, seed: int = 0) -> Measurement:
    """Search for items of the store itself, moved a little, one by one."""
    if not store.count():
        raise InputError("The index is empty; there is nothing to measure.")
    queries = store.sample(TRIED, seed)
    noise = np.random.default_rng(seed).normal(size=queries.shape)
    queries = (queries + 0.1 * np.std(queries) * noise).astype(np.float32)
    exact, exact_ms = _timed(lambda query: store.search(query, k), queries)
    fast_ms = recall = None
    try:
        fast, fast_ms = _timed(lambda query: store.search(query, k, fast=True), queries)
        pairs = zip(exact, fast, strict=True)
        recall = float(np.mean([np.isin(right.ids, found.ids).mean() for right, found in pairs]))
    except MissingExtra:
        pass
    disk = sum(path.stat().st_size for path in Path(store.folder).rglob("*") if path.is_file())
    return Measurement(store.count(), store.header.dim, k, exact_ms, fast_ms, recall, store.nbytes, disk)


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
