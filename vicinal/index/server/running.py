"""Run the server until it is told to stop; then finish what runs."""

from __future__ import annotations

import ctypes
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn

from vicinal.errors import InputError
from vicinal.index.index import Index
from vicinal.index.server.app import create_app
from vicinal.index.server.connections import guarded_protocol
from vicinal.index.server.server_settings import ServerSettings

__all__ = ["serve_index", "uvicorn_settings"]

KEEP_ALIVE = 30  # seconds that a connection may be idle
LARGE = 1 << 23  # bytes, of a block of memory: Pillow decodes large pictures into blocks of twice as many
M_MMAP_THRESHOLD = -3  # of malloc.h
WAITING = 128  # connections that are not accepted yet
LONGEST_HEAD = 1 << 16  # bytes of a request before its body: filters are in the address


def serve_index(
    index: Index, settings: ServerSettings | None = None, *, started: Callable[[str], Any] | None = None
) -> None:
    """Serve an index until SIGINT or SIGTERM; requests that run then are answered first.

    Args:
        index: Which stays the caller's to close.
        settings: What is allowed.
        started: Called with the address once the server can be reached.
    """
    settings = settings or ServerSettings()
    _return_large_blocks()
    listening = _listen(settings)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{listening.getsockname()[1]}/"
    config = uvicorn.Config(create_app(index, settings), **uvicorn_settings(settings))
    server = _Server(config, (lambda: started(address)) if started is not None else None)
    with listening:
        server.run(sockets=[listening])


def uvicorn_settings(settings: ServerSettings) -> dict[str, Any]:
    """What uvicorn is told, so that it allows what the settings do."""
    return {
        "http": guarded_protocol(settings),
        "log_level": logging.WARNING,
        "access_log": False,  # addresses may hold tokens
        "proxy_headers": False,  # whoever sends them could choose an address of their own
        "server_header": False,
        "timeout_keep_alive": KEEP_ALIVE,
        "timeout_graceful_shutdown": int(settings.seconds) + 1,
        "h11_max_incomplete_event_size": LONGEST_HEAD,
        "backlog": WAITING,
        "ws": "none",
        "lifespan": "on",
    }


def _return_large_blocks() -> None:
    """Let memory of large pictures go back to the system at once.

    The C library of Linux keeps blocks of a size that has been freed before: one PNG of 65 bytes that promised 49
    million pixels left the server 190 MB larger.
    """
    with suppress(OSError, AttributeError, TypeError):  # there is no such thing on other systems
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it is ready."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], Any] | None) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._tell is not None:
            self._tell()


def _listen(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise InputError(
            f"{settings.host}:{settings.port} cannot be listened at: {error}. Choose another --port (0 for any)."
        ) from None
    return listening
