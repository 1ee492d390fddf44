"""layout.npz: rows of a vector file as exact search wants them, so that the first search after opening is quick.

A cache: it names the rows that it was made of by their checksums and has one of its own. What is missing, damaged or of
other rows is made anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.atomic import replacing, write_atomically
from vicinal.errors import DataError
from vicinal.index.catalogue import Block

__all__ = ["WORTHWHILE", "LayoutFile", "checksum_of_rows"]

LAYOUT, ABOUT = "layout.npz", "layout.json"
WORTHWHILE = 1 << 15  # rows, below which preparing is as quick as reading
VERSION = 1


class LayoutFile:
    """Keeps the layout of the first rows of a vector file.

    Args:
        folder: Where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, blocks: Sequence[Block]) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """How many rows are laid out, and their layout; `blocks` are those of all rows that there are."""
        try:
            about = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
            rows = int(about["rows"])
            if about["version"] != VERSION or checksum_of_rows(blocks, rows) != about["vectors"]:
                return None
            content = (self.folder / LAYOUT).read_bytes()
            if hashlib.sha256(content).hexdigest() != about["sha256"]:
                return None
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return rows, dict(arrays)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None

    def write(self, blocks: Sequence[Block], layout: Mapping[str, NDArray[Any]]) -> None:
        """Keep the layout of all rows; a folder that cannot be written to stays as it is."""
        rows = blocks[-1].first + blocks[-1].many
        content = io.BytesIO()
        arrays: dict[str, Any] = dict(layout)
        np.savez(content, **arrays)
        about = {
            "version": VERSION,
            "rows": rows,
            "vectors": checksum_of_rows(blocks, rows),
            "sha256": hashlib.sha256(content.getbuffer()).hexdigest(),
        }
        with suppress(DataError):
            with replacing(self.folder / LAYOUT) as file:
                file.write(content.getbuffer())
            write_atomically(self.folder / ABOUT, json.dumps(about) + "\n")


def checksum_of_rows(blocks: Sequence[Block], rows: int) -> str:
    """A checksum of the first rows, made of those of their blocks; empty if they do not end where a block does."""
    total, finish = hashlib.sha256(), 0
    for block in blocks:
        if finish >= rows:
            break
        total.update(block.sha256.encode())
        finish = block.first + block.many
    return total.hexdigest() if finish == rows else ""
