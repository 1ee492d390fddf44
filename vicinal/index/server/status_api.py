"""Routes about the server itself: information, health, metrics and documentation."""

from __future__ import annotations

import html
import importlib.util
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse

from vicinal.index.index import Index
from vicinal.index.server.metrics import Counts
from vicinal.index.server.models import CalibrationReply, HealthReply, InfoReply, Refusal
from vicinal.index.server.served import Served, ServedIndex

__all__ = ["status_router"]

status_router = APIRouter()


async def _counts(request: Request) -> Counts:
    return request.app.state.counts


@status_router.get("/api/info", response_model=InfoReply)
async def info(served: ServedIndex) -> InfoReply:
    """Tell what is served."""
    return await served.read(lambda index: _info(index, served))


@status_router.get("/api/calibration", response_model=CalibrationReply)
async def calibration(served: ServedIndex) -> CalibrationReply:
    """Tell from which similarity on hits are called the same; null where the embedder is not calibrated."""
    rule = await served.read(lambda index: index.calibration)
    return CalibrationReply(calibration=None if rule is None else rule.as_dict())


@status_router.get("/health", response_model=HealthReply)
async def health() -> HealthReply:
    """Tell that the server is there."""
    return HealthReply(status="ok")


@status_router.get("/ready", response_model=HealthReply)
async def ready(served: ServedIndex) -> HealthReply:
    """Tell whether searches are answered."""
    if not served.ready:
        raise Refusal(503, "The index is being opened.", {"Retry-After": "1"})
    return HealthReply(status="ready")


@status_router.get("/metrics", response_class=PlainTextResponse)
async def metrics(served: ServedIndex, counts: Annotated[Counts, Depends(_counts)]) -> PlainTextResponse:
    """Tell what was done since the start, for Prometheus."""
    items, generation = await served.read(lambda index: (len(index), index.generation))
    return PlainTextResponse(counts.text(items, generation), media_type="text/plain; version=0.0.4")


@status_router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(_listing(request.app))


def _info(index: Index, served: Served) -> InfoReply:
    settings = served.settings
    overview = served.overview()
    calibration = index.calibration
    return InfoReply(
        name=served.name,
        count=len(index),
        dim=index.dim,
        distance=index.distance,
        numbers=index.numbers,
        columns={name: kind for name, kind in index.columns.items() if name not in settings.hidden},
        labels=[] if "label" in settings.private else overview.labels,
        calibrated=calibration is not None,
        threshold=None if calibration is None else calibration.threshold,
        claim="" if calibration is None else calibration.claim(),
        improved=str(index.improvement or ""),
        generation=index.generation,
        fast=importlib.util.find_spec("faiss") is not None,
        writable=settings.writable,
        has_images=overview.root is not None,
        can_embed=index.can_embed,
        embedder=index.embedder_hash,
        version=version("vicinal"),
    )


def _listing(app: FastAPI) -> str:
    """Return a page made from the OpenAPI description; the usual ones load scripts from other servers."""
    description = app.openapi()
    rows = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parameters = ", ".join(parameter["name"] for parameter in operation.get("parameters", ()))
            bodies = ", ".join(operation.get("requestBody", {}).get("content", ()))
            cells = [f"{method.upper()} {path}", operation.get("description", ""), parameters, bodies]
            rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    title = html.escape(description["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><h1>{title}</h1>'
        '<p>The whole description, for programs: <a href="/openapi.json">openapi.json</a>.</p>'
        "<table><tr><th>Request</th><th>What it does</th><th>Parameters</th><th>Body</th></tr>"
        f"{table}</table></html>"
    )
