"""The app: an index, its routes, and the guard before them."""

from __future__ import annotations

import importlib
import importlib.util
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
from vicinal.index.server.items_api import add_item_routes
from vicinal.index.server.metrics import Counts
from vicinal.index.server.models import ErrorReply, Refusal, refused
from vicinal.index.server.queries import Queries
from vicinal.index.server.search_api import add_search_routes
from vicinal.index.server.served import Served
from vicinal.index.server.settings import ServerSettings
from vicinal.index.server.status_api import add_status_routes

__all__ = ["create_app"]

PAGE = "vicinal.index.server.page_api"


def create_app(index: Index, settings: ServerSettings | None = None) -> FastAPI:
    """Make the app that serves an index.

    Args:
        index: Which stays the caller's to close.
        settings: What is allowed; as they are, everything that a person at this machine needs.

    Returns:
        An ASGI app; `app.state.served` and `app.state.queries` are what its routes share.
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
        docs_url=None,  # its scripts come from elsewhere
        redoc_url=None,
        responses={"4XX": {"model": ErrorReply}, 503: {"model": ErrorReply}},
    )
    app.state.served, app.state.queries, app.state.counts = served, queries, counts
    _tell_errors(app, served)
    add_search_routes(app, served, queries)
    add_item_routes(app, served)
    add_status_routes(app, served, counts)
    if importlib.util.find_spec(PAGE) is not None:
        importlib.import_module(PAGE).add_page(app, app.state)
    app.add_middleware(Guard, settings=settings, counts=counts)
    return app


def _tell_errors(app: FastAPI, served: Served) -> None:
    """Answer what goes wrong with one sentence; what nobody foresaw is the guard's."""

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
        return refused(503, served.told(error), {"Retry-After": "1"})

    @app.exception_handler(VicinalError)
    async def mistaken(_: Request, error: VicinalError) -> JSONResponse:
        return refused(400, served.told(error))
