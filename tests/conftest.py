"""Fixtures for all tests."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import pytest
import torch

# What can be computed again is computed once for all tests and both processes, and not in the user's own folder.
os.environ["VICINAL_CACHE"] = str(
    Path(tempfile.gettempdir()) / f"vicinal-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
)

torch.set_num_threads(1)  # tests run in two processes; more threads than cores only slow them down


@pytest.fixture(scope="session", autouse=True)
def _no_engine_is_measured() -> None:
    """Which engine is fastest depends on what else runs; tests that compare runs bit for bit must not."""
    from vicinal.embedder import engines as choosing

    choosing.WORTH = math.inf


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real datasets, or a skip with the reason."""
    root = Path(os.environ.get("VICINAL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"real data is absent: {root} is not a folder (set VICINAL_DATA to name another)")
    return root
