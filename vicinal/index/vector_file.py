"""vectors.f32: rows of float32, one after the other, and nothing else; rows are only ever added at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import DataError
from vicinal.index.catalogue import Block
from vicinal.index.durable_files import sync_file, write_at

__all__ = ["append_rows", "damaged_blocks", "map_rows"]

BLOCK_ROWS = 4096  # of which one checksum is kept
KIND = np.dtype("<f4")


def append_rows(path: Path, rows: NDArray[np.float32], first: int) -> list[Block]:
    """Write rows past the end that is committed, and sync them; what lay there was never committed.

    Returns:
        What the catalogue has to commit for the rows to exist.
    """
    content = np.ascontiguousarray(rows, dtype=KIND)
    write_at(path, first * content.shape[1] * KIND.itemsize, content.data)
    sync_file(path)
    return [
        Block(first + start, len(part), _longest(part), hashlib.sha256(part.data).hexdigest())
        for start in range(0, len(content), BLOCK_ROWS)
        for part in [content[start : start + BLOCK_ROWS]]
    ]


def map_rows(path: Path, finish: int, dim: int) -> NDArray[np.float32]:
    """The rows that are committed, read from the file as they are used."""
    if not finish:
        return np.empty((0, dim), np.float32)
    needed, there = finish * dim * KIND.itemsize, path.stat().st_size if path.is_file() else 0
    if there < needed:
        raise DataError(
            f"{path} has {there:,} bytes, but {needed:,} were written and committed: it was cut short.",
            hint="Restore it from a copy, or build the index again.",
        )
    return np.memmap(path, KIND, "r", shape=(finish, dim))


def damaged_blocks(rows: NDArray[np.float32], blocks: list[Block]) -> Iterator[Block]:
    """The blocks that are not what was written."""
    for block in blocks:
        part = np.ascontiguousarray(rows[block.first : block.first + block.many])
        right = len(part) == block.many and hashlib.sha256(part.data).hexdigest() == block.sha256
        if not right or _longest(part) != block.longest:
            yield block


def _longest(rows: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1).max())) if len(rows) else 0.0
