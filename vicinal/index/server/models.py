"""Replies of the server: models of what it answers, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "CalibrationReply",
    "ChangedItems",
    "ChangesReply",
    "ConfusedReply",
    "DuplicatesReply",
    "ErrorReply",
    "HealthReply",
    "InfoReply",
    "ItemReply",
    "ItemsReply",
    "MapIdsReply",
    "MapPlaceReply",
    "MapReply",
    "MislabelledReply",
    "NewItems",
    "NewPicture",
    "QueryReply",
    "ReadyReply",
    "Refusal",
    "ReviewReply",
    "SameBody",
    "SameReply",
    "SearchBody",
    "SearchReply",
    "WhyReply",
    "WireId",
    "WorkingReply",
    "refused",
]


# Refusals: replies to requests that cannot be answered, in one sentence.


class Refusal(Exception):
    """Error that refuses a request.

    Args:
        status: Status of the reply: 4xx, or 503 if the request may be retried later.
        sentence: Sentence that says what is wrong, and what to do.
        headers: Additional headers of the reply.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


def refused(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the reply that refuses a request."""
    return JSONResponse({"error": sentence}, status, dict(headers or {}))


WireId = int | str
WireValue = str | int | float | bool
Vector = Annotated[list[float], Field(min_length=1, max_length=65536)]


class Strict(BaseModel):
    """A body in which nothing is unknown: a misspelt word is told, not passed over."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SearchBody(Strict):
    """A query that is no picture: an item of the index, or a vector."""

    item: WireId | None = None
    vector: Vector | None = None

    @model_validator(mode="after")
    def _one(self) -> SearchBody:
        if (self.item is None) == (self.vector is None):
            raise ValueError("give one of item and vector")
        return self


class SameBody(Strict):
    """Two things that are no pictures."""

    a: SearchBody
    b: SearchBody


class NewPicture(Strict):
    """What is said of a picture that is added, each value of the kind that it has."""

    id: WireId
    label: WireValue | None = None
    metadata: dict[str, WireValue | None] = {}


class ChangedItems(Strict):
    """Other values for some items; null takes a value away."""

    where: Annotated[str, Field(min_length=1, max_length=10_000)]
    values: Annotated[dict[str, WireValue | None], Field(min_length=1)]


class NewItems(Strict):
    """Vectors to be added; pictures are sent as multipart."""

    vectors: Annotated[list[Vector], Field(min_length=1, max_length=10_000)]
    ids: list[WireId]
    labels: list[WireValue | None] | None = None
    metadata: dict[str, list[WireValue | None]] | None = None
    embedder: str | None = None

    @model_validator(mode="after")
    def _rectangular(self) -> NewItems:
        lengths = sorted({len(vector) for vector in self.vectors})
        if len(lengths) > 1:
            raise ValueError(f"all vectors must have the same length; there are some of {lengths[0]} and {lengths[-1]}")
        return self


class ErrorReply(BaseModel):
    """What was wrong, in one sentence."""

    error: str


class Shown(BaseModel):
    """What is shown of an item everywhere."""

    id: WireId
    path: str | None = None
    label: Any = None
    metadata: dict[str, Any] = {}
    image: str | None = Field(None, description="The address of its picture, if it has one.")


class ItemReply(Shown):
    """An item of the index."""

    source: str | None = None
    stamp: str | None = None
    hash: str | None = None
    vector: list[float] | None = Field(None, description="Its embedding, if it was asked for.")


class HitReply(Shown):
    """An item that was found."""

    similarity: float = Field(description="The cosine, or minus the Euclidean distance: the larger, the nearer.")
    same: bool | None = Field(None, description="Whether it is of the query's class, where the model is calibrated.")
    probability: float | None = None


class QueryReply(BaseModel):
    """What was asked for, if it is an item."""

    item: WireId | None = None
    label: Any = None


class SearchReply(BaseModel):
    """The nearest items of a query, nearest first, ties by id."""

    hits: list[HitReply]
    exact: bool
    recall: float = Field(description="The share of the k nearest that this way of searching finds; 1 if exact.")
    measured: str = Field("", description="When that was measured, in UTC; empty if exact.")
    improved: str = Field("", description="What the index does to vectors before it searches: whitened, augmented.")
    expanded: int = Field(0, description="Items that the query was averaged with; similarities stay its own.")
    reranked: bool = Field(False, description="Whether hits are re-ranked by shared neighbours.")
    milliseconds: float
    generation: str
    query: QueryReply
    upload: str | None = Field(None, description="Names the uploaded query for some minutes.")


class ItemsReply(BaseModel):
    """Some of the items that pass a filter, in the order of their ids."""

    items: list[ItemReply]
    count: int = Field(description="Of all that pass.")
    generation: str


class ChangesReply(BaseModel):
    """What was changed."""

    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    skipped: list[tuple[str, str]] = []


class SameReply(BaseModel):
    """Whether two things are of one class, and at which error that is said; null where nothing is calibrated."""

    similarity: float
    same: bool | None = None
    probability: float | None = None
    threshold: float | None = None
    false_matches: float | None = None
    level: str | None = Field(None, description="estimate, bound, average or guarantee.")


class CalibrationReply(BaseModel):
    """From which similarity on hits are called the same, as the embedder's `calibration.json` has it."""

    calibration: dict[str, Any] | None


class HealthReply(BaseModel):
    """Whether the server is there."""

    status: str


class InfoReply(BaseModel):
    """What is served."""

    name: str
    count: int
    dim: int
    distance: str
    numbers: str = Field("float32", description="What vectors are kept in, among which search is exact.")
    columns: dict[str, str | None]
    labels: list[Any]
    calibrated: bool
    threshold: float | None
    claim: str = Field("", description="Sentence about the false matches at the threshold.")
    improved: str
    generation: str
    fast: bool
    writable: bool
    has_images: bool
    can_embed: bool
    embedder: str
    version: str


# Replies of the routes that look at an index as a whole: its map, its review queues, and explanations of hits.
#
# Optional values (the decision on an item, the curve of a loss) are left out of a reply that has none.


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
    claim: str | None = Field(description="Sentence about the false matches at the threshold.")
    loss: LossReply
