"""Routes for the map: positions of all items, sent once as binary; filters as bit masks; export to Parquet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, final

import numpy as np
from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from numpy.typing import NDArray

from vicinal._util.text import counted
from vicinal.index.filters import Value
from vicinal.index.folder import IndexFolder
from vicinal.index.item import Id
from vicinal.index.map import MapLayout, kept_layout, map_table
from vicinal.index.server.models import MapIdsReply, MapPlaceReply, MapReply, ReadyReply, Refusal, WorkingReply
from vicinal.index.server.search_api import BINARY, Where
from vicinal.index.server.served import CachedResults, Served, ServedIndex, SharedResults, Snapshot

__all__ = ["WORKING", "map_router", "places_by_id", "still_working"]

map_router = APIRouter()

NO_LABEL = 0xFFFFFFFF
MOST_IDS = 10_000
BYTES = "application/octet-stream"
WORKING: dict[int | str, dict[str, Any]] = {202: {"model": WorkingReply, "description": "It is being made; ask again."}}
PARQUET = "application/vnd.apache.parquet"

Generation = Annotated[str, Query(max_length=100, description="That `/map` named; another is refused.")]
Place = Annotated[int, Query(ge=0, lt=2**62)]


@final
@dataclass(frozen=True)
class DrawnMap:
    """The map that the browser draws: the layout, and the label number of each item."""

    layout: MapLayout
    names: list[Value]
    labels: NDArray[np.uint32]


def places_by_id(snapshot: Snapshot, results: CachedResults) -> dict[Id, int]:
    """Return the position of each item in a snapshot, by id."""
    return results.now(
        "places", snapshot.generation, lambda: {key: position for position, key in enumerate(snapshot.ids)}
    )


def still_working(sentence: str) -> JSONResponse:
    """Return the reply that says that a result is still being computed."""
    return JSONResponse({"working": sentence}, status_code=202)


def _snapshot(served: Served, generation: str) -> Snapshot:
    """Return the current snapshot, and refuse if `generation` names another one."""
    snapshot = served.snapshot()
    if generation and generation != snapshot.generation:
        raise Refusal(409, "The index has changed; reload the page.")
    return snapshot


def _drawn(served: Served, results: CachedResults, snapshot: Snapshot) -> DrawnMap | None:
    """Return the map, or None while it is being computed."""

    def compute() -> DrawnMap:
        folder = IndexFolder(served.writer.path).current()
        layout = kept_layout(folder, snapshot.embeddings, distance=served.index.distance)
        labels = [] if "label" in served.settings.private else snapshot.labels
        names = list(dict.fromkeys(label for label in labels if label is not None))
        numbers = {label: number for number, label in enumerate(names)}
        of_item = [numbers.get(label, NO_LABEL) if label is not None else NO_LABEL for label in labels]
        return DrawnMap(layout, names, np.array(of_item or [NO_LABEL] * len(snapshot.items), np.uint32))

    return results.later("map", snapshot.generation, compute)


def _table(served: Served, results: CachedResults, snapshot: Snapshot) -> bytes | None:
    """Return the map as a Parquet file, or None while it is being computed."""
    drawn = _drawn(served, results, snapshot)
    if drawn is None:
        return None

    def compute() -> bytes:
        items = [replace(item, id=served.shown_id(item.id)) for item in snapshot.items]
        return map_table(
            items,
            snapshot.embeddings,
            drawn.layout,
            distance=served.index.distance,
            private=frozenset(served.settings.private),
        )

    return results.later("table", snapshot.generation, compute)


@map_router.get("/map", response_model=MapReply, responses=WORKING)
def head(served: ServedIndex, results: SharedResults) -> Any:
    """Describe the map; 202 and a sentence while it is made."""
    snapshot = served.snapshot()
    drawn = _drawn(served, results, snapshot)
    if drawn is None:
        return still_working(f"Computing the map of {counted(len(snapshot.items), 'item')}, once for all visits…")
    return {
        "count": len(snapshot.items),
        "names": drawn.names,
        "method": drawn.layout.method,
        "landmarks": drawn.layout.landmarks,
        "generation": snapshot.generation,
    }


@map_router.get("/map/points", response_class=Response, responses={200: {"content": {BYTES: BINARY}}})
def points(served: ServedIndex, results: SharedResults, generation: Generation = "") -> Response:
    """Send float32 x and y of every item in turn, then every item's label as uint32; little-endian."""
    drawn = _drawn(served, results, _snapshot(served, generation))
    if drawn is None:
        raise Refusal(503, "The map is being computed; try again in a moment.", {"Retry-After": "2"})
    coordinates = drawn.layout.positions.astype("<f4").tobytes()
    return Response(coordinates + drawn.labels.astype("<u4").tobytes(), media_type=BYTES)


@map_router.get("/map/ids", response_model=MapIdsReply)
def ids(
    served: ServedIndex,
    start: Annotated[int, Query(alias="from", ge=0, lt=2**62)] = 0,
    to: Place = 1000,
    generation: Generation = "",
) -> Any:
    """Name the items of some places, in the order of the points."""
    if to - start > MOST_IDS:
        raise Refusal(422, f"At most {MOST_IDS:,} ids at a time.")
    return {"ids": [served.shown_id(item.id) for item in _snapshot(served, generation).items[start:to]]}


@map_router.get("/map/place", response_model=MapPlaceReply)
def place(
    served: ServedIndex,
    results: SharedResults,
    item: Annotated[str, Query(max_length=10_000)],
    generation: Generation = "",
) -> Any:
    """Say which point an item is."""
    position = places_by_id(_snapshot(served, generation), results).get(served.asked_id(item))
    if position is None:
        raise Refusal(404, "There is no such item.")
    return {"place": position}


@map_router.get("/map/mask", response_class=Response, responses={200: {"content": {BYTES: BINARY}}})
def mask(served: ServedIndex, results: SharedResults, where: Where = None, generation: Generation = "") -> Response:
    """Send one bit for every item, the first in the highest of a byte: whether it passes a filter."""
    snapshot = _snapshot(served, generation)
    condition = served.condition(where)
    passing = served.ask(lambda index: index.get(condition, vectors=False)[0])
    bits = np.zeros(len(snapshot.items), dtype=bool)
    positions = places_by_id(snapshot, results)
    bits[[positions[item.id] for item in passing if item.id in positions]] = True
    return Response(np.packbits(bits).tobytes(), media_type=BYTES)


@map_router.get("/export/ready", response_model=ReadyReply, responses=WORKING)
def ready(served: ServedIndex, results: SharedResults) -> Any:
    """Have the table made; 202 and a sentence until it is there."""
    snapshot = served.snapshot()
    if _table(served, results, snapshot) is None:
        return still_working(f"Computing the neighbours of {counted(len(snapshot.items), 'item')}…")
    return {"ready": True}


@map_router.get("/export/map.parquet", response_class=Response, responses={200: {"content": {PARQUET: BINARY}}})
def export(served: ServedIndex, results: SharedResults) -> Response:
    """Send path, label, x, y, neighbours and metadata of every item as a Parquet table."""
    content = _table(served, results, served.snapshot())
    if content is None:
        raise Refusal(503, "The table is being computed; try again in a moment.", {"Retry-After": "2"})
    headers = {"Content-Disposition": 'attachment; filename="map.parquet"'}
    return Response(content, media_type=PARQUET, headers=headers)
