"""What the tests of the server share: small indexes, and an app that is asked without a network."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from starlette.testclient import TestClient

from vicinal.index import Index
from vicinal.index.server import ServerSettings, create_app
from vicinal.index.server.serve import uvicorn_settings


@pytest.fixture
def asked() -> Any:
    """An app of an index, as a client that asks it without a network."""

    @contextmanager
    def opened(index: Index, **settings: Any) -> Iterator[TestClient]:
        app = create_app(index, ServerSettings(**settings))
        with TestClient(app, base_url="http://127.0.0.1:8765") as client:
            yield client

    return opened


@pytest.fixture
def live() -> Any:
    """A server of an index at a port of this machine, as its address."""

    @contextmanager
    def opened(index: Index, **settings: Any) -> Iterator[str]:
        allowed = ServerSettings(**settings)
        server = uvicorn.Server(uvicorn.Config(create_app(index, allowed), **uvicorn_settings(allowed)))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True
                thread.join()

    return opened


@pytest.fixture
def vectors(tmp_path: Path) -> Iterator[Index]:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 4)).astype(np.float32)
    labels = [f"c{place % 3}" for place in range(60)]
    names = [f"n{place}" for place in range(60)]
    with Index.of_vectors(
        tmp_path / "v.index",
        rows,
        ids=names,
        labels=labels,
        metadata={"year": list(range(60)), "secret": ["s"] * 60},
    ) as index:
        yield index


@pytest.fixture
def pictures(tmp_path: Path, photos: Path, model: Any) -> Iterator[Index]:
    with Index.build(tmp_path / "p.index", model, photos) as index:
        yield index
