"""What an index asks of the place where its items are kept: six methods, and what these need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64
from numpy.typing import NDArray

from vicinal.index.filters import Condition, Kind
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

    `vicinal.testing.check_store` tries one out.

    Attributes:
        header: What it was made for; vectors of another length are refused.
    """

    @property
    def header(self) -> Header:
        """What all vectors have in common."""
        ...

    def add(self, items: Sequence[Item], vectors: Float32[np.ndarray, "n d"]) -> None:
        """Keep items, in place of those of the same id: all or none, and safely by the time that it returns."""
        ...

    def delete(self, where: Condition) -> int:
        """Remove the items that pass a filter, and say how many there were."""
        ...

    def get(
        self, where: Condition | None = None, *, vectors: bool = True
    ) -> tuple[list[Item], Float32[np.ndarray, "n d"]]:
        """The items that pass a filter in the order of their ids, and their vectors (or none of them)."""
        ...

    def search(
        self,
        queries: Float32[np.ndarray, "n d"],
        k: int,
        where: Condition | None = None,
        *,
        fast: bool = False,
        items: bool = True,
    ) -> Answer:
        """The k nearest of the items that pass a filter; fewer only if fewer pass it."""
        ...

    def count(self, where: Condition | None = None) -> int:
        """How many items there are, or pass a filter."""
        ...

    def verify(self) -> list[str]:
        """Everything that is not as it was written, one sentence each."""
        ...

    def columns(self) -> Mapping[str, Kind | None]:
        """What each column holds."""
        ...

    def version(self) -> int | str:
        """A name of what is in it now: another after every change, whoever makes it, and the same until then."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...
