"""Items as rows of a Milvus collection, and what of a filter the server may be told: digests, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from vicinal.index.columns import BUILT_IN
from vicinal.index.item import Item
from vicinal.index.where import And, Compare, Condition, In

__all__ = ["demanded", "in_partitions", "incomparable", "item_of", "key_of", "messages"]

MESSAGE = 16 << 20  # bytes of rows that are sent at a time; servers take 64 MiB unless told otherwise
RANGE = (1e-15, 1e15)  # lengths of vectors whose squares float32 has


def demanded(where: Condition | None, column: str) -> tuple[Any, ...] | None:
    """Values of which a column must have one for a filter to pass; None if the filter does not say."""
    if isinstance(where, In) and where.column == column:
        return where.values
    if isinstance(where, Compare) and where.column == column and where.operator == "=":
        return (where.value,)
    if isinstance(where, And):
        return next((values for part in where.parts if (values := demanded(part, column)) is not None), None)
    return None


def in_partitions(where: Condition | None) -> str:
    """A filter in Milvus's language for the partitions of the labels that are demanded; empty for all."""
    labels = demanded(where, "label")
    return "" if labels is None else f"part in {json.dumps(sorted({_part(label) for label in labels}))}"


def _part(label: Any) -> str:
    """A digest: letters and digits, whatever the label is. Equal numbers have one, whole or not."""
    plain = float(label) if isinstance(label, int) and not isinstance(label, bool) else label
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def key_of(key: Any) -> str:
    """A digest of an id, by which the server knows the item."""
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()


def _row(item: Item, vector: Float32[np.ndarray, " d"]) -> dict[str, Any]:
    own = {name: getattr(item, name) for name in BUILT_IN}
    body = {"own": own, "metadata": dict(item.metadata)}
    numbers = vector.tolist() if len(vector) > 1 else [*vector.tolist(), 0.0]
    return {"key": key_of(item.id), "part": _part(item.label), "body": {"item": json.dumps(body)}, "vector": numbers}


def messages(items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> Iterator[list[dict[str, Any]]]:
    """Rows as the server has them, as many at a time as it takes."""
    rows: list[dict[str, Any]] = []
    size = 0
    for item, vector in zip(items, vectors, strict=True):
        row = _row(item, vector)
        more = 4 * len(vector) + len(row["body"]["item"].encode()) + 200
        if rows and size + more > MESSAGE:
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += more
    if rows:
        yield rows


def incomparable(vectors: Float32[np.ndarray, "n d"], distance: str) -> bool:
    """Whether a server cannot compare some vector: float32 has not the square of its length, or it has no direction.

    Servers of version 2.3 leave vectors of zeros out of what they find by cosine.
    """
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1))
    outside = (lengths < RANGE[0]) | (lengths > RANGE[1])
    return bool((outside if distance == "cosine" else outside & (lengths > 0)).any())


def item_of(body: Mapping[str, str]) -> Item:
    """The item of a row."""
    content = json.loads(body["item"])  # as a text: JSON of Milvus has its own idea of numbers
    return Item(**content["own"], metadata=content["metadata"])
