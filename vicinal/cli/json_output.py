"""What `--json` prints: valid JSON, alone on standard output."""

from __future__ import annotations

import json
import math
from typing import Any

import typer

__all__ = ["plain", "print_json"]


def print_json(value: Any) -> None:
    """Print plain data, tensors and arrays among it; what JSON has no word for, such as infinity, is null."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Return what JSON has words for.

    Example:
        >>> plain({"bound": float("inf"), "kept": (1, 2.5)})
        {'bound': None, 'kept': [1, 2.5]}
    """
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # of torch and numpy, neither of which need be imported here
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
