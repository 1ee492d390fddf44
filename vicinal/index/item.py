"""Item: what an index knows about one thing, apart from its embedding; Header: what all embeddings have in common."""

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
    """One thing in an index.

    Attributes:
        id: A text or a whole number, the same kind in the whole index; no other item has it.
        path: Where its file is.
        label: Its class.
        metadata: Any other values, by column.
        source: The folder, table or dataset that it was listed in, from which `refresh` can tell what is gone.
        stamp: Size and time of change of its file when it was embedded.
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
        """Everything that a filter can ask for, by column."""
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
    """What holds for all vectors of an index.

    Attributes:
        dim: Numbers in a vector.
        distance: "cosine" or "euclidean".
        embedder: SHA-256 of the embedder's settings and weights; empty if the vectors were made elsewhere.
        numbers: What each number is kept in: "float32", or "int8", of which "exact" then speaks.
    """

    dim: int
    distance: str = "cosine"
    embedder: str = ""
    numbers: str = "float32"


def check_dim(rows: NDArray[np.float32], dim: int) -> None:
    """Refuse vectors of another length."""
    if rows.shape[1] != dim:
        raise InputError(
            f"The vectors of this index have {dim} numbers; got {rows.shape[1]}. Embed with the same model."
        )


def widened(before: Mapping[str, Kind | None], items: Sequence[Item]) -> dict[str, Kind | None]:
    """What each column holds once some items are added: those of before, then new ones in the order of the items.

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
