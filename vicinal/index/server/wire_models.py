"""What goes over the wire: bodies of requests and replies."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "CalibrationReply",
    "ChangedItems",
    "ChangesReply",
    "ErrorReply",
    "HealthReply",
    "HitReply",
    "InfoReply",
    "ItemReply",
    "ItemsReply",
    "NewItems",
    "NewPicture",
    "QueryReply",
    "SameBody",
    "SameReply",
    "SearchBody",
    "SearchReply",
    "WireId",
]

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
    expanded: int = Field(0, description="Items that the query was drawn towards; similarities stay its own.")
    reranked: bool = Field(False, description="Whether hits are in the order of shared neighbours.")
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
    improved: str
    generation: str
    fast: bool
    writable: bool
    has_images: bool
    can_embed: bool
    embedder: str
    version: str
