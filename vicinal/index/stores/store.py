"""Store: what an index asks of the place where its items are kept."""

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
    """What a search found.

    Attributes:
        ids: Of the nearest items of each query, nearest first, ties by id; as many columns as there are items that
            may be found, at most k.
        similarities: The cosine, or minus the distance.
        items: Every item that was found, if it was asked for.
        recall: The share of the k nearest that this way of searching finds, as measured; 1 if it is exact.
        measured: When that was measured, in UTC (`2031-05-04T12:30:00+00:00`); empty for an answer that is exact.
        improved: What was done to all vectors before, among which the nearest were then found; see `Index.improve`.
    """

    ids: NDArray[Any]
    similarities: Float64[np.ndarray, "n k"]
    items: Mapping[Id, Item] = field(default_factory=dict)
    recall: float = 1.0
    measured: str = ""
    improved: str = ""

    @property
    def exact(self) -> bool:
        """Whether nothing can have been missed; a recall that was measured as 1 does not say so."""
        return self.recall == 1 and not self.measured


@runtime_checkable
class Store(Protocol):
    """Keeps items and their vectors; several threads may search at once, while one of them changes it.

    A store inherits from this class and writes the abstract methods. The others have defaults, which read all items or
    say that there is nothing to do; a store overrides those that it can do better. `vicinal.testing.check_store` tries
    one out.

    Attributes:
        header: What all vectors have in common; vectors of another length are refused.
        url: Address of the server that keeps the items; empty for a store in the folder of the index.
    """

    header: Header
    url: str = ""

    @abstractmethod
    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Keep items, in place of those of the same id: all or none, and safely by the time that it returns."""

    @abstractmethod
    def delete(self, where: Condition) -> int:
        """Remove the items that pass a filter, and return their number."""

    @abstractmethod
    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """Return the items that pass a filter in the order of their ids, and their vectors (or none of them)."""

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
        """Return everything that is not as it was written, one sentence each."""

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
            where: Filter.
            vectors: Whether the vectors are wanted, too.
            limit: Largest number of items; -1 for all.
            offset: Number of items to leave out before them.
        """
        items, rows = self.get(where, vectors=vectors)
        end = None if limit < 0 else offset + limit
        return items[offset:end], rows[offset:end]

    def labels(self, most: int) -> list[Value]:
        """Return the labels that occur, in order and at most so many; the default reads all items."""
        labels: set[Any] = {item.label for item in self.get(vectors=False)[0] if item.label is not None}
        return sorted(labels)[:most]

    def path_range(self) -> tuple[str, str] | None:
        """Return the first and the last path in the order of texts, or None if no item has one.

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
        """Return the bytes that exact search holds in memory, that fast search adds, and that are on the disk.

        The default knows none of them.
        """
        return None, None, None

    def declare(self, columns: Mapping[str, Kind | None]) -> None:
        """Make columns known before any item has a value in them; the default waits for the first value."""
        return

    def prepare_fast(self, *, half: bool = False) -> float:
        """Prepare what `fast=True` searches by, and return its recall; the default has nothing to prepare.

        Args:
            half: Whether half precision is enough.
        """
        raise InputError("This store needs no preparation: its first search with fast=True makes what it needs.")

    def dead(self) -> int | None:
        """Return the number of rows that `Index.compact` would free; None, the default, if it cannot be compacted."""
        return None

    def drop(self) -> bool:
        """Remove the whole store from its server, unless somebody has it open; return whether that was done.

        The default removes nothing, so that former generations stay.
        """
        return False
