"""Embed many items: open and run in threads, in order, with bounded memory, and show progress."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from vicinal._util.machine import cores
from vicinal._util.progress import LiveBar
from vicinal.embedder.engines import ENGINES, Choice, Engine, choose_engine, device_of, make_engine
from vicinal.errors import InputError, UnknownName

__all__ = ["Precision", "embed_in_batches", "evaluating", "stack", "usual_workers"]

Precision = Literal["float32", "bfloat16"]

FIRST = 8  # items of a run's first batch, from which its engine is chosen


def embed_in_batches(
    network: nn.Module,
    count: int,
    load: Callable[[range], Float[Tensor, "b ..."]],
    *,
    batch_size: int = 32,
    workers: int | None = None,
    engine: str = "auto",
    precision: Precision = "float32",
    progress: bool = False,
    label: str = "embedding",
    chosen: Callable[[Choice], object] | None = None,
) -> Iterator[tuple[range, Float32[np.ndarray, "b d"]]]:
    """Yield the rows of items 0 to count - 1 in order, with the positions that they belong to.

    A thread takes a batch, opens its items and, where the engine runs on one core, runs the network on them too:
    so every core always has work, and no more than a batch or two per thread is in memory. Pillow, torch and
    onnxruntime do theirs without holding Python's lock. Other engines use all cores at once, in the calling thread.

    Args:
        network: From inputs [b, ...] to rows [b, d]; put in evaluation mode while this runs.
        count: How many items there are.
        load: Opens the items at some positions, as one tensor; called from several threads.
        batch_size: Items per forward pass, at most.
        workers: Threads; 0 for none but the calling one, None for as many as there are cores.
        engine: A key of `ENGINES`, or "auto".
        precision: "bfloat16" is for the engine "eager".
        progress: Whether to show a bar on standard error.
        label: What the bar says.
        chosen: Told the engine once it is chosen.
    """
    workers = usual_workers() if workers is None else workers
    if batch_size < 1 or workers < 0:
        raise InputError(f"batch_size must be at least 1 and workers at least 0; got {batch_size} and {workers}.")
    if engine != "auto" and engine not in ENGINES:
        raise UnknownName("engine", engine, ("auto", *ENGINES))
    if count == 0:
        return
    with evaluating(network), _progress_bar(progress) as bar:
        task = bar.add_task(label, total=count)
        # The few items of the first batch are opened at once, so that a short run does not wait for one thread.
        head = range(min(FIRST, batch_size, count))
        with ThreadPoolExecutor(max(1, workers)) as pool:
            opened = (
                pool.map(lambda position: load(range(position, position + 1)), head) if workers > 1 else [load(head)]
            )
            first = _joined(list(opened))
            choice = _choose(network, first, count, workers, engine, precision)
            if chosen is not None:
                chosen(choice)
            run = _run_of(choice.engine, network, first)
            kind = "images" if first.ndim == 4 else "items"
            start = time.perf_counter()
            yield head, run(first).numpy()
            done = len(head)
            rest = _rest(done, count, load, run, choice.engine, pool, batch_size, workers)
            with closing(rest):  # before the pool is, which would wait for batches that nobody wants any longer
                for positions, rows in rest:
                    done = positions.stop
                    rate = (done - len(head)) / max(time.perf_counter() - start, 1e-9)
                    bar.update(task, completed=done, description=_said(label, choice, f", {rate:.0f} {kind}/s"))
                    yield positions, rows
            if done == len(head):
                bar.update(task, completed=done, description=_said(label, choice))


def _said(label: str, choice: Choice, rate: str = "") -> str:
    note = f" ({choice.note})" if choice.note else ""
    return escape(f"{label}, {choice.engine.name}{rate}{note}")  # brackets would be taken for colours


def usual_workers() -> int:
    """Return how many threads keep this process's cores busy; fewer where torch was told to use fewer."""
    return max(1, min(cores(), torch.get_num_threads()))


def _choose(network: nn.Module, first: Tensor, count: int, workers: int, engine: str, precision: Precision) -> Choice:
    if precision not in ("float32", "bfloat16"):
        raise UnknownName("precision", precision, ("float32", "bfloat16"))
    if precision == "float32":
        return choose_engine(network, first, count, workers=workers, name=engine)
    if engine not in ("auto", "eager"):
        raise InputError(
            f"precision 'bfloat16' is for the engine 'eager'; got engine {engine!r}. Leave out one of them."
        )
    eager, device = make_engine(network, first, "eager"), device_of(network)

    def run(inputs: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return eager.run(inputs)

    return Choice(Engine("eager", run), "bfloat16")


def _run_of(engine: Engine, network: nn.Module, first: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the engine's `run`; inputs of another shape than it was made for go through eager."""
    eager, shape = make_engine(network, first, "eager"), first.shape[1:]
    return lambda inputs: (engine if inputs.shape[1:] == shape else eager).run(inputs)


def _rest(
    start: int,
    count: int,
    load: Callable[[range], Tensor],
    run: Callable[[Tensor], Tensor],
    engine: Engine,
    pool: ThreadPoolExecutor,
    batch_size: int,
    workers: int,
) -> Generator[tuple[range, Float32[np.ndarray, "b d"]], None, None]:
    most = min(batch_size, engine.most or batch_size)
    step = max(1, min(most, -(-(count - start) // max(1, workers))))  # a short run is shared out evenly
    batches = (range(first, min(first + step, count)) for first in range(start, count, step))
    if workers == 0:
        for positions in batches:
            yield positions, run(load(positions)).numpy()
        return

    def work(positions: range) -> Tensor:
        opened = load(positions)
        return run(opened) if engine.concurrent else opened

    ahead: deque[tuple[range, Future[Tensor]]] = deque()
    try:
        for positions in batches:
            ahead.append((positions, pool.submit(work, positions)))
            if len(ahead) > workers + 1:
                yield _taken(ahead, run, engine)
        while ahead:
            yield _taken(ahead, run, engine)
    finally:  # an error, Ctrl-C, or a caller who wants no more: what has not begun does not begin
        for _, future in ahead:
            future.cancel()


def _taken(
    ahead: deque[tuple[range, Future[Tensor]]], run: Callable[[Tensor], Tensor], engine: Engine
) -> tuple[range, Float32[np.ndarray, "b d"]]:
    positions, future = ahead.popleft()
    result = future.result()
    return positions, (result if engine.concurrent else run(result)).numpy()


def stack(items: list[Tensor]) -> Tensor:
    """Return items as one batch."""
    _check_shapes(items)
    return torch.stack(items)


def _joined(batches: list[Tensor]) -> Tensor:
    _check_shapes([batch[0] for batch in batches])
    return torch.cat(batches)


def _check_shapes(items: list[Tensor]) -> None:
    shapes = sorted({tuple(item.shape) for item in items})
    if len(shapes) > 1:
        raise InputError(f"The items of a batch must have one shape after the transform; got {shapes[:4]}.")


# Modules that were in training mode when a run began, with the number of runs that need them in evaluation mode.
_EVALUATING: dict[nn.Module, int] = {}
_LOCK = threading.Lock()


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode; give every module its mode back when the last of several threads is done."""
    with _LOCK:
        changed = [module for module in network.modules() if module.training or module in _EVALUATING]
        for module in changed:
            _EVALUATING[module] = _EVALUATING.get(module, 0) + 1
            module.training = False
    try:
        yield
    finally:
        with _LOCK:
            for module in changed:
                _EVALUATING[module] -= 1
                if not _EVALUATING[module]:
                    del _EVALUATING[module]
                    module.training = True


def _progress_bar(shown: bool) -> LiveBar:
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    return LiveBar(*columns, shown=shown)
