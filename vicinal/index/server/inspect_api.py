"""Routes that inspect an index: confused classes, possible label errors, duplicates, review decisions, and `/why`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from vicinal._util.text import counted
from vicinal.collection import DuplicateGroup, Suspect, find_duplicates, find_mislabelled
from vicinal.collection.confusions import ConfusedClasses, find_confused_classes
from vicinal.errors import InputError
from vicinal.index.explain import TracedLoss, class_centres, explain_pair, loss_on_card, loss_sentence, trace_loss
from vicinal.index.index import Index
from vicinal.index.review import Review, ReviewFile
from vicinal.index.server.map_api import WORKING, places_by_id, still_working
from vicinal.index.server.models import (
    ConfusedReply,
    DuplicatesReply,
    MislabelledReply,
    Refusal,
    ReviewReply,
    WhyReply,
    WireId,
)
from vicinal.index.server.queries import SharedQueries
from vicinal.index.server.search_api import JSON, json_content
from vicinal.index.server.served import CachedResults, Served, ServedIndex, SharedResults, Snapshot
from vicinal.index.server.uploads import read_json_body
from vicinal.neighbours import find_neighbours

__all__ = ["inspect_router", "review_file_of", "why_router"]


inspect_router = APIRouter()

FILE = "review.csv"
ASKED = 50_000  # largest number of items whose nearest neighbour is searched; a sample suffices to estimate a share
SHOWN = 100  # items listed of a group of duplicates; the others are counted
MOST_JSON = 64_000  # largest size of a decision, in bytes
NEARLY = 0.02  # default threshold under the Euclidean distance, as a fraction of the median nearest-neighbour distance

From = Annotated[int, Query(alias="from", ge=0, lt=2**62)]
Limit = Annotated[int, Query(ge=1, le=200)]


class ReviewBody(BaseModel):
    """A decision on an item."""

    model_config = ConfigDict(extra="forbid")

    item: WireId
    decision: Literal["keep", "relabel", "remove"]
    new_label: str = Field("", max_length=1000)
    queue: Literal["", "mislabelled", "duplicates"] = ""


# Items without a decision have no `review` field.
looks = partial(inspect_router.get, responses=WORKING, response_model_exclude_unset=True)


async def _reviews(request: Request) -> ReviewFile:
    return request.app.state.reviews


Reviews = Annotated[ReviewFile, Depends(_reviews)]


def review_file_of(served: Served) -> ReviewFile:
    """Return the file of decisions on the items of an index."""
    return ReviewFile(Path(served.writer.path) / FILE)


def _shown(
    served: Served, snapshot: Snapshot, position: int, decided: Mapping[str, Review] | None = None
) -> dict[str, Any]:
    item = snapshot.items[position]
    entry = served.shown(item)
    review = (decided or {}).get(str(item.id))
    if review is not None:
        new_label = None if "label" in served.settings.private else review.new_label
        entry["review"] = {"decision": review.decision, "new_label": new_label}
    return entry


def _check_labels(served: Served) -> None:
    if "label" in served.settings.private:
        raise Refusal(403, "Labels are private here.")


def _working(snapshot: Snapshot, what: str) -> Response:
    return still_working(f"Searching {counted(len(snapshot.items), 'item')} for {what}…")


def _decided(served: Served, reviews: ReviewFile) -> dict[str, Review]:
    return {} if served.settings.public else reviews.latest()


def _next_undecided(
    snapshot: Snapshot, cases: Iterable[Sequence[int]], before: Mapping[str, Review], *, since: int, spare: int = 0
) -> int | None:
    """Return the number of the first case from `since` on with more than `spare` undecided items."""
    for number, positions in enumerate(cases):
        if number >= since and sum(str(snapshot.items[each].id) not in before for each in positions) > spare:
            return number
    return None


@looks("/inspect/confused", response_model=ConfusedReply)
def confused(served: ServedIndex, results: SharedResults, start: From = 0, limit: Limit = 20) -> Any:
    """List classes that are taken for each other; 202 and a sentence while they are looked for."""
    snapshot = served.snapshot()
    _check_labels(served)

    def compute() -> list[ConfusedClasses]:
        return find_confused_classes(snapshot.embeddings, snapshot.labels, distance=served.index.distance, most=ASKED)

    pairs = results.later("confused", snapshot.generation, compute)
    if pairs is None:
        return _working(snapshot, "confused classes")
    entries = [
        {
            "first": two.first,
            "second": two.second,
            "first_as_second": two.first_as_second,
            "second_as_first": two.second_as_first,
            "items": two.items,
            "share": two.share,
            "examples": [
                {
                    "item": _shown(served, snapshot, pair.item),
                    "nearest": _shown(served, snapshot, pair.nearest),
                    "similarity": pair.similarity,
                }
                for pair in two.examples
            ],
        }
        for two in pairs[start : start + limit]
    ]
    return {"entries": entries, "count": len(pairs), "asked": ASKED if len(snapshot.items) > ASKED else None}


@looks("/inspect/mislabelled", response_model=MislabelledReply)
def mislabelled(
    served: ServedIndex, results: SharedResults, reviews: Reviews, start: From = 0, limit: Limit = 20
) -> Any:
    """List items whose label may be wrong, the most suspicious first; 202 while they are looked for."""
    snapshot = served.snapshot()
    _check_labels(served)
    labelled = [position for position, label in enumerate(snapshot.labels) if label is not None]

    def compute() -> list[Suspect]:
        labels = np.array([str(snapshot.items[position].label) for position in labelled])
        if len(set(labels.tolist())) < 2:
            return []
        return find_mislabelled(snapshot.embeddings[labelled], labels, distance=served.index.distance)

    suspects = results.later("mislabelled", snapshot.generation, compute)
    if suspects is None:
        return _working(snapshot, "label errors")
    before = _decided(served, reviews)
    entries = [
        {
            "item": _shown(served, snapshot, labelled[suspect.index], before),
            "proposed": str(suspect.proposed),
            "score": suspect.score,
            "own": [_shown(served, snapshot, labelled[neighbour]) for neighbour in suspect.own[:5]],
            "other": [_shown(served, snapshot, labelled[neighbour]) for neighbour in suspect.other[:5]],
        }
        for suspect in suspects[start : start + limit]
    ]
    cases = ((labelled[suspect.index],) for suspect in suspects)
    beyond = _next_undecided(snapshot, cases, before, since=start + limit)
    return {"entries": entries, "count": len(suspects), "reviewed": len(before), "next_undecided": beyond}


@looks("/inspect/duplicates", response_model=DuplicatesReply)
def duplicates(
    served: ServedIndex,
    results: SharedResults,
    reviews: Reviews,
    start: From = 0,
    limit: Limit = 20,
    threshold: Annotated[float | None, Query(le=1, ge=-1e30, allow_inf_nan=False)] = None,
) -> Any:
    """List groups of items that are the same, or nearly; 202 while they are looked for."""
    snapshot = served.snapshot()

    def compute() -> list[DuplicateGroup]:
        distance = served.index.distance
        nearly = _usual(snapshot) if threshold is None and distance == "euclidean" else threshold
        texts = [None if label is None else str(label) for label in snapshot.labels]
        labels = None if "label" in served.settings.private else np.array(texts, dtype=object)
        return find_duplicates(snapshot.embeddings, threshold=nearly, labels=labels, distance=distance)

    try:
        groups = results.later("duplicates", f"{snapshot.generation} {threshold!r}", compute)
    except InputError as error:
        raise Refusal(422, str(error)) from None
    if groups is None:
        return _working(snapshot, "duplicates")
    before = _decided(served, reviews)
    entries = [
        {
            "items": [_shown(served, snapshot, position, before) for position in group.indices[:SHOWN]],
            "more": max(0, len(group.indices) - SHOWN),
            "labels": list(group.labels),
            "kinds": list(group.kinds),
            "similarity": group.similarity,
        }
        for group in groups[start : start + limit]
    ]
    # One item of a group of duplicates may stay without a decision.
    cases = (group.indices for group in groups)
    beyond = _next_undecided(snapshot, cases, before, since=start + limit, spare=1)
    return {"entries": entries, "count": len(groups), "reviewed": len(before), "next_undecided": beyond}


@inspect_router.post(
    "/review",
    response_model=ReviewReply,
    openapi_extra={"requestBody": {"required": True, "content": {JSON: json_content(ReviewBody)}}},
)
async def review(request: Request, served: ServedIndex, reviews: Reviews) -> Any:
    """Write a decision to review.csv in the folder of the index; items and photographs stay as they are."""
    _check_reviewer(served)
    body = await read_json_body(request, ReviewBody, MOST_JSON)

    def write(_: object) -> None:
        item = served.item(body.item)
        reviews.add(item, Review(str(item.id), body.decision, body.new_label, body.queue))

    await served.read(write)
    return {"decision": body.decision, "new_label": body.new_label.strip()}


@inspect_router.get("/review.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}})
def review_file(served: ServedIndex, reviews: Reviews) -> Response:
    """Send all decisions, one row each; the last one on an item counts."""
    _check_reviewer(served)
    headers = {"Content-Disposition": f'attachment; filename="{FILE}"'}
    return Response(reviews.content(_shown_row(served)), media_type="text/csv; charset=utf-8", headers=headers)


def _shown_row(served: Served) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return a function that removes private values from a row; the file itself, which is not sent, has all."""
    hidden = served.settings.hidden
    of_text = served.ask(lambda index: index.columns["id"]) != "integer"

    def shown(row: dict[str, str]) -> dict[str, str]:
        private = {name: "" for name in row if name in hidden - {"id"} or (name == "new_label" and "label" in hidden)}
        return row | private | ({"id": str(served.shown_id(row["id"]))} if of_text else {})

    return shown


def _check_reviewer(served: Served) -> None:
    if served.settings.public:
        raise Refusal(403, "This server is public, so decisions are not saved; serve it without --public.")


def _usual(snapshot: Snapshot) -> float:
    """Return minus a small fraction of the median distance to the nearest item."""
    if len(snapshot.items) < 2:
        return 0.0
    some = np.random.default_rng(0).choice(len(snapshot.items), min(1000, len(snapshot.items)), replace=False)
    nearest = find_neighbours(snapshot.embeddings[some], 2, gallery=snapshot.embeddings, distance="euclidean")
    return -NEARLY * float(np.median(nearest.values.numpy()[:, 1]))


# The route that explains a hit.

why_router = APIRouter()

PROXIES = "This loss compares items with class proxies: the curve is for an item and a proxy at this similarity."
ITEMS = "Computed like `vicinal weights`, with typical similarities for the other pairs of a batch."

Name = Annotated[str, Query(max_length=10_000)]


@why_router.get("/why", response_model=WhyReply, response_model_exclude_unset=True)
def why(
    served: ServedIndex,
    queries: SharedQueries,
    results: SharedResults,
    hit: Name,
    item: Name | None = None,
    upload: Name | None = None,
    k: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> Any:
    """Explain a hit of an item, or of an uploaded picture: similarity, rank, classes around, threshold, loss."""
    if (item is None) == (upload is None):
        raise Refusal(422, "Give one of item and upload.")
    snapshot, index = served.snapshot(), served.index
    labels = [None] * len(snapshot.items) if "label" in served.settings.private else snapshot.labels
    positions = places_by_id(snapshot, results)
    hit_place = positions.get(served.asked_id(hit))
    query_place = None if item is None else positions.get(served.asked_id(item))
    if hit_place is None or (item is not None and query_place is None):
        raise Refusal(404, "There is no such item.")
    if query_place is None:
        query = queries.remembered(str(upload), snapshot.embedder)
    else:
        query = snapshot.embeddings[query_place]
    explanation = explain_pair(
        np.asarray(query, np.float32),
        hit_place,
        embeddings=snapshot.embeddings,
        ids=snapshot.ids,
        labels=labels,
        centres=results.now(
            "centres", snapshot.generation, lambda: class_centres(snapshot.embeddings, labels, index.distance)
        ),
        distance=index.distance,
        query_place=query_place,
        k=k,
        calibration=index.calibration,
    )
    own = None if query_place is None else labels[query_place]
    together = None if own is None or labels[hit_place] is None else own == labels[hit_place]
    return {
        "similarity": explanation.similarity,
        "distance": index.distance,
        "rank": explanation.rank,
        "items": explanation.items,
        "nearest": explanation.nearest,
        "classes": [{"label": label, "items": count, "best": best} for label, count, best in explanation.classes],
        "centres": [{"label": label, "similarity": value} for label, value in explanation.centres],
        "hit_centre": None
        if explanation.hit_centre is None
        else {"rank": explanation.hit_centre[0], "similarity": explanation.hit_centre[1]},
        "threshold": explanation.threshold,
        "same": explanation.same,
        "probability": explanation.probability,
        "claim": explanation.claim,
        "loss": _loss(_traced(index, results), explanation.similarity, together),
    }


def _traced(index: Index, results: CachedResults) -> TracedLoss | str:
    """Return the traced loss of the index's model, or a sentence that says why it is unknown."""
    if not index.embedder_hash:
        return "The vectors were imported, so the index does not know their model or its loss."
    if index.distance != "cosine":
        return "The curves of losses assume vectors of unit length, but this model uses the Euclidean distance."

    def compute() -> TracedLoss | str:
        loss = loss_on_card(index.embedder().card)
        return loss if isinstance(loss, str) else trace_loss(loss)

    return results.now("loss", index.embedder_hash, compute)


def _loss(traced: TracedLoss | str, similarity: float, together: bool | None) -> dict[str, Any]:
    if isinstance(traced, str):
        return {"unknown": traced}
    return {
        "name": traced.loss.name,
        "options": dict(traced.loss.options),
        "mining": traced.loss.mining,
        "at": similarity,
        "together": together,
        "sentence": loss_sentence(traced, similarity, together),
        "note": ITEMS if traced.loss.references == "batch" else PROXIES,
        "pull_weight": float(np.interp(similarity, traced.similarity, traced.pull)),
        "push_weight": float(np.interp(similarity, traced.similarity, traced.push)),
        "curve": {
            "similarity": traced.similarity.tolist(),
            "pull": traced.pull.tolist(),
            "push": traced.push.tolist(),
        },
    }
