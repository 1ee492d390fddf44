"""Item: what an index knows about one thing, apart from its embedding; Header: what all embeddings have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from vicinal.index.where import Value

__all__ = ["Header", "Id", "Item"]

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
    """

    dim: int
    distance: str = "cosine"
    embedder: str = ""
