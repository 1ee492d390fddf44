"""Refusal: what is answered to a request that cannot be met, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi.responses import JSONResponse

__all__ = ["Refusal", "refused"]


class Refusal(Exception):
    """A request is not met.

    Args:
        status: Of the reply: 4xx, or 503 for what may be met later.
        sentence: What was wrong, and what to do.
        headers: Further ones of the reply.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


def refused(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The reply that says so."""
    return JSONResponse({"error": sentence}, status, dict(headers or {}))
