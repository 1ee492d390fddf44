"""Routes for items: list them, show their pictures, add, update and remove them."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from io import BytesIO
from typing import Annotated, Any, final
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Query, Request, Response
from PIL import Image
from pydantic import ValidationError
from pydantic_core import from_json

from vicinal.data.files import IMAGE_ERRORS, archive_of
from vicinal.data.images import open_image
from vicinal.index.hits import Changes
from vicinal.index.index import Index
from vicinal.index.item import Item
from vicinal.index.server.models import ChangedItems, ChangesReply, ItemReply, ItemsReply, NewItems, NewPicture, Refusal
from vicinal.index.server.search_api import JSON, MULTIPART, Where, json_content
from vicinal.index.server.served import ServedIndex
from vicinal.index.server.settings import ServerSettings
from vicinal.index.server.uploads import first_sentence, media_type, open_picture, read_form, read_json_body

__all__ = ["Thumbnails", "item_router"]


# Thumbnails of items, only of files that the index lists and that are inside its root after resolving links.

KEPT = 64 << 20  # bytes of the cache
QUALITY = 85


@final
class Thumbnails:
    """Makes thumbnails, and caches the last used ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def tag(self, item: Item, size: int) -> str:
        """Return the ETag of a thumbnail, which changes with the picture."""
        content = f"{item.id!r} {item.hash} {item.stamp} {size}".encode()
        return f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    def jpeg(self, item: Item, size: int, root: str | None) -> bytes:
        """Return the picture of an item, scaled to fit a square.

        Args:
            item: Item of the index.
            size: Side of the square, in pixels.
            root: Folder from which pictures may be shown, with links resolved.
        """
        key = self.tag(item, size)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        thumbnail = _made(_path_inside(item, root), size)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = thumbnail
                self._bytes += len(thumbnail)
            while self._bytes > KEPT:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return thumbnail


def _path_inside(item: Item, root: str | None) -> str:
    nothing = Refusal(404, "This item has no picture that can be shown.")
    if item.path is None or root is None:
        raise nothing
    inside = archive_of(item.path)
    if inside is None:
        real = os.path.realpath(item.path)
    else:
        real = os.path.join(os.path.realpath(inside[0]), os.path.normpath(inside[1]))
    if os.path.commonpath([real, root]) != root:
        raise nothing
    return real


def _made(path: str, size: int) -> bytes:
    try:
        image = open_image(path)
        image.draft("RGB", (size, size))
        image.thumbnail((size, size), Image.Resampling.BICUBIC, reducing_gap=2.0)
        small = _on_white(image)
        content = BytesIO()
        small.save(content, "JPEG", quality=QUALITY)
    except FileNotFoundError:
        raise Refusal(404, "The file of this item is gone.") from None
    except IMAGE_ERRORS:
        raise Refusal(422, "The file of this item is not a picture that can be read.") from None
    return content.getvalue()


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode not in ("RGBA", "LA", "PA") and "transparency" not in image.info:
        return image.convert("RGB")
    opaque = Image.new("RGBA", image.size, "white")
    opaque.alpha_composite(image.convert("RGBA"))
    return opaque.convert("RGB")


item_router = APIRouter()

MOST_LISTED = 10_000
CACHED = "private, max-age=3600, must-revalidate"

Limit = Annotated[int, Query(ge=0, le=MOST_LISTED)]
Vectors = Annotated[bool, Query(description="Whether embeddings are wanted, too.")]


async def _thumbnails(request: Request) -> Thumbnails:
    return request.app.state.thumbnails


def _reply(changes: Changes) -> ChangesReply:
    return ChangesReply(
        added=changes.added,
        updated=changes.updated,
        removed=changes.removed,
        unchanged=changes.unchanged,
        skipped=list(changes.skipped),
    )


@item_router.get("/items", response_model=ItemsReply)
async def items(
    served: ServedIndex,
    where: Where = None,
    limit: Limit = 100,
    offset: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    vectors: Vectors = False,
) -> ItemsReply:
    """List items that pass a filter, in the order of their ids."""
    condition = served.condition(where)

    def read(index: Index) -> ItemsReply:
        store, generation = index.store, index.generation
        page, rows = store.page(condition, vectors=vectors, limit=limit, offset=offset)
        shown = [served.shown(item) for item in page]
        if vectors:
            shown = [{**item, "vector": row} for item, row in zip(shown, rows.tolist(), strict=True)]
        count = index.count(condition)
        return ItemsReply.model_validate({"items": shown, "count": count, "generation": generation})

    return await served.read(read)


@item_router.get("/items/{item_id}", response_model=ItemReply)
async def item(served: ServedIndex, item_id: str) -> ItemReply:
    """Show an item; its id is one percent-encoded segment."""
    match = await served.read(lambda _: served.item(unquote(item_id)))
    return ItemReply.model_validate(served.shown(match))


@item_router.get("/items/{item_id}/image", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
async def image(
    request: Request,
    served: ServedIndex,
    thumbnails: Annotated[Thumbnails, Depends(_thumbnails)],
    item_id: str,
    size: Annotated[int, Query(ge=16, le=1024)] = 256,
) -> Response:
    """Show the picture of an item, as large as fits a square of that size."""
    match = await served.read(lambda _: served.item(unquote(item_id)))
    headers = {"ETag": thumbnails.tag(match, size), "Cache-Control": CACHED}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    content = await served.read(lambda _: thumbnails.jpeg(match, size, served.overview().root))
    return Response(content, media_type="image/jpeg", headers=headers)


@item_router.post(
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
                        "required": ["file"],
                        "properties": {
                            "file": {"type": "string", "format": "binary"},
                            "id": {"type": "string"},
                            "label": {"type": "string"},
                            "metadata": {"type": "string", "description": "A JSON object."},
                            "item": {
                                "type": "string",
                                "description": "A JSON object of id, label and metadata, in place of these.",
                            },
                        },
                    }
                },
            },
        }
    },
)
async def add(request: Request, served: ServedIndex) -> ChangesReply:
    """Add a picture (multipart: `file`, and `id`, perhaps `label` and `metadata`, or `item`) or vectors (JSON)."""
    served.check_writable()
    if media_type(request) == JSON:
        new = await read_json_body(request, NewItems, most=None)
        return _reply(await served.change(lambda index: index.add(**new.model_dump())))
    form = await read_form(request)
    content = form.pop("file", None)
    if not isinstance(content, bytes):
        raise Refusal(422, "Send the picture as the file of a field called file.")
    return _reply(await served.change(lambda index: _add_picture(index, content, form, served.settings)))


@item_router.patch(
    "/items",
    response_model=ChangesReply,
    openapi_extra={"requestBody": {"required": True, "content": {JSON: json_content(ChangedItems)}}},
)
async def update(request: Request, served: ServedIndex) -> ChangesReply:
    """Give all items that pass a filter other values."""
    served.check_writable()
    body = await read_json_body(request, ChangedItems)
    condition = served.condition(body.where)
    if condition is None:
        raise Refusal(422, "where is missing: it selects the items to change.")
    return _reply(Changes(updated=await served.change(lambda index: index.update(condition, body.values))))


@item_router.delete("/items/{item_id}", response_model=ChangesReply)
async def remove(served: ServedIndex, item_id: str) -> ChangesReply:
    """Remove an item; its id is one percent-encoded segment."""
    removed = await served.change(lambda index: index.remove(ids=[served.asked_id(unquote(item_id))]))
    if not removed:
        raise Refusal(404, "There is no such item.")
    return _reply(Changes(removed=removed))


def _add_picture(index: Index, content: bytes, form: Mapping[str, bytes | str], settings: ServerSettings) -> Changes:
    new = _new_picture(form, index.columns)
    return index.add(
        [open_picture(content, settings)],
        ids=[new.id],
        labels=None if new.label is None else [new.label],
        metadata={name: [value] for name, value in new.metadata.items()},
    )


def _new_picture(form: Mapping[str, bytes | str], columns: Mapping[str, str | None]) -> NewPicture:
    """Read the description of a picture from a form: one JSON object, or text fields, converted to their kinds."""
    if not form.get("item") and not form.get("id"):
        raise Refusal(422, "Send the id of the picture, as a field called id, or in a JSON object called item.")
    try:
        if form.get("item"):
            return NewPicture.model_validate_json(form["item"])
        typed = {name: _typed(form[name], columns[name], name) for name in ("id", "label") if name in form}
        metadata = from_json(form.get("metadata", "{}"), allow_inf_nan=False)
        return NewPicture.model_validate({**typed, "metadata": metadata})
    except ValidationError as error:
        raise Refusal(422, first_sentence(error)) from None
    except ValueError:
        raise Refusal(422, 'metadata must be a JSON object, such as {"year": 2024}.') from None


def _typed(text: bytes | str, kind: str | None, name: str) -> Any:
    """Convert a field of a form, which is always text, to the kind of its column."""
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
    except ValueError:
        raise Refusal(422, f"{name} must be a number here; got {text!r:.60}.") from None
    if kind != "boolean":
        return text
    truths = {"true": True, "false": False}
    if str(text).lower() not in truths:
        raise Refusal(422, f"{name} must be true or false here; got {text!r:.60}.")
    return truths[str(text).lower()]
