"""Routes for the files of the web page."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from vicinal.index.server.models import Refusal

__all__ = ["page_router"]

page_router = APIRouter(include_in_schema=False)

KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@page_router.get("/")
async def page(request: Request) -> Response:
    """Send the page."""
    return _answer(request, "index.html")


@page_router.get("/static/{name}")
async def part(request: Request, name: str) -> Response:
    """Send a part of the page."""
    return _answer(request, name)


@cache
def _parts() -> dict[str, tuple[bytes, str]]:
    """Return content and media type of each file of the page; they do not change while a server runs."""
    return {
        part.name: (part.read_bytes(), KINDS[f".{part.name.rpartition('.')[2]}"])
        for part in files("vicinal.index").joinpath("page").iterdir()
        if f".{part.name.rpartition('.')[2]}" in KINDS
    }


def _answer(request: Request, name: str) -> Response:
    if name not in _parts():
        raise Refusal(404, "The page has no such part.")
    content, kind = _parts()[name]
    # Browsers revalidate each file, so that a new version of vicinal is never mixed with old files.
    headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
