"""Connections: slow heads and bodies are not waited for, and neither are there any number of connections."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from vicinal.index import Index
from vicinal.index.server.serve import GuardedProtocol
from vicinal.index.server.settings import ServerSettings

ASK = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def connected(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=60)


def answer(connection: socket.socket) -> bytes:
    """All that is sent until the other side closes."""
    pieces = []
    while piece := connection.recv(4096):
        pieces.append(piece)
    return b"".join(pieces)


def test_slow_heads_and_bodies(live: Any, vectors: Index) -> None:
    head = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
    with live(vectors, timeout=0.3) as url:
        for begun in (b"", ASK[:20], head):
            with connected(url) as connection:
                connection.sendall(begun)
                reply = answer(connection)
            assert reply.startswith(b"HTTP/1.1 408 "), begun
            assert b"did not arrive within 0.3 seconds" in reply
            assert b"content-security-policy" in reply.lower()


def test_a_slow_second_head_is_not_waited_for_either(live: Any, vectors: Index) -> None:
    with live(vectors, timeout=0.3) as url, connected(url) as connection:
        connection.sendall(ASK)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        connection.sendall(ASK[:20])
        assert b"408 Request Timeout" in answer(connection)


def test_many_connections(live: Any, vectors: Index) -> None:
    with live(vectors, max_concurrent=2) as url:
        kept = [connected(url) for _ in range(8)]
        for connection in kept:
            connection.sendall(ASK)
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        with connected(url) as one_more:
            assert answer(one_more).startswith(b"HTTP/1.1 503 ")
        kept.pop().close()
        for _ in range(600):  # until the server has seen that it is gone
            with connected(url) as again:
                again.sendall(ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                if answer(again).startswith(b"HTTP/1.1 200 "):
                    break
        else:
            raise AssertionError("a place that became free was not given away")
        for connection in kept:
            connection.close()


def test_connections_of_one_address(live: Any, vectors: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerSettings, "max_connections_per_address", 1)
    with live(vectors) as url, connected(url) as first:
        first.sendall(ASK)
        assert first.recv(4096).startswith(b"HTTP/1.1 200 ")
        with connected(url) as second:
            assert answer(second).startswith(b"HTTP/1.1 429 ")


def test_a_body_does_not_wait_until_its_head_is_acknowledged(
    live: Any, vectors: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def noted(self: GuardedProtocol, transport: Any) -> None:
        made.append(transport.get_extra_info("socket"))
        begin(self, transport)

    begin = GuardedProtocol.connection_made
    monkeypatch.setattr(GuardedProtocol, "connection_made", noted)
    with live(vectors) as url, connected(url) as connection:
        connection.sendall(ASK)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert [theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for theirs in made] == [1]
