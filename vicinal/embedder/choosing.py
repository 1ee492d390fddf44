"""Choose the engine that embeds so many items soonest, its making included, and check it against eager."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import platform
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.atomic import replacing
from vicinal.embedder.engines import TOLERANCE, Engine, candidates, device_of, difference, make_engine
from vicinal.embedder.fingerprint import fingerprint, outline
from vicinal.errors import DataError, MissingExtra
from vicinal.machine import cache_folder
from vicinal.reading import read_json

__all__ = ["CHECKED", "Choice", "Measured", "choose_engine", "forget_engines"]

CHECKED = 4  # rows of a run that are computed by eager too; eager may be twenty times slower
WORTH = 3.0  # seconds of eager work below which making and measuring other engines does not pay
PATIENCE = 60.0  # seconds of eager work from which torch's slow exporter may be tried too
# What each further thread is counted to add to the speed of the first: they share caches and memory, which a short
# measurement of one does not tell.
BESIDE = 0.6
FILE = "engines.json"

# The engines made last, by what they were made from: a network that has changed does not find its old one. Two, for an
# embedder and its features; more would hold the weights of networks that nobody uses any longer.
_KEPT: OrderedDict[tuple[str, str, str], Engine] = OrderedDict()
_PASSED: set[tuple[str, str, str]] = set()
_LOCK = threading.Lock()
MOST_KEPT = 2


@final
@dataclass(frozen=True)
class Choice:
    """The engine of one run.

    Attributes:
        engine: What runs the network.
        note: Why it is not the one that was asked for, or how to get a faster one; empty if there is nothing to say.
    """

    engine: Engine
    note: str = ""


@final
@dataclass(frozen=True)
class Measured:
    """What was measured once of a network on this machine, by engine; an engine that cannot run it is absent.

    Attributes:
        seconds: Per item, with all threads at work.
        making: Seconds until the engine is ready.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    making: Mapping[str, float] = field(default_factory=dict)


def choose_engine(
    network: nn.Module, first: Float[Tensor, "n ..."], count: int, *, workers: int = 1, name: str = "auto"
) -> Choice:
    """Return an engine whose rows for the first items are those of eager, or eager itself.

    Args:
        network: In evaluation mode.
        first: The first items of the run; a few of their rows are compared.
        count: How many items there are in all: few are not worth the making of an engine.
        workers: Threads that will call it.
        name: A key of `ENGINES`, or "auto" for the fastest; which that is on this machine is measured at the first
            run that is long enough, and kept in the cache folder.
    """
    eager = make_engine(network, first, "eager")
    if name == "eager" or len(first) == 0:
        return Choice(eager)
    if name == "auto" and count <= CHECKED:
        return Choice(_kept_and_checked(network, first) or eager)
    rows = sorted({round(row) for row in np.linspace(0, len(first) - 1, CHECKED)})
    start = time.perf_counter()
    expected = eager.run(first[rows]).numpy()
    eager_seconds = (time.perf_counter() - start) / len(rows)
    note = ""
    if name == "auto":
        name, note = _fastest(network, first, count, workers, eager_seconds)
        if name == "eager":
            return Choice(eager, note)
    try:
        engine = _prepare(network, first, name)
        found = engine.run(first)[rows].numpy()
    except MissingExtra:
        raise
    except Exception as error:  # torch and onnxruntime raise errors of many kinds for what they cannot run
        return Choice(eager, f"{name} cannot run this network ({_first_line(error)})")
    worst = float(difference(found, expected).max(initial=0.0)) if found.shape == expected.shape else math.inf
    if not worst <= TOLERANCE:
        return Choice(eager, f"{name} gave other embeddings (difference {worst:.2g}, at most {TOLERANCE:g} is allowed)")
    with _LOCK:
        _PASSED.update(key for key, kept in _KEPT.items() if kept is engine)
    return Choice(engine, note)


def forget_engines() -> None:
    """Free the engines that are kept for the next call of `encode` with the same weights."""
    with _LOCK:
        _KEPT.clear()
        _PASSED.clear()


def _fastest(network: nn.Module, first: Tensor, count: int, workers: int, eager_seconds: float) -> tuple[str, str]:
    names = candidates(device_of(network))
    missing = "onnxruntime" in names and not (_installed("onnx") and _installed("onnxruntime"))
    note = "faster with pip install 'vicinal[onnx]'" if missing else ""
    key = _machine_and_shape(network, first, workers)
    known = _read().get(key)
    if known is None:
        eager = make_engine(network, first, "eager")
        # The first pass of a process is slower than all others: it does not count alone.
        if count * eager_seconds >= WORTH:
            eager_seconds = min(eager_seconds, _seconds(eager, first[:CHECKED]))
        if count * eager_seconds < WORTH:
            return "eager", ""
        patient = count * eager_seconds >= PATIENCE
        known = _measure(
            network, first, [name for name in names if not (missing and name == "onnxruntime")], workers, patient
        )
        _write(key, known)
    made = {name for _, _, name in _keys_of(network, first)} if _KEPT else set()
    seconds = {
        name: count * spent + (0.0 if name in made else known.making.get(name, 0.0))
        for name, spent in known.seconds.items()
    }
    return min(seconds, key=seconds.__getitem__, default="eager"), note


def _seconds(engine: Engine, inputs: Tensor) -> float:
    start = time.perf_counter()
    engine.run(inputs)
    return (time.perf_counter() - start) / len(inputs)


def _measure(network: nn.Module, first: Tensor, names: list[str], workers: int, patient: bool) -> Measured:
    seconds: dict[str, float] = {}
    making: dict[str, float] = {}
    for name in ("eager", *names):
        start = time.perf_counter()
        try:
            engine = make_engine(network, first, name) if name == "eager" else _prepare(network, first, name, patient)
            engine.run(first[:1])
            ready = time.perf_counter() - start
            spent = _seconds(engine, first)
        except Exception:  # an engine that cannot run this network is left out, whatever it raised
            continue
        seconds[name] = spent / (1 + BESIDE * (workers - 1) if engine.concurrent and workers > 1 else 1)
        making[name] = 0.0 if name == "eager" else ready
    return Measured(seconds, making)


def _prepare(network: nn.Module, sample: Tensor, name: str, patient: bool = True) -> Engine:
    key = (fingerprint(network), str(tuple(sample.shape[1:])), name)
    with _LOCK:
        if key in _KEPT:
            _KEPT.move_to_end(key)
            return _KEPT[key]
    engine = make_engine(network, sample, name, patient=patient)
    with _LOCK:
        _KEPT[key] = engine
        while len(_KEPT) > MOST_KEPT:
            _PASSED.discard(_KEPT.popitem(last=False)[0])
    return engine


def _keys_of(network: nn.Module, sample: Tensor) -> list[tuple[str, str, str]]:
    """Return the keys of the engines that were made from the network as it is now."""
    state, shape = fingerprint(network), str(tuple(sample.shape[1:]))
    with _LOCK:
        return [key for key in _KEPT if key[:2] == (state, shape)]


def _kept_and_checked(network: nn.Module, first: Tensor) -> Engine | None:
    """Return an engine that has agreed with eager before: to check it again would take longer than eager alone."""
    if not _KEPT:
        return None
    keys = _keys_of(network, first)
    with _LOCK:
        return next((_KEPT[key] for key in reversed(keys) if key in _PASSED and key in _KEPT), None)


def _machine_and_shape(network: nn.Module, sample: Tensor, workers: int) -> str:
    device = device_of(network)
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    versions = f"torch {torch.__version__}, onnxruntime {_version('onnxruntime')}"
    shape = "x".join(map(str, sample.shape[1:]))
    return f"{processor}, {versions}, {workers} workers, {torch.get_num_threads()} threads, {shape}, {outline(network)}"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _installed(module: str) -> bool:
    # by the module, as several packages bring onnxruntime
    return importlib.util.find_spec(module) is not None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read() -> dict[str, Measured]:
    """Return what was measured on machines that share this cache folder; nothing if the file is absent or damaged."""
    try:
        content = read_json(cache_folder() / FILE)
        return {key: Measured(dict(value["seconds"]), dict(value["making"])) for key, value in content.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(key: str, measured: Measured) -> None:
    with suppress(OSError, DataError):  # a cache that cannot be written to costs a measurement each time, no more
        cache_folder().mkdir(parents=True, exist_ok=True)
        content = {name: asdict(value) for name, value in {**_read(), key: measured}.items()}
        with replacing(cache_folder() / FILE) as file:
            file.write(f"{json.dumps(content, indent=1)}\n".encode())


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"[
        :160
    ]
