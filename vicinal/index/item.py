"""`Item`: the data of one item apart from its embedding. `Header`: the properties shared by all embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.index.filters import BUILT_IN, Kind, Value, joint_kind

__all__ = ["Header", "Id", "Item", "check_dim", "widened"]

Id: TypeAlias = int | str


@dataclass(frozen=True)
class Item:
    """One item of an index.

    Attributes:
        id: Unique string or integer, of the same type in the whole index.
        path: Path of its file.
        label: Class of the item.
        metadata: Other values, by column.
        source: Folder, table or dataset that listed the item, by which `refresh` detects removed items.
        stamp: Size and modification time of its file when it was embedded.
        hash: SHA-256 of its content.
    """

    id: Id
    path: str | None = None
    label: Value | None = None
    metadata: Mapping[str, Value] = field(default_factory=dict)
    source: str | None = None
    stamp: str | None = None
    hash: str | None = None

    def values(self) -> dict[str, Value | None]:
        """Return all values that a filter can test, by column."""
        own: dict[str, Value | None] = {
            "id": self.id,
            "path": self.path,
            "label": self.label,
            "source": self.source,
            "stamp": self.stamp,
            "hash": self.hash,
        }
        return own | dict(self.metadata)


@dataclass(frozen=True)
class Header:
    """Properties shared by all vectors of an index.

    Attributes:
        dim: Dimension of the vectors.
        distance: "cosine" or "euclidean".
        embedder: SHA-256 of the embedder's settings and weights; empty if the vectors were made elsewhere.
        numbers: Number format of the stored vectors: "float32" or "int8". Exact search is exact among these.
    """

    dim: int
    distance: str = "cosine"
    embedder: str = ""
    numbers: str = "float32"


def check_dim(rows: NDArray[np.float32], dim: int) -> None:
    """Refuse vectors of another dimension."""
    if rows.shape[1] != dim:
        raise InputError(
            f"The vectors of this index have {dim} numbers; got {rows.shape[1]}. Embed with the same model."
        )


def widened(before: Mapping[str, Kind | None], items: Sequence[Item]) -> dict[str, Kind | None]:
    """Return the kind of each column after adding items: existing columns first, then new ones in order of the items.

    Raises:
        InputError: If a value does not fit its column.
    """
    names = dict.fromkeys([*before, *(name for item in items for name in item.metadata)])
    return {
        name: joint_kind(
            name,
            (getattr(item, name) if name in BUILT_IN else item.metadata.get(name) for item in items),
            before.get(name),
        )
        for name in names
    }
