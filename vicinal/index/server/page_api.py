"""Routes of the page: its files, and what only it asks for."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response

from vicinal.index.server.inspect_api import add_inspect_routes, add_why_route
from vicinal.index.server.map_api import add_map_routes
from vicinal.index.server.models import Refusal
from vicinal.index.server.served import KeptResults

__all__ = ["add_page"]

KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def add_page(app: FastAPI, state: Any) -> None:
    """Let an app show the page.

    Args:
        app: To add the routes to.
        state: Its `served` and `queries`.
    """
    parts = {
        part.name: (part.read_bytes(), KINDS[f".{part.name.rpartition('.')[2]}"])
        for part in files("vicinal.index").joinpath("page").iterdir()
        if f".{part.name.rpartition('.')[2]}" in KINDS
    }

    def answer(request: Request, name: str) -> Response:
        if name not in parts:
            raise Refusal(404, "The page has no such part.")
        content, kind = parts[name]
        # Asked for anew each time, and sent only if it has changed: a new vicinal is never shown with old parts.
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return answer(request, "index.html")

    @app.get("/static/{name}", include_in_schema=False)
    async def part(request: Request, name: str) -> Response:
        return answer(request, name)

    results = KeptResults()
    add_map_routes(app, state.served, results)
    add_inspect_routes(app, state.served, results)
    add_why_route(app, state.served, state.queries, results)
