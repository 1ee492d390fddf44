"""Search by RaBitQ codes of faiss: about one bit per number, scanned in registers; float64 has the last word.

The codes propose a few candidates for each neighbour that is wanted, and these are compared exactly. What the codes
miss is missed: the share that they find is measured on the index's own items when they are made, and goes with every
answer. They are a cache: a file with a checksum beside the vectors, made anew when it is missing or does not fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from vicinal.atomic import replacing, write_atomically
from vicinal.errors import DataError, MissingExtra

__all__ = ["FastCodes"]

CODES, ABOUT = "codes.faiss", "codes.json"
CANDIDATES = 128  # at least, for each query
PER_NEIGHBOUR = 8  # candidates
SMALLEST_SHARE = 1 / 16  # of the rows that may be found; with fewer, exact search of these is as quick
TRIED = 64  # items whose neighbours are sought, to measure the recall
NEIGHBOURS = 10  # of each of these
SAVE_AFTER = 1.25  # times as many rows as the file has
STEP = 1 << 16  # rows that are coded at a time

Exact = Callable[[Float32[np.ndarray, "n d"], int], Int64[np.ndarray, "n k"]]


class FastCodes:
    """Codes of the rows of a file that may grow between searches.

    Args:
        folder: Where the cache is.
        distance: "cosine" or "euclidean".
    """

    def __init__(self, folder: Path, distance: str) -> None:
        self.folder, self.distance = folder, distance
        self.recall = 1.0
        self._codes: Any = None
        self._saved = 0
        self._lock = Lock()

    def candidates(
        self,
        rows: Float32[np.ndarray, "m d"],
        queries: Float32[np.ndarray, "n d"],
        k: int,
        allowed: Bool[np.ndarray, " m"] | None,
        exact: Exact,
    ) -> Int64[np.ndarray, "n c"] | None:
        """Rows among which the k nearest should be; None where exact search is the better way.

        Args:
            rows: The whole file.
            queries: What is sought.
            k: Neighbours wanted.
            allowed: The rows that may be found.
            exact: Finds the nearest rows without error, to measure the recall by.
        """
        share = 1.0 if allowed is None else float(allowed.mean())
        wanted = int(max(CANDIDATES, PER_NEIGHBOUR * k) / max(share, 1e-9))
        if share < SMALLEST_SHARE or wanted >= len(rows):
            return None
        with self._lock:
            self._fit(rows, exact)
            found = self._search(queries, wanted)
        found = found[:, (found >= 0).all(axis=0)]
        if allowed is None:
            return found if found.shape[1] >= k else None
        may = allowed[found] & (found < len(rows))
        many = int(may.sum(axis=1).min())
        if many < k:
            return None
        return np.take_along_axis(found, np.argsort(~may, axis=1, kind="stable")[:, :many], axis=1)

    def _fit(self, rows: Float32[np.ndarray, "m d"], exact: Exact) -> None:
        """Have codes of all rows."""
        fresh = self._codes is None and not self._read(len(rows), rows.shape[1])
        if fresh or self._codes.ntotal > len(rows):
            self._codes, self._saved = self._trained(rows), 0
        for start in range(self._codes.ntotal, len(rows), STEP):
            self._codes.add(self._laid(rows[start : start + STEP]))
        if not self._saved:
            self.recall = self._measured(rows, exact)
        if len(rows) >= SAVE_AFTER * self._saved:
            self._write()

    def _trained(self, rows: Float32[np.ndarray, "m d"]) -> Any:
        faiss = _faiss()
        codes = faiss.IndexRaBitQFastScan(rows.shape[1], faiss.METRIC_L2)
        places = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), STEP)).astype(np.int64))
        codes.train(self._laid(rows[places]))
        return codes

    def _laid(self, rows: Float32[np.ndarray, "m d"]) -> Float32[np.ndarray, "m d"]:
        """Rows whose Euclidean order is the order wanted."""
        if self.distance == "euclidean":
            return np.ascontiguousarray(rows, dtype=np.float32)
        lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
        return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def _search(self, queries: Float32[np.ndarray, "n d"], wanted: int) -> Int64[np.ndarray, "n c"]:
        return self._codes.search(self._laid(queries), wanted)[1]

    def _measured(self, rows: Float32[np.ndarray, "m d"], exact: Exact) -> float:
        """The share of the nearest rows of some items, not counting themselves, that are among the candidates."""
        tried = np.unique(np.linspace(0, len(rows) - 1, TRIED).astype(np.int64))
        proposed = self._search(rows[tried], max(CANDIDATES, PER_NEIGHBOUR * NEIGHBOURS))
        right = exact(rows[tried], min(NEIGHBOURS + 1, len(rows)))
        hits = [set(mine[mine != own]) for own, mine in zip(tried, right, strict=True)]
        found = sum(len(mine & set(theirs)) for mine, theirs in zip(hits, proposed.tolist(), strict=True))
        return found / max(1, sum(map(len, hits)))

    def _read(self, rows: int, dim: int) -> bool:
        try:
            about = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
            content = (self.folder / CODES).read_bytes()
            if hashlib.sha256(content).hexdigest() != about["sha256"]:
                return False
            self._codes = _faiss().deserialize_index(np.frombuffer(content, np.uint8))
            self.recall, self._saved = float(about["recall"]), int(self._codes.ntotal)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return False
        return bool(self._codes.ntotal <= rows and self._codes.d == dim)

    def _write(self) -> None:
        content = _faiss().serialize_index(self._codes).tobytes()
        about = {"sha256": hashlib.sha256(content).hexdigest(), "recall": self.recall}
        with suppress(DataError):  # a folder that cannot be written to: the next process makes them anew
            with replacing(self.folder / CODES) as file:
                file.write(content)
            write_atomically(self.folder / ABOUT, json.dumps(about) + "\n")
        self._saved = int(self._codes.ntotal)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss", "search with fast=True") from None
    return faiss
