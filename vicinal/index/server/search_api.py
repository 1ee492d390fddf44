"""Routes that search by picture, item or vector, and that compare two of them."""

from __future__ import annotations

import time
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Query, Request

from vicinal.embedder.calibration import Sameness
from vicinal.index.filters import Compare
from vicinal.index.index import Index
from vicinal.index.server.models import QueryReply, Refusal, SameBody, SameReply, SearchBody, SearchReply
from vicinal.index.server.queries import Found, Queries, Search, SharedQueries, Vector, checked_vector
from vicinal.index.server.served import Served, ServedIndex
from vicinal.index.server.uploads import media_type, read_body, read_form, read_json_body
from vicinal.neighbours.similarity import similarities

__all__ = ["BINARY", "JSON", "MULTIPART", "Where", "json_content", "search_router"]

search_router = APIRouter()

JSON = "application/json"
MULTIPART = "multipart/form-data"
BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}


def _form(*names: str) -> dict[str, Any]:
    fields = {name: {"type": "string", "format": "binary"} for name in names}
    return {"schema": {"type": "object", "properties": fields, "required": list(names)}}


def json_content(model: Any) -> dict[str, Any]:
    """Return the OpenAPI description of a JSON body."""
    return {"schema": model.model_json_schema(ref_template="#/components/schemas/{model}")}


K = Annotated[int, Query(ge=1, description="How many hits.")]
Where = Annotated[str | None, Query(max_length=10_000, description="A filter, such as label = 'wren'.")]
Exact = Annotated[bool, Query(description="False for search by codes: quicker, and nearly always the same.")]
Rerank = Annotated[
    bool, Query(description="Re-rank hits by shared neighbours; slow the first time and after every change.")
]
Expand = Annotated[int, Query(ge=0, le=100, description="Items that the query is averaged with before it is searched.")]


def _reply(served: Served, start: float, found: Found, query: QueryReply, upload: str | None = None) -> SearchReply:
    hits, generation = found
    return SearchReply.model_validate(
        {
            "hits": [served.shown(hit) for hit in hits],
            "exact": hits.exact,
            "recall": hits.recall,
            "measured": hits.measured,
            "improved": hits.improved,
            "expanded": hits.expanded,
            "reranked": hits.reranked,
            "milliseconds": round(1000 * (time.perf_counter() - start), 3),
            "generation": generation,
            "query": query,
            "upload": upload,
        }
    )


async def _search_options(
    served: ServedIndex,
    k: K = 10,
    where: Where = None,
    exact: Exact = True,
    expand: Expand = 0,
    rerank: Rerank = False,
) -> Search:
    if k > served.settings.max_k:
        raise Refusal(422, f"k may be {served.settings.max_k:,} at most here; got {k:,}.")
    return Search(k, served.condition(where), not exact, expand, rerank)


Options = Annotated[Search, Depends(_search_options)]


async def _of_item(served: Served, queries: Queries, shown: int | str, options: Search) -> SearchReply:
    start = time.perf_counter()
    key = await served.read(lambda _: served.asked_id(shown))
    item, answer = await queries.nearest_of_item(key, options)
    label = None if "label" in served.settings.private else item.label
    return _reply(served, start, answer, QueryReply(item=served.shown_id(item.id), label=label))


@search_router.post(
    "/search",
    response_model=SearchReply,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {JSON: json_content(SearchBody), MULTIPART: _form("file"), "image/*": BINARY},
        }
    },
)
async def search(request: Request, served: ServedIndex, queries: SharedQueries, options: Options) -> SearchReply:
    """Find the items nearest to a picture (the body, or the field `file`), an item or a vector."""
    start = time.perf_counter()
    kind = media_type(request)
    if kind == JSON:
        body = await read_json_body(request, SearchBody)
        if body.item is not None:
            return await _of_item(served, queries, body.item, options)
        vector = checked_vector(body.vector, served.index)
        return _reply(served, start, await queries.nearest(vector, options), QueryReply())
    picture = await _picture(request, served, kind)
    upload, answer = await queries.nearest_of_picture(picture, options)
    return _reply(served, start, answer, QueryReply(), upload)


@search_router.get("/neighbours/{item_id}", response_model=SearchReply)
async def neighbours(served: ServedIndex, queries: SharedQueries, item_id: str, options: Options) -> SearchReply:
    """Find the items nearest to an item, itself left out; its id is one percent-encoded segment."""
    return await _of_item(served, queries, unquote(item_id), options)


@search_router.post(
    "/same",
    response_model=SameReply,
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: json_content(SameBody), MULTIPART: _form("a", "b")}}
    },
)
async def same(request: Request, served: ServedIndex, queries: SharedQueries) -> SameReply:
    """Say whether two pictures (fields `a` and `b`), items or vectors are of one class, and at which error."""
    if media_type(request) == JSON:
        body = await read_json_body(request, SameBody)
        return await served.read(
            lambda index: _verdict(index, [_vector(index, served, side) for side in (body.a, body.b)])
        )
    form = await read_form(request)
    pictures = [content for name in ("a", "b") if isinstance(content := form.get(name), bytes)]
    if len(pictures) < 2:
        raise Refusal(422, "Send two pictures, as the files a and b.")
    return await queries.compared(pictures, _verdict)


async def _picture(request: Request, served: Served, kind: str) -> bytes:
    if kind == MULTIPART:
        content = (await read_form(request)).get("file")
        if not isinstance(content, bytes):
            raise Refusal(422, "Send the picture as the file of a field called file.")
        return content
    if kind.startswith("image/") or kind in ("application/octet-stream", ""):
        return await read_body(request)
    raise Refusal(415, f"Send a picture, multipart/form-data or JSON; got {kind}.")


def _vector(index: Index, served: Served, side: SearchBody) -> Vector:
    if side.item is None:
        return checked_vector(side.vector, index)
    rows = index.get(Compare("id", "=", served.asked_id(side.item)))[1]
    if not len(rows):
        raise Refusal(404, "There is no such item.")
    return rows[0]


def _verdict(index: Index, sides: list[Vector]) -> SameReply:
    first, second = sides
    similarity = float(similarities(first[None], second[None, None], index.distance)[0, 0])
    calibration = index.calibration
    if calibration is None:
        return SameReply(similarity=similarity, level=None)
    return SameReply(**Sameness.on(similarity, calibration).as_dict())
