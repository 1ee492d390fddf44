"""Vectors of an index on disk: the file of rows, their layout for exact search, and codes for fast search.

The codes propose a few candidates for each requested neighbour, and these are compared exactly. Neighbours that the
codes miss are lost, so every answer reports their recall. It is measured on the index's own items when the codes are
built, and again whenever a tenth of the items has changed. The codes are a cache, identified by the checksums of the
rows that they were built from.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Float32, Int64, Real
from numpy.typing import NDArray

from vicinal._util.files import CachedFile, sync_file, write_at
from vicinal.errors import DataError, MissingExtra
from vicinal.index.stores.catalogue import Block

__all__ = ["WORTHWHILE", "FastCodes", "LayoutFile", "append_rows", "damaged_blocks", "map_rows", "now"]


# vectors.f32, vectors.i8: rows of float32 or 8-bit integers, one after another, and nothing else.
#
# Rows are only ever appended. The header of the index says which of the two files it has.

BLOCK_ROWS = 4096  # rows per checksum
KIND = np.dtype("<f4")


def append_rows(path: Path, rows: NDArray[Any], first: int) -> list[Block]:
    """Write rows past the committed end, and sync them; any bytes there were never committed.

    Args:
        path: The file.
        rows: Rows to append; 8-bit integers are written as they are, anything else as float32.
        first: Number of committed rows.

    Returns:
        Blocks that the catalogue must commit for the rows to exist.
    """
    content = np.ascontiguousarray(rows, dtype=rows.dtype if rows.dtype == np.int8 else KIND)
    write_at(path, first * content.shape[1] * content.itemsize, content.data)
    sync_file(path)
    return [
        Block(first + start, len(part), _longest(part), hashlib.sha256(part.data).hexdigest())
        for start in range(0, len(content), BLOCK_ROWS)
        for part in [content[start : start + BLOCK_ROWS]]
    ]


def map_rows(path: Path, finish: int, dim: int, kind: np.dtype[Any] = KIND) -> NDArray[Any]:
    """Return the committed rows as a memory map."""
    if not finish:
        return np.empty((0, dim), kind)
    needed, there = finish * dim * kind.itemsize, path.stat().st_size if path.is_file() else 0
    if there < needed:
        raise DataError(
            f"{path} has {there:,} bytes, but {needed:,} were written and committed: it was cut short.",
            hint="Restore it from a copy, or build the index again.",
        )
    return np.memmap(path, kind, "r", shape=(finish, dim))


def damaged_blocks(rows: NDArray[Any], blocks: list[Block]) -> Iterator[Block]:
    """Yield the blocks that differ from what was written."""
    for block in blocks:
        part = np.ascontiguousarray(rows[block.first : block.first + block.many])
        right = len(part) == block.many and hashlib.sha256(part.data).hexdigest() == block.sha256
        if not right or _longest(part) != block.longest:
            yield block


def _longest(rows: NDArray[Any]) -> float:
    return float(np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1).max())) if len(rows) else 0.0


# layout.npz: rows of a vector file as exact search needs them, so that the first search after opening is fast. It is a
# cache, identified by the checksums of the rows that it was built from.

LAYOUT = "layout.npz"
WORTHWHILE = 1 << 15  # rows below which preparing is as fast as reading
LAYOUT_VERSION = 2


class LayoutFile:
    """Caches the layout of the first rows of a vector file.

    Args:
        folder: Folder of the store.
    """

    def __init__(self, folder: Path) -> None:
        self._file = CachedFile(folder / LAYOUT, LAYOUT_VERSION)

    def read(self, blocks: Sequence[Block]) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """Return the number of rows in the layout, and the layout; None if there is none for these rows.

        Args:
            blocks: Blocks of all rows.
        """
        cached = self._file.read(lambda about: checksum_of_rows(blocks, about["rows"]) == about["vectors"])
        if cached is None:
            return None
        with np.load(io.BytesIO(cached[0].data), allow_pickle=False) as arrays:
            return int(cached[1]["rows"]), dict(arrays)

    def write(self, blocks: Sequence[Block], layout: Mapping[str, NDArray[Any]]) -> None:
        """Cache the layout of all rows."""
        rows = blocks[-1].first + blocks[-1].many
        content = io.BytesIO()
        arrays: dict[str, Any] = dict(layout)
        np.savez(content, **arrays)
        self._file.write(content.getbuffer(), {"rows": rows, "vectors": checksum_of_rows(blocks, rows)})


def checksum_of_rows(blocks: Sequence[Block], rows: int) -> str:
    """Return a checksum of the first rows, from those of their blocks; empty if they do not end at a block."""
    total, finish = hashlib.sha256(), 0
    for block in blocks:
        if finish >= rows:
            break
        total.update(block.sha256.encode())
        finish = block.first + block.many
    return total.hexdigest() if finish == rows else ""


CODES = "codes.faiss"
CODES_VERSION = 3
CANDIDATES = 128  # minimum number of candidates per query
PER_NEIGHBOUR = 8  # candidates per requested neighbour
SMALLEST_SHARE = 1 / 16  # share of allowed rows below which exact search of these is as fast
TRIED = 64  # queries that measure the recall
NEIGHBOURS = 10  # neighbours of each of these queries
CHANGED = 0.1  # share of changed rows after which the recall is measured again
WORSE = 0.01  # drop in recall since the codes were built after which they are rebuilt
SAVE_AFTER = 1.25  # growth in rows after which the codes are saved again
STEP = 1 << 16  # rows encoded at a time

Exact = Callable[[Float32[np.ndarray, "n d"], int], Int64[np.ndarray, "n k"]]


@dataclass(frozen=True)
class MeasuredRecall:
    """Measured recall of the codes.

    Attributes:
        share: Share of the nearest rows that are found.
        when: UTC time of the measurement.
        rows: Number of rows at that time.
        dead: Number of these rows that no item used any longer.
        at_first: Share when the codes were built.
    """

    share: float
    when: str
    rows: int
    dead: int
    at_first: float


@final
class FastCodes:
    """Codes of the rows of a file that may grow between searches.

    Args:
        folder: Folder of the cache.
        distance: "cosine" or "euclidean".
    """

    def __init__(self, folder: Path, distance: str) -> None:
        self.distance = distance
        self._file = CachedFile(folder / CODES, CODES_VERSION)
        self._codes: Any = None
        self._recall: MeasuredRecall | None = None
        self._saved = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Memory of the codes in bytes; 0 before the first search that uses them."""
        codes = self._codes
        return 0 if codes is None else int(codes.ntotal) * int(codes.code_size)

    def candidates(
        self,
        rows: Real[np.ndarray, "m d"],
        queries: Float32[np.ndarray, "n d"],
        k: int,
        allowed: Bool[np.ndarray, " m"] | None,
        alive: Bool[np.ndarray, " m"] | None,
        exact: Exact,
        blocks: Callable[[], Sequence[Block]],
    ) -> tuple[Int64[np.ndarray, "n c"], MeasuredRecall] | None:
        """Return rows that should include the k nearest, and the recall; None if exact search is preferable.

        Args:
            rows: All rows of the file.
            queries: The queries.
            k: Number of neighbours.
            allowed: Mask of the rows that may be returned; None for all.
            alive: Mask of the rows that items use; None for all.
            exact: Function that finds the nearest of these rows exactly, to measure the recall.
            blocks: Function that returns the blocks of all rows, with their checksums.
        """
        if not _worthwhile(rows, k, allowed):
            return None
        with self._lock:
            recall = self._fit(rows, alive, exact, blocks)
            proposed = None if recall is None else self._among(rows, queries, k, allowed)
        return None if recall is None or proposed is None else (proposed, recall)

    def _among(
        self,
        rows: Real[np.ndarray, "m d"],
        queries: Float32[np.ndarray, "n d"],
        k: int,
        allowed: Bool[np.ndarray, " m"] | None,
    ) -> Int64[np.ndarray, "n c"] | None:
        """Return the allowed candidates, padded with -1; None if some query has fewer than k."""
        proposed = self._codes.search(self._laid(queries), _wanted(k, allowed))[1]
        proposed = proposed[:, (proposed >= 0).all(axis=0)]
        if allowed is None:
            return proposed if proposed.shape[1] >= k else None
        may = allowed[proposed]
        counts = may.sum(axis=1)
        if counts.min() < k:
            return None
        first = np.argsort(~may, axis=1, kind="stable")[:, : counts.max()]
        return np.take_along_axis(np.where(may, proposed, -1), first, axis=1)

    def _fit(
        self,
        rows: Real[np.ndarray, "m d"],
        alive: Bool[np.ndarray, " m"] | None,
        exact: Exact,
        blocks: Callable[[], Sequence[Block]],
    ) -> MeasuredRecall | None:
        """Bring the codes up to date and return their recall, or None if the caller reads an older snapshot."""
        if self._codes is None and not self._read(rows.shape[1], blocks()):
            self._make(rows)
        if self._codes.ntotal > len(rows):
            return None
        self._extend(rows)
        dead = 0 if alive is None else int(len(alive) - alive.sum())
        before = self._recall
        if before is None or len(rows) - before.rows + abs(dead - before.dead) >= CHANGED * before.rows:
            share = self._measured(rows, alive, exact)
            if before is not None and share < before.at_first - WORSE:
                self._make(rows)  # trained on the current data
                self._extend(rows)
                before, share = None, self._measured(rows, alive, exact)
            self._recall = MeasuredRecall(share, now(), len(rows), dead, share if before is None else before.at_first)
        if len(rows) >= SAVE_AFTER * self._saved:
            self._write(blocks())
        return self._recall

    def _make(self, rows: Real[np.ndarray, "m d"]) -> None:
        faiss = _faiss()
        self._codes = faiss.IndexRaBitQFastScan(rows.shape[1], faiss.METRIC_L2)
        sampled = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), STEP)).astype(np.int64))
        self._codes.train(self._laid(rows[sampled]))
        self._recall, self._saved = None, 0

    def _extend(self, rows: Real[np.ndarray, "m d"]) -> None:
        for start in range(self._codes.ntotal, len(rows), STEP):
            self._codes.add(self._laid(rows[start : start + STEP]))

    def _laid(self, rows: Real[np.ndarray, "m d"]) -> Float32[np.ndarray, "m d"]:
        """Return the rows so that their Euclidean order is that of the index's distance."""
        if self.distance == "euclidean":
            return np.ascontiguousarray(rows, dtype=np.float32)
        lengths = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1, keepdims=True))
        return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def _measured(self, rows: Real[np.ndarray, "m d"], alive: Bool[np.ndarray, " m"] | None, exact: Exact) -> float:
        """Return the share of the nearest rows of some items (not counting themselves) that are candidates."""
        there = np.arange(len(rows)) if alive is None else np.flatnonzero(alive)
        tried = there[np.unique(np.linspace(0, len(there) - 1, TRIED).astype(np.int64))]
        sought = rows[tried].astype(np.float32)
        proposed = self._among(rows, sought, NEIGHBOURS, alive)
        if proposed is None:
            return 1.0  # exact search is used instead
        right = exact(sought, min(NEIGHBOURS + 1, len(there)))
        hits = [set(mine[mine != own].tolist()) for own, mine in zip(tried, right, strict=True)]
        hit_count = sum(len(mine & set(candidates)) for mine, candidates in zip(hits, proposed.tolist(), strict=True))
        return hit_count / max(1, sum(map(len, hits)))

    def _read(self, dim: int, blocks: Sequence[Block]) -> bool:
        cached = self._file.read(
            lambda about: about["dim"] == dim and checksum_of_rows(blocks, about["rows"]) == about["vectors"]
        )
        if cached is None:
            return False
        try:
            codes = _faiss().deserialize_index(cached[0])
        except RuntimeError:  # written by another version of faiss
            return False
        self._codes, self._recall = codes, MeasuredRecall(**cached[1]["recall"])
        self._saved = int(codes.ntotal)
        return True

    def _write(self, blocks: Sequence[Block]) -> None:
        assert self._recall is not None
        rows = int(self._codes.ntotal)
        about = {"rows": rows, "dim": int(self._codes.d), "vectors": checksum_of_rows(blocks, rows)}
        self._file.write(_faiss().serialize_index(self._codes).tobytes(), {**about, "recall": asdict(self._recall)})
        self._saved = rows


def now() -> str:
    """Return the current UTC time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _wanted(k: int, allowed: Bool[np.ndarray, " m"] | None) -> int:
    """Return the number of candidates to request, so that enough of them are allowed."""
    share = 1.0 if allowed is None else float(allowed.mean())
    return int(max(CANDIDATES, PER_NEIGHBOUR * k) / max(share, 1e-9))


def _worthwhile(rows: Real[np.ndarray, "m d"], k: int, allowed: Bool[np.ndarray, " m"] | None) -> bool:
    share = 1.0 if allowed is None else float(allowed.mean())
    return share >= SMALLEST_SHARE and _wanted(k, allowed) < len(rows)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss", "search with fast=True") from None
    return faiss
