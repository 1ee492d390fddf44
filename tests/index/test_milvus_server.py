"""The store in Milvus against a real standalone server: the old one that PyPI carries, in an environment of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from itertools import count
from pathlib import Path

import numpy as np
import psutil
import pytest

from vicinal.errors import DataError
from vicinal.index import Header, Index
from vicinal.testing import check_store

pytest.importorskip("pymilvus", reason="pymilvus is not installed")
pytestmark = [pytest.mark.campaign, pytest.mark.filterwarnings("ignore")]

from vicinal.index.milvus_client import milvus_client  # noqa: E402
from vicinal.index.milvus_store import MilvusStore  # noqa: E402

PACKAGES = ["milvus==2.3.5", "marshmallow<4", "environs<10", "setuptools"]
START = """
import sys, time
from milvus import default_server
default_server.set_base_dir(sys.argv[1])
default_server.listen_port = int(sys.argv[2])
default_server.start()
print("up", flush=True)
time.sleep(1e6)
"""
numbers = count()


class Server:
    """A server in a folder, which can be killed and started again."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder = python, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"milvus://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [self.python, "-c", START, self.folder, str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = ""
        for line in self.process.stdout:
            said += line
            if line.startswith("up"):
                return self._answers()
        self.kill()
        pytest.skip(f"the Milvus server of PyPI does not start here: {said[-500:]}")

    def _answers(self) -> None:
        """Wait until it has read its data again, which it calls being up already."""
        for trial in range(30):
            try:
                return milvus_client(self.url).close()
            except DataError:
                if trial == 29:
                    raise

    def kill(self) -> None:
        for process in psutil.process_iter(["exe"]):  # it leaves the process that started it
            if (process.info["exe"] or "").startswith(str(self.folder)):
                process.kill()
                process.wait()
        self.process.kill()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("milvus")
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", *PACKAGES], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the Milvus server of PyPI cannot be had here: {done.stderr.strip()[-500:]}")
    server = Server(python, folder / "data")
    server.start()
    yield server
    server.kill()


def test_it_keeps_the_contract_of_stores(server):
    def reopen(store):
        store.close()
        return MilvusStore(store.url, store.name)

    check_store(lambda header: MilvusStore.create(server.url, header, f"test_{next(numbers)}"), reopen)


def test_labels_that_change_are_found_where_a_server_sorts_replaced_rows_by_their_keys(server):
    store = MilvusStore.create(server.url, Header(3), f"test_{next(numbers)}")
    assert store._about()["by_partition"] is False
    store.close()


def test_a_kill_of_the_server_loses_nothing_that_was_acknowledged(server, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(1500, 16)).astype(np.float32)
    labels = [["wren", "crow"][place % 2] for place in range(len(vectors))]
    with Index.of_vectors(tmp_path / "x.index", vectors, labels=labels, store=server.url) as index:
        expected = [part.tolist() for part in index.nearest(vectors[:5], 7, "label = 'wren'")]
    server.kill()
    server.start()
    with Index.open(tmp_path / "x.index") as index:
        assert len(index) == len(vectors)
        assert [part.tolist() for part in index.nearest(vectors[:5], 7, "label = 'wren'")] == expected
        assert index.verify() == []
