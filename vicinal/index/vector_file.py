"""vectors.f32, vectors.i8: rows of float32 or of 8-bit integers, one after the other, and nothing else.

Rows are only ever added at the end. Which of the two an index has, its header says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import DataError
from vicinal.index.catalogue import Block
from vicinal.index.durable_files import sync_file, write_at

__all__ = ["append_rows", "damaged_blocks", "map_rows"]

BLOCK_ROWS = 4096  # of which one checksum is kept
KIND = np.dtype("<f4")


def append_rows(path: Path, rows: NDArray[Any], first: int) -> list[Block]:
    """Write rows past the end that is committed, and sync them; what lay there was never committed.

    Args:
        path: The file.
        rows: Of 8-bit integers; anything else is written as float32.
        first: The row after the last that is committed.

    Returns:
        What the catalogue has to commit for the rows to exist.
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
    """The rows that are committed, read from the file as they are used."""
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
    """The blocks that are not what was written."""
    for block in blocks:
        part = np.ascontiguousarray(rows[block.first : block.first + block.many])
        right = len(part) == block.many and hashlib.sha256(part.data).hexdigest() == block.sha256
        if not right or _longest(part) != block.longest:
            yield block


def _longest(rows: NDArray[Any]) -> float:
    return float(np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1).max())) if len(rows) else 0.0
