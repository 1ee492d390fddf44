"""Replies of the routes that look at an index as a whole: its map, its queues of doubtful items, and why a hit is one.

A value that a reply has only sometimes (the decision on an item, the curve of a loss) is left out where it has none.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vicinal.index.server.wire_models import ItemReply, WireId

__all__ = [
    "ConfusedReply",
    "DuplicatesReply",
    "MapIdsReply",
    "MapPlaceReply",
    "MapReply",
    "MislabelledReply",
    "ReadyReply",
    "ReviewReply",
    "WhyReply",
    "WorkingReply",
]


class WholeReply(BaseModel):
    """A reply of which the model names every value: one that it does not name would be left out without a word."""

    model_config = ConfigDict(extra="forbid")


class WorkingReply(WholeReply):
    """That it is being made; ask again."""

    working: str = Field(description="A sentence for people.")


class MapReply(WholeReply):
    """What `/map/points` sends."""

    count: int = Field(description="Of the items.")
    names: list[Any] = Field(description="The labels; a point's number is a place in this list.")
    method: str = Field(description="How the places were found.")
    landmarks: int = Field(description="Items that were laid out together; the others are placed between them.")
    generation: str


class MapIdsReply(WholeReply):
    """Which items some points are."""

    ids: list[WireId]


class MapPlaceReply(WholeReply):
    """Which point an item is."""

    place: int


class ReadyReply(WholeReply):
    """That the table can be fetched."""

    ready: bool


class ReviewReply(WholeReply):
    """What was decided on an item."""

    decision: str
    new_label: str | None


class ReviewedItem(ItemReply):
    """An item, and what was decided on it before."""

    model_config = ConfigDict(extra="forbid")

    review: ReviewReply | None = None


class ConfusedPairReply(WholeReply):
    """An item, and the item of another class that is nearest to it."""

    item: ReviewedItem
    nearest: ReviewedItem
    similarity: float


class ConfusedClassesReply(WholeReply):
    """Two classes, and how often one is taken for the other."""

    first: Any
    second: Any
    first_as_second: int = Field(description="Items of the first whose nearest is of the second.")
    second_as_first: int
    items: int = Field(description="Of both classes, that were asked for their nearest.")
    share: float = Field(description="Of these that are taken for the other class.")
    examples: list[ConfusedPairReply]


class ConfusedReply(WholeReply):
    """Classes that are taken for each other, the most often first."""

    entries: list[ConfusedClassesReply]
    count: int = Field(description="Of all such pairs of classes.")
    asked: int | None = Field(description="How many items were asked, where that was not all of them.")


class SuspectReply(WholeReply):
    """An item whose label may be wrong."""

    item: ReviewedItem
    proposed: str = Field(description="The label of the items around it.")
    score: float
    own: list[ReviewedItem] = Field(description="The nearest of its own label.")
    other: list[ReviewedItem] = Field(description="The nearest of the proposed one.")


class MislabelledReply(WholeReply):
    """Items whose label may be wrong, the most suspicious first."""

    entries: list[SuspectReply]
    count: int
    reviewed: int = Field(description="Items that were decided on.")
    next_undecided: int | None = Field(description="The first case after these that waits for a decision.")


class DuplicateGroupReply(WholeReply):
    """Items that are the same, or nearly."""

    items: list[ReviewedItem]
    more: int = Field(description="Items of the group beyond those that are listed.")
    labels: list[Any] = Field(description="Those that occur; a contradiction if there are several.")
    kinds: list[str]
    similarity: float = Field(description="Of the least similar two that were linked.")


class DuplicatesReply(WholeReply):
    """Groups of items that are the same, or nearly."""

    entries: list[DuplicateGroupReply]
    count: int
    reviewed: int = Field(description="Items that were decided on.")
    next_undecided: int | None = Field(description="The first group after these that waits for a decision.")


class NearClass(WholeReply):
    """A class among the nearest items."""

    label: Any
    items: int
    best: float = Field(description="The highest similarity.")


class NearCentre(WholeReply):
    """A class, and how similar its centre is."""

    label: Any
    similarity: float


class HitCentre(WholeReply):
    """The centre of the hit's class."""

    rank: int = Field(description="Among all centres, 1 for the nearest.")
    similarity: float


class LossCurve(WholeReply):
    """How strongly a loss pulls and pushes a pair, over its similarity."""

    similarity: list[float]
    pull: list[float]
    push: list[float]


class LossReply(WholeReply):
    """What the model's loss would do to the pair; `unknown` alone where that cannot be said."""

    unknown: str | None = None
    name: str | None = None
    options: dict[str, Any] | None = None
    mining: str | None = None
    at: float | None = None
    together: bool | None = Field(None, description="Whether both have the same label, where both have one.")
    sentence: str | None = None
    note: str | None = None
    pull_weight: float | None = None
    push_weight: float | None = None
    curve: LossCurve | None = None


class WhyReply(WholeReply):
    """Why a hit was found."""

    similarity: float
    distance: str
    rank: int = Field(description="1 for the nearest of all items.")
    items: int = Field(description="Beside the query.")
    nearest: int = Field(description="Items that the classes are those of.")
    classes: list[NearClass] = Field(description="Most items first.")
    centres: list[NearCentre] = Field(description="The nearest and the runner-up.")
    hit_centre: HitCentre | None
    threshold: float | None
    same: bool | None
    probability: float | None
    false_matches: float | None
    loss: LossReply
