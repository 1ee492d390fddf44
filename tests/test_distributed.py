"""Two processes that hold parts of a batch train as one process that holds all of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from vicinal.distributed import gather_batch, world_size

WORKER = Path(__file__).with_name("distributed_worker.py")


@pytest.fixture(scope="module")
def worker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("distributed_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes over gloo recorded in all scenarios."""
    folder = tmp_path_factory.mktemp("gloo")
    outs = [folder / f"rank{rank}.pt" for rank in (0, 1)]
    environment = os.environ | {"PYTHONPATH": str(WORKER.parents[1]), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), "2", str(folder / "store"), str(out)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), "\n".join(errors)
    return [torch.load(out, weights_only=True) for out in outs]


NAMES = ["batch", "unequal", "one empty", "regulariser", "proxies", "centres", "memory", "random", "distance weighted"]


def test_every_scenario_is_checked(worker: ModuleType) -> None:
    assert set(worker.SCENARIOS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_equal_one(worker: ModuleType, ranks: list[dict[str, Any]], name: str) -> None:
    """Losses and gradients of network, proxies and learned options, over three steps of descent."""
    single = worker.train(worker.SCENARIOS[name], None)
    assert any(value.abs().max() > 1e-3 for key, value in single.items() if key.startswith("gradient"))
    for rank in ranks:
        assert rank[name].keys() == single.keys()
        for key, expected in single.items():
            assert (rank[name][key] - expected).abs().max() < 1e-6, key


def test_alone_nothing_is_gathered() -> None:
    assert world_size() == 1
    embeddings, labels, ids = torch.randn(3, 2), torch.arange(3), torch.arange(3)
    gathered = gather_batch(embeddings, labels, ids)
    assert gathered[0] is embeddings
    assert gathered[1] is labels
    assert gathered[2] is ids
