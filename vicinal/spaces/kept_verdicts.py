"""Verdicts on distances, kept by all that they depend on: a search over triples takes seconds, and never changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vicinal.atomic import write_atomically
from vicinal.errors import DataError
from vicinal.reading import read_json
from vicinal.spaces.metric_verdict import MetricVerdict
from vicinal.spaces.triples import Triple

__all__ = ["kept_verdict"]


def kept_verdict(
    folder: Path, inputs: Mapping[str, Any], subject: str, search: Callable[[], MetricVerdict]
) -> MetricVerdict:
    """Return the verdict that is kept for some inputs, or search for it and keep it.

    Args:
        folder: Made if need be; one that cannot be written to costs a search each time, no more.
        inputs: All that the verdict depends on, beside the version of vicinal.
        subject: What the verdict is about: losses that measure alike share one search.
        search: Finds it.
    """
    every = {**inputs, "vicinal": version("vicinal"), "torch": torch.__version__}
    key = json.dumps(every, sort_keys=True, default=repr)
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    try:
        verdict = _read(path)
    except (OSError, ValueError, KeyError, TypeError):  # not there yet, or damaged
        verdict = search()
        with suppress(OSError, DataError):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(asdict(verdict), default=lambda tensor: tensor.tolist()))
    return replace(verdict, subject=subject)


def _read(path: Path) -> MetricVerdict:
    values = read_json(path)
    through = values["worst_through_vertices"]
    return MetricVerdict(
        **{
            **values,
            "faults": tuple(values["faults"]),
            "worst": _triple(values["worst"]),
            "worst_through_vertices": None if through is None else _triple(through),
        }
    )


def _triple(values: dict[str, Any]) -> Triple:
    points = {name: torch.tensor(values[name], dtype=torch.float64) for name in ("x", "y", "z")}
    return Triple(**{**values, **points})
