"""How a Milvus server is reached, and what it says when it refuses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from vicinal.errors import DataError, MissingExtra
from vicinal.masking import masked, without_secrets

__all__ = ["address_of", "milvus_client", "pymilvus_library", "refusals"]

PATIENCE = 10.0  # seconds to wait for a server


def milvus_client(url: str) -> Any:
    """A client of the server at an address.

    Raises:
        DataError: If it cannot be reached, with the address but not its secrets.
    """
    milvus = pymilvus_library()
    try:
        return milvus.MilvusClient(**address_of(url))
    except Exception as error:  # pymilvus has no common kind for what keeps it from connecting
        said = without_secrets(str(error).splitlines()[0] if str(error) else type(error).__name__, url)
        raise DataError(f"Milvus at {masked(url)} cannot be reached: {said}") from None


def address_of(url: str) -> dict[str, Any]:
    """What pymilvus wants to know of an address.

    Example:
        >>> address_of("milvus+https://me:p%40ss@host:19530/birds")
        {'uri': 'https://host:19530', 'token': 'me:p@ss', 'db_name': 'birds', 'timeout': 10.0}
    """
    parts = urlsplit(url)
    if not parts.netloc:
        return {"uri": url.partition("://")[2]}
    login, _, host = parts.netloc.rpartition("@")
    [token] = parse_qs(parts.query).get("token", [unquote(login) or os.environ.get("MILVUS_TOKEN", "")])
    protocol = "https" if parts.scheme.endswith("+https") else "http"
    return {"uri": f"{protocol}://{host}", "token": token, "db_name": parts.path.strip("/"), "timeout": PATIENCE}


@contextmanager
def refusals() -> Iterator[None]:
    """Say in one kind of error what the server refuses."""
    try:
        yield
    except pymilvus_library().MilvusException as error:
        raise DataError(f"Milvus refused: {str(error).strip()}") from error


def pymilvus_library() -> Any:
    """The library, where it is installed."""
    try:
        import pymilvus
    except ImportError:
        raise MissingExtra("milvus", "an index in Milvus") from None
    return pymilvus
