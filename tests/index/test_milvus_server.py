"""The store in Milvus against a real standalone server: the old one that PyPI carries, in an environment of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from itertools import count

import psutil
import pytest

from vicinal.index import Header
from vicinal.testing import check_store

pytest.importorskip("pymilvus", reason="pymilvus is not installed")
pytestmark = [pytest.mark.campaign, pytest.mark.filterwarnings("ignore")]

from vicinal.index.stores.milvus import MilvusStore  # noqa: E402

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


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("milvus")
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", *PACKAGES], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the Milvus server of PyPI cannot be had here: {done.stderr.strip()[-500:]}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-c", START, folder / "data", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as starter:
        said = starter.stdout.readline()
        try:
            if not said.startswith("up"):
                pytest.skip(f"the Milvus server of PyPI does not start here: {said}{starter.stdout.read()[-500:]}")
            yield f"milvus://127.0.0.1:{port}"
        finally:
            starter.kill()
            for process in psutil.process_iter(["exe"]):  # the server leaves the process that started it
                if (process.info["exe"] or "").startswith(str(folder)):
                    process.kill()


def test_it_keeps_the_contract_of_stores(url):
    def reopen(store):
        store.close()
        return MilvusStore(store.url, store.name)

    check_store(lambda header: MilvusStore.create(url, header, f"test_{next(numbers)}"), reopen)


def test_labels_that_change_are_found_where_a_server_sorts_replaced_rows_by_their_keys(url):
    store = MilvusStore.create(url, Header(3), f"test_{next(numbers)}")
    assert store._about()["by_partition"] is False
    store.close()
