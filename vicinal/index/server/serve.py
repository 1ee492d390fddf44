"""Run the server until a stop signal; running requests are finished first."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import logging
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from vicinal.errors import InputError
from vicinal.index.index import Index
from vicinal.index.server.app import create_app
from vicinal.index.server.guard import SECURITY_HEADERS
from vicinal.index.server.settings import ServerSettings

__all__ = ["GuardedProtocol", "serve_index", "uvicorn_settings"]


# Limits on the number of connections, per address and in total, and on the time to receive the head of a request.
#
# uvicorn limits neither: its own `limit_concurrency` answers 503 to a request but keeps the connection, and it waits
# forever for a client that sends a header per minute, or nothing. So this protocol adds a counter and a timer to
# uvicorn's. It uses two undocumented members, `H11Protocol.cycle` and `H11Protocol.on_response_complete`, because no
# documented one reveals when uvicorn waits for the head of a request. tests/index/server/test_connections.py fails if
# an update of uvicorn changes them.


@dataclass(frozen=True)
class OpenConnections:
    """Open connections of one server.

    Attributes:
        settings: Settings with the limits.
        counts: Number of open connections by address.
    """

    settings: ServerSettings
    counts: Counter[str] = field(default_factory=Counter)

    def refusal(self, address: str) -> tuple[int, str] | None:
        """Return status and sentence if a connection exceeds a limit; None if it is allowed."""
        if self.counts.total() >= self.settings.max_connections:
            return 503, "Too many connections at once; try again in a moment."
        if self.counts[address] >= self.settings.max_connections_per_address:
            return 429, "Too many connections at once from this address."
        return None

    def remove(self, address: str) -> None:
        """Decrement the count of an address."""
        self.counts[address] -= 1
        if not self.counts[address]:
            del self.counts[address]


class GuardedProtocol(H11Protocol):
    """One connection of uvicorn, within the limits on connections and time.

    Args:
        connections: Open connections of the server, shared by all.
        **options: Arguments of uvicorn.
    """

    def __init__(self, connections: OpenConnections, **options: Any) -> None:
        super().__init__(**options)
        self._connections = connections
        self._address: str | None = None  # while it is counted
        self._clock: asyncio.TimerHandle | None = None  # while waiting for the head of a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count a new connection, or refuse it."""
        super().connection_made(transport)
        # asyncio only does this for sockets that it created; without it, a body waits 40 ms for the ACK of its head.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = self.client[0] if self.client else ""
        refusal = self._connections.refusal(address)
        if refusal is not None:
            self._send_away(*refusal)
        else:
            self._address = address
            self._connections.counts[address] += 1
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting a closed connection."""
        super().connection_lost(exc)
        self._unwatch()
        if self._address is not None:
            self._connections.remove(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        """Process received data, unless the connection is being closed."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Stop the timer: from here on uvicorn's own timer runs until data arrives."""
        super().on_response_complete()
        self._unwatch()

    def _watch(self) -> None:
        """Start the timer for the head of a request, unless a request is being answered or the timer already runs."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._clock is None and not self.transport.is_closing():
            self._clock = self.loop.call_later(self._connections.settings.timeout, self._too_slow)

    def _unwatch(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _too_slow(self) -> None:
        seconds = self._connections.settings.timeout
        self._send_away(408, f"The request did not arrive within {seconds:g} seconds.")

    def _send_away(self, status: int, sentence: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(_reply(status, sentence))
            self.transport.close()


def _reply(status: int, sentence: str) -> bytes:
    body = json.dumps({"error": sentence}).encode()
    headers: dict[str, Any] = {
        "Content-Type": "application/json",
        "Content-Length": len(body),
        "Connection": "close",
        "Retry-After": 1,
        **SECURITY_HEADERS,
    }
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


KEEP_ALIVE = 30  # seconds that a connection may be idle
LARGE = 1 << 23  # bytes of a memory block: Pillow decodes large pictures into blocks of twice this size
M_MMAP_THRESHOLD = -3  # from malloc.h
WAITING = 128  # connections waiting to be accepted
LONGEST_HEAD = 1 << 16  # bytes of a request before its body: filters are in the URL


def serve_index(
    index: Index, settings: ServerSettings | None = None, *, started: Callable[[str], Any] | None = None
) -> None:
    """Serve an index until SIGINT or SIGTERM; running requests are answered first.

    Args:
        index: Index to serve; the caller closes it.
        settings: Settings of the server.
        started: Callback that receives the address once the server accepts requests.
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
    """Return the arguments of uvicorn that implement the settings."""
    return {
        "http": partial(GuardedProtocol, OpenConnections(settings)),
        "log_level": logging.WARNING,
        "access_log": False,  # addresses may hold tokens
        "proxy_headers": False,  # a client could use them to forge its address
        "server_header": False,
        "timeout_keep_alive": KEEP_ALIVE,
        "timeout_graceful_shutdown": int(settings.timeout) + 1,
        "h11_max_incomplete_event_size": LONGEST_HEAD,
        "backlog": WAITING,
        "ws": "none",
        "lifespan": "on",
    }


def _return_large_blocks() -> None:
    """Return the memory of large pictures to the system immediately.

    The C library of Linux keeps blocks of a size that has been freed before: one PNG of 65 bytes whose header declared
    49 million pixels left the server 190 MB larger.
    """
    with suppress(OSError, AttributeError, TypeError):  # mallopt does not exist on other systems
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


class _Server(uvicorn.Server):
    """uvicorn's server with a callback when it is ready."""

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
        reason = f"Cannot listen on {settings.host}:{settings.port}: {error}."
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            reason = f"Port {settings.port} is already in use."
        raise InputError(f"{reason} Choose another --port (0 for any free one).") from None
    return listening
