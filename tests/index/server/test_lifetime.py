"""A server while its index changes, and when it is told to stop."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import vicinal as vc
from vicinal.embedder import queries as query_embedding
from vicinal.embedder.engines import forget_engines
from vicinal.index import Index

pytestmark = pytest.mark.slow


def test_no_request_fails_while_generations_change(live: Any, vectors: Index) -> None:
    queries = np.random.default_rng(5).normal(size=(8, 4))
    expected = vectors.search(vector=queries, k=5)
    failed: list[str] = []
    answered = [0]
    done = threading.Event()
    with live(vectors) as url, vc.connect(url) as remote:

        def ask() -> None:
            while not done.is_set():
                try:
                    same = remote.search(vector=queries, k=5) == expected
                    answered[0] += 1
                    if not same:
                        failed.append("another answer")
                except Exception as error:
                    failed.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            vectors.compact()
            done.wait(0.7)
        done.set()
        for thread in threads:
            thread.join()
        assert failed == []
        assert answered[0] > 5
        assert int(remote.generation.partition(".")[0]) > 1


def test_sigterm_finishes_what_runs(vectors: Index) -> None:
    command = [sys.executable, "-m", "vicinal", "serve", str(vectors.path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        address = urlsplit(server.stdout.readline().strip())
        body = b'{"vector": [1, 0, 0, 0]}'
        with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
            head = f"POST /search HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
            threading.Event().wait(1.0)
            server.send_signal(signal.SIGTERM)
            threading.Event().wait(1.0)
            connection.sendall(body[5:])
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        assert server.wait(30) in (0, -signal.SIGTERM)


def test_the_first_picture_does_not_wait_for_its_engine(
    asked: Any, pictures: Index, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    forget_engines()
    make = query_embedding._query_engine
    monkeypatch.setattr(query_embedding, "_query_engine", lambda *given: made.append(given) or make(*given))
    with asked(pictures) as client:
        assert len(made) == 1
        content = (photos / "a" / "1.png").read_bytes()
        assert client.post("/search", content=content, headers={"Content-Type": "image/png"}).status_code == 200
    assert len(made) == 1
