"""Routes of items: look at them, see their pictures, add and remove them."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import FastAPI, Query, Request, Response

from vicinal.errors import InputError
from vicinal.index.embedded_store import EmbeddedStore
from vicinal.index.hits import Changes
from vicinal.index.index import Index
from vicinal.index.server.refusal import Refusal
from vicinal.index.server.search_routes import JSON, MULTIPART, Where
from vicinal.index.server.served import Served
from vicinal.index.server.thumbnails import Thumbnails
from vicinal.index.server.uploads import media_type, open_picture, read_form, read_json_body
from vicinal.index.server.wire_models import ChangesReply, ItemReply, ItemsReply, NewItems

__all__ = ["add_item_routes"]

MOST_LISTED = 10_000
CACHED = "private, max-age=3600, must-revalidate"

Limit = Annotated[int, Query(ge=0, le=MOST_LISTED)]
Vectors = Annotated[bool, Query(description="Whether embeddings are wanted, too.")]


def add_item_routes(app: FastAPI, served: Served) -> None:
    """Let an app show items and, where that is allowed, change them."""
    thumbnails = Thumbnails()
    writing = asyncio.Lock()

    def check_writable() -> None:
        if not served.settings.writable:
            raise Refusal(403, "This server only answers; start it with --writable and --token to change its items.")

    async def change(what: Any) -> ChangesReply:
        async with writing:
            changes: Changes = await asyncio.get_running_loop().run_in_executor(served.reading, what)
        return ChangesReply(
            added=changes.added,
            updated=changes.updated,
            removed=changes.removed,
            unchanged=changes.unchanged,
            skipped=list(changes.skipped),
        )

    @app.get("/items", response_model=ItemsReply)
    async def items(
        where: Where = None,
        limit: Limit = 100,
        offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
        vectors: Vectors = False,
    ) -> ItemsReply:
        """List items that pass a filter, in the order of their ids."""
        condition = served.condition(where)

        def read(index: Index) -> ItemsReply:
            store, generation = index.store, index.generation
            if isinstance(store, EmbeddedStore):
                found, rows = store.page(condition, vectors=vectors, limit=limit, offset=offset)
            else:
                found, rows = index.get(condition, vectors=vectors)
                found, rows = found[offset : offset + limit], rows[offset : offset + limit]
            shown = [served.shown(item) for item in found]
            if vectors:
                shown = [{**item, "vector": row} for item, row in zip(shown, rows.tolist(), strict=True)]
            count = index.count(condition)
            return ItemsReply.model_validate({"items": shown, "count": count, "generation": generation})

        return await served.read(read)

    @app.get("/items/{item_id}", response_model=ItemReply)
    async def item(item_id: str) -> ItemReply:
        """Show an item; its id is one percent-encoded segment."""
        found = await served.read(lambda _: served.item(unquote(item_id)))
        return ItemReply.model_validate(served.shown(found))

    @app.get("/items/{item_id}/image", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
    async def image(request: Request, item_id: str, size: Annotated[int, Query(ge=16, le=1024)] = 256) -> Response:
        """Show the picture of an item, as large as fits a square of that size."""
        found = await served.read(lambda _: served.item(unquote(item_id)))
        headers = {"ETag": thumbnails.tag(found, size), "Cache-Control": CACHED}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        content = await served.read(lambda _: thumbnails.jpeg(found, size, served.overview().root))
        return Response(content, media_type="image/jpeg", headers=headers)

    @app.post(
        "/items",
        response_model=ChangesReply,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    JSON: {"schema": NewItems.model_json_schema()},
                    MULTIPART: {
                        "schema": {
                            "type": "object",
                            "required": ["file", "id"],
                            "properties": {
                                "file": {"type": "string", "format": "binary"},
                                "id": {"type": "string"},
                                "label": {"type": "string"},
                                "metadata": {"type": "string", "description": "A JSON object."},
                            },
                        }
                    },
                },
            }
        },
    )
    async def add(request: Request) -> ChangesReply:
        """Add a picture (multipart: `file`, `id`, and perhaps `label` and `metadata`) or vectors (JSON)."""
        check_writable()
        if media_type(request) == JSON:
            new = await read_json_body(request, NewItems, most=None)
            return await change(lambda: served.writer.add(**new.model_dump()))
        form = await read_form(request, served.settings)
        content, key = form.get("file"), form.get("id")
        if not isinstance(content, bytes) or not isinstance(key, str) or not key:
            raise Refusal(422, "Send the picture as the file of a field called file, and its id.")
        return await change(lambda: _add_picture(served, content, key, form.get("label"), form.get("metadata")))

    @app.delete("/items/{item_id}", response_model=ChangesReply)
    async def remove(item_id: str) -> ChangesReply:
        """Remove an item; its id is one percent-encoded segment."""
        check_writable()

        def gone() -> Changes:
            many = served.writer.remove(ids=[served.asked_id(unquote(item_id))])
            if not many:
                raise Refusal(404, "There is no such item.")
            return Changes(removed=many)

        return await change(gone)


def _add_picture(served: Served, content: bytes, key: str, label: Any, metadata: Any) -> Changes:
    columns = served.writer.columns
    values: Any = {}
    if metadata is not None:
        try:
            values = json.loads(metadata)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise Refusal(422, 'metadata must be a JSON object, such as {"year": 2024}.')
    given = {"id": key} | ({} if label is None else {"label": label})
    typed = {name: _typed(text, columns[name], name) for name, text in given.items()}
    return served.writer.add(
        [open_picture(content, served.settings)],
        ids=[typed["id"]],
        labels=None if label is None else [typed["label"]],
        metadata={name: [value] for name, value in values.items()},
    )


def _typed(text: Any, kind: str | None, name: str) -> Any:
    """A field of a form as its column has it: all fields are texts."""
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except (ValueError, TypeError):
        raise InputError(f"{name} must be a number here; got {text!r:.60}.") from None
    return text if kind != "boolean" else text == "true"
