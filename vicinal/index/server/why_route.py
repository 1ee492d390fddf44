"""The route that says why a hit was found."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query

from vicinal.index.index import Index
from vicinal.index.pair_explanation import class_centres, explain_pair, loss_sentence
from vicinal.index.server.kept_results import KeptResults
from vicinal.index.server.map_routes import places_by_id
from vicinal.index.server.page_reply_models import WhyReply
from vicinal.index.server.queries import Queries
from vicinal.index.server.refusal import Refusal
from vicinal.index.server.served import Served
from vicinal.index.trained_loss import TracedLoss, loss_on_card, trace_loss

__all__ = ["add_why_route"]

PROXIES = "It compares items with proxies of classes: the curve is that of an item and a proxy at this similarity."
ITEMS = "As `vicinal weights` draws it, with the other pairs of a batch at usual similarities."

Name = Annotated[str, Query(max_length=10_000)]


def add_why_route(app: FastAPI, served: Served, queries: Queries, results: KeptResults) -> None:
    """Let an app explain its hits."""

    def traced(index: Index) -> TracedLoss | str:
        if not index.embedder_hash:
            return "The vectors come from elsewhere: the index does not know their model, nor its loss."
        if index.distance != "cosine":
            return "The lengths of this model's vectors count, and the curves of losses are drawn for length one."

        def compute() -> TracedLoss | str:
            known = loss_on_card(index.embedder().card)
            return known if isinstance(known, str) else trace_loss(known)

        return results.now("loss", index.embedder_hash, compute)

    @app.get("/why", response_model=WhyReply, response_model_exclude_unset=True)
    def why(
        hit: Name, item: Name | None = None, upload: Name | None = None, k: Annotated[int, Query(ge=1, le=1000)] = 10
    ) -> Any:
        """Explain a hit of an item, or of an uploaded picture: similarity, rank, classes around, threshold, loss."""
        if (item is None) == (upload is None):
            raise Refusal(422, "Give one of item and upload.")
        snapshot, index = served.snapshot(), served.index
        labels = [None] * len(snapshot.items) if "label" in served.settings.private else snapshot.labels
        places = places_by_id(snapshot, results)
        hit_place = places.get(served.asked_id(hit))
        query_place = None if item is None else places.get(served.asked_id(item))
        if hit_place is None or (item is not None and query_place is None):
            raise Refusal(404, "There is no such item.")
        if query_place is None:
            query = queries.remembered(str(upload), snapshot.embedder)
        else:
            query = snapshot.embeddings[query_place]
        found = explain_pair(
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
            "similarity": found.similarity,
            "distance": index.distance,
            "rank": found.rank,
            "items": found.items,
            "nearest": found.nearest,
            "classes": [{"label": label, "items": many, "best": best} for label, many, best in found.classes],
            "centres": [{"label": label, "similarity": value} for label, value in found.centres],
            "hit_centre": None
            if found.hit_centre is None
            else {"rank": found.hit_centre[0], "similarity": found.hit_centre[1]},
            "threshold": found.threshold,
            "same": found.same,
            "probability": found.probability,
            "false_matches": found.false_matches,
            "loss": _loss(traced(index), found.similarity, together),
        }


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
