"""Names that every doctest may use without importing them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def _names_for_doctests(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch
    doctest_namespace["np"] = np
