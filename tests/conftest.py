"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # tests run in two processes; more threads than cores only slow them down


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real datasets, or a skip with the reason."""
    root = Path(os.environ.get("VICINAL_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"real data is absent: {root} is not a folder (set VICINAL_DATA to name another)")
    return root
