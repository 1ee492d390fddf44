"""Connections: how many there may be, of one address and in all, and how long the head of a request may take.

uvicorn limits neither: its own `limit_concurrency` answers 503 to a request, but keeps the connection, and who sends
a header a minute, or nothing, is waited for. So the protocol is uvicorn's with a count and a clock beside it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from vicinal.index.server.guard import SECURITY_HEADERS
from vicinal.index.server.server_settings import ServerSettings

__all__ = ["guarded_protocol"]


def guarded_protocol(settings: ServerSettings) -> type[H11Protocol]:
    """Make the protocol of a server: uvicorn's, within the settings' number of connections and seconds."""
    open_now: Counter[str] = Counter()

    class GuardedProtocol(H11Protocol):
        """One connection."""

        _address: str | None = None  # while it is counted
        _clock: asyncio.TimerHandle | None = None  # while the head of a request is waited for

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            # asyncio does so for sockets that it made itself; else a body waits 40 ms for its head to be acknowledged.
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            address = self.client[0] if self.client else ""
            if open_now.total() >= settings.most_connections:
                self._send_away(503, "Too many connections at once; try again in a moment.")
            elif open_now[address] >= settings.most_connections_of_one_address:
                self._send_away(429, "Too many connections at once from this address.")
            else:
                self._address = address
                open_now[address] += 1
                self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._unwatch()
            if self._address is not None:
                open_now[self._address] -= 1
                if not open_now[self._address]:
                    del open_now[self._address]
                self._address = None

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._unwatch()  # from here on uvicorn's own clock runs, until something arrives

        def _watch(self) -> None:
            """Begin to wait for the head of a request, unless one is being answered or waited for."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._unwatch()
            elif self._clock is None and not self.transport.is_closing():
                self._clock = self.loop.call_later(settings.seconds, self._too_slow)

        def _unwatch(self) -> None:
            if self._clock is not None:
                self._clock.cancel()
                self._clock = None

        def _too_slow(self) -> None:
            self._send_away(408, f"The request did not arrive within {settings.seconds:g} seconds.")

        def _send_away(self, status: int, sentence: str) -> None:
            if not self.transport.is_closing():
                self.transport.write(_reply(status, sentence))
                self.transport.close()

    return GuardedProtocol


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
