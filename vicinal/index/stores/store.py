"""`Store`: the interface between an index and the storage of its items; `Answer`: the result of a search."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.index.filters import Condition, Kind, Value
from vicinal.index.item import Header, Id, Item

__all__ = ["Answer", "Store"]


@dataclass(frozen=True)
class Answer:
    """Result of a search.

    Attributes:
        ids: Ids of the nearest items of each query, nearest first, ties by id; as many columns as there are items that
            pass the filter, at most k.
        similarities: Cosine, or negative Euclidean distance.
        items: All items in the answer by id, if requested.
        recall: Share of the k nearest items that this search method finds, as measured; 1 if it is exact.
        measured: UTC time of that measurement (`2031-05-04T12:30:00+00:00`); empty for an exact answer.
        improved: Transformation of all vectors before the search; see `Index.improve`.
    """

    ids: NDArray[Any]
    similarities: Float64[np.ndarray, "n k"]
    items: Mapping[Id, Item] = field(default_factory=dict)
    recall: float = 1.0
    measured: str = ""
    improved: str = ""

    @property
    def exact(self) -> bool:
        """Whether the search was exhaustive; a measured recall of 1 does not imply that."""
        return self.recall == 1 and not self.measured


@runtime_checkable
class Store(Protocol):
    """Stores items and their vectors; several threads may search while one of them writes.

    A store inherits from this class and implements the abstract methods. The others have defaults that read all items
    or do nothing; override those that the store can do better. `vicinal.testing.check_store` tests a store.

    Attributes:
        header: Properties shared by all vectors; vectors of another dimension are refused.
        url: Address of the server that stores the items; empty for a store in the folder of the index.
    """

    header: Header
    url: str = ""

    @abstractmethod
    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Add items atomically; they replace those with the same ids, and are durable when this returns."""

    @abstractmethod
    def delete(self, where: Condition) -> int:
        """Remove the items that pass a filter, and return their number."""

    @abstractmethod
    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """Return the items that pass a filter, ordered by id, and their vectors if `vectors` is True."""

    @abstractmethod
    def search(
        self,
        queries: Float32[np.ndarray, "n d"],
        k: int,
        where: Condition | None = None,
        *,
        fast: bool = False,
        items: bool = True,
    ) -> Answer:
        """Find the k nearest of the items that pass a filter; fewer only if fewer pass it."""

    @abstractmethod
    def count(self, where: Condition | None = None) -> int:
        """Return the number of items, or of those that pass a filter."""

    @abstractmethod
    def verify(self) -> list[str]:
        """Check the stored data and return all problems, one sentence each."""

    @abstractmethod
    def columns(self) -> Mapping[str, Kind | None]:
        """Return the kind of value that each column holds; None for one that is empty so far."""

    @abstractmethod
    def version(self) -> int | str:
        """Return the version of the content, which changes with every write."""

    @abstractmethod
    def close(self) -> None:
        """Release files and connections."""

    def page(
        self, where: Condition | None = None, *, vectors: bool = True, limit: int = -1, offset: int = 0
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """Return some of what `get` returns; the default reads all of it.

        Args:
            where: Filter on the items.
            vectors: Whether to return the vectors, too.
            limit: Largest number of items; -1 for all.
            offset: Number of items to skip.
        """
        items, rows = self.get(where, vectors=vectors)
        end = None if limit < 0 else offset + limit
        return items[offset:end], rows[offset:end]

    def labels(self, most: int) -> list[Value]:
        """Return the distinct labels, sorted, at most `most` of them; the default reads all items."""
        labels: set[Any] = {item.label for item in self.get(vectors=False)[0] if item.label is not None}
        return sorted(labels)[:most]

    def path_range(self) -> tuple[str, str] | None:
        """Return the first and the last path in string order, or None if no item has one.

        The default reads all items.
        """
        paths = [item.path for item in self.get(vectors=False)[0] if item.path is not None]
        return (min(paths), max(paths)) if paths else None

    def sample(self, many: int, seed: int = 0) -> Float32[np.ndarray, "n d"]:
        """Return the vectors of some items, drawn at random; the default reads all vectors."""
        rows = self.get()[1]
        chosen = np.random.default_rng(seed).choice(len(rows), min(many, len(rows)), replace=False)
        return rows[np.sort(chosen)]

    def space(self) -> tuple[int | None, int | None, int | None]:
        """Return the bytes that exact search holds in memory, that fast search adds, and that are on disk.

        The default returns None for each.
        """
        return None, None, None

    def declare(self, columns: Mapping[str, Kind | None]) -> None:
        """Declare columns before any item uses them; the default does nothing until the first value."""
        return

    def prepare_fast(self, *, half: bool = False) -> float:
        """Build the index that `fast=True` uses, and return its recall; the default has nothing to build.

        Args:
            half: Whether half precision is enough.
        """
        raise InputError("This store needs no preparation: its first search with fast=True makes what it needs.")

    def dead(self) -> int | None:
        """Return the number of rows that `Index.compact` would free; None, the default, if it cannot be compacted."""
        return None

    def drop(self) -> bool:
        """Remove the whole store from its server, unless another client has it open; return whether it was removed.

        The default removes nothing, so that old generations stay.
        """
        return False
