"""The ASGI app: an index, its routes, and the guard in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from vicinal.errors import VicinalError
from vicinal.index.folder import BeingWritten
from vicinal.index.index import Index
from vicinal.index.server.guard import Guard
from vicinal.index.server.inspect_api import inspect_router, review_file_of, why_router
from vicinal.index.server.items_api import Thumbnails, item_router
from vicinal.index.server.map_api import map_router
from vicinal.index.server.metrics import Counts
from vicinal.index.server.models import ErrorReply, Refusal, refused
from vicinal.index.server.page_api import page_router
from vicinal.index.server.queries import Queries
from vicinal.index.server.search_api import search_router
from vicinal.index.server.served import CachedResults, Served
from vicinal.index.server.settings import ServerSettings
from vicinal.index.server.status_api import status_router

__all__ = ["create_app"]


def create_app(index: Index, settings: ServerSettings | None = None) -> FastAPI:
    """Create the app that serves an index.

    Args:
        index: Index to serve; the caller closes it.
        settings: Settings of the server; the defaults suit a user on this machine.

    Returns:
        An ASGI app; `app.state` holds the objects that its routes share.
    """
    settings = settings or ServerSettings()
    served = Served(index, settings)
    counts = Counts()
    queries = Queries(served, counts)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(served.begin)
        yield
        await run_in_threadpool(served.end)

    app = FastAPI(
        title=f"{served.name}: search by vicinal",
        version=version("vicinal"),
        lifespan=life,
        docs_url=None,  # its scripts would be loaded from another server
        redoc_url=None,
        responses={"4XX": {"model": ErrorReply}, 503: {"model": ErrorReply}},
    )
    app.state.served, app.state.queries, app.state.counts = served, queries, counts
    app.state.results, app.state.thumbnails, app.state.reviews = CachedResults(), Thumbnails(), review_file_of(served)
    _tell_errors(app, served)
    for router in (search_router, item_router, status_router, page_router, map_router, inspect_router, why_router):
        app.include_router(router)
    app.add_middleware(Guard, settings=settings, counts=counts)
    return app


def _tell_errors(app: FastAPI, served: Served) -> None:
    """Answer expected errors with one sentence; the guard handles unexpected ones."""

    @app.exception_handler(Refusal)
    async def refusal(_: Request, error: Refusal) -> JSONResponse:
        return refused(error.status, error.sentence, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return refused(422, f"{first['loc'][-1]}: {first['msg']}.")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return refused(error.status_code, f"{error.detail}.", error.headers)

    @app.exception_handler(BeingWritten)
    async def busy(_: Request, error: BeingWritten) -> JSONResponse:
        return refused(503, served.message(error), {"Retry-After": "1"})

    @app.exception_handler(VicinalError)
    async def mistaken(_: Request, error: VicinalError) -> JSONResponse:
        return refused(400, served.message(error))
