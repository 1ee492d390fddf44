"""Embed many items: open and run them in threads, in order, with bounded memory and a progress bar."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Float32
from PIL import Image
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from vicinal._util.machine import cores
from vicinal._util.progress import LiveBar
from vicinal.embedder.engines import ENGINES, Choice, Engine, choose_engine, device_of, make_engine
from vicinal.embedder.inputs import Item, prepare
from vicinal.errors import InputError, UnknownName

if TYPE_CHECKING:
    from vicinal.embedder.embedder import Embedder

__all__ = ["BatchOptions", "Precision", "Run", "embed_each", "embed_in_batches", "evaluating", "stack", "usual_workers"]

Precision = Literal["float32", "bfloat16"]
# Takes a network, the number of items and a function that opens some of them; yields their rows in order.
Run: TypeAlias = Callable[
    [nn.Module, int, Callable[[range], Tensor]], Iterator[tuple[range, Float32[np.ndarray, "b d"]]]
]

FIRST = 8  # items in the first batch of a run, on which its engine is chosen


@final
@dataclass(frozen=True)
class BatchOptions:
    """How a network is run on many items.

    Args:
        batch_size: Maximum number of items per forward pass.
        workers: Number of threads; 0 for the calling thread only, None for one per core.
        engine: Key of `ENGINES`, or "auto" for the fastest.
        precision: Precision of the engine "eager": "float32" or "bfloat16".
        progress: Whether to show a progress bar on standard error.
        label: Text of the bar.
    """

    batch_size: int = 32
    workers: int | None = None
    engine: str = "auto"
    precision: Precision = "float32"
    progress: bool = False
    label: str = "embedding"

    def __post_init__(self) -> None:
        if self.batch_size < 1 or (self.workers or 0) < 0:
            raise InputError(
                f"batch_size must be at least 1 and workers at least 0; got {self.batch_size} and {self.workers}."
            )
        if self.engine != "auto" and self.engine not in ENGINES:
            raise UnknownName("engine", self.engine, ("auto", *ENGINES))
        if self.precision not in ("float32", "bfloat16"):
            raise UnknownName("precision", self.precision, ("float32", "bfloat16"))
        if self.precision == "bfloat16" and self.engine not in ("auto", "eager"):
            raise InputError(
                f"precision 'bfloat16' is for the engine 'eager'; got engine {self.engine!r}. Leave out one of them."
            )


DEFAULTS = BatchOptions()


def embed_each(
    embedder: Embedder,
    item: Callable[[int], Item],
    positions: Sequence[int],
    *,
    skip: tuple[type[Exception], ...] = (),
    run: Run | None = None,
) -> Iterator[tuple[int, Float32[np.ndarray, " d"] | Exception]]:
    """Yield each position with the embedding of its item, or with the error that prevented it.

    Args:
        embedder: The embedder, put in evaluation mode while this runs.
        item: Function that returns an item by its position; see `reader`.
        positions: Positions of the items, in the order in which they are yielded.
        skip: Errors of an item that are yielded in place of its embedding; others are raised.
        run: Function that runs the network on the opened items; `embed_in_batches` with its defaults if None.
    """
    expects, transform = embedder.backbone.input, embedder.transform
    errors: dict[int, Exception] = {}

    def opened(position: int) -> Tensor:
        try:
            return prepare(item(position), expects, transform)
        except skip as error:
            errors[position] = error
            blank: Any = np.zeros(expects.channels) if expects.pixels is None else Image.new("RGB", (8, 8))
            return prepare(blank, expects, transform)  # keeps the batch complete; its embedding is dropped

    network = nn.Sequential(embedder.backbone, embedder.head)

    def load(numbers: range) -> Tensor:
        return stack([opened(positions[number]) for number in numbers])

    for numbers, rows in (run or embed_in_batches)(network, len(positions), load):
        for number, row in zip(numbers, embedder.rounded(rows), strict=True):
            position = positions[number]
            yield position, errors.get(position, row)


def embed_in_batches(
    network: nn.Module,
    count: int,
    load: Callable[[range], Float[Tensor, "b ..."]],
    *,
    options: BatchOptions = DEFAULTS,
    chosen: Callable[[Choice], object] | None = None,
) -> Iterator[tuple[range, Float32[np.ndarray, "b d"]]]:
    """Yield the rows of items 0 to count - 1 in order, with their positions.

    A thread takes a batch, opens its items and, if the engine runs on one core, also runs the network on them. So
    every core always has work, and at most a batch or two per thread is in memory. Pillow, torch and onnxruntime
    release Python's global lock. Other engines use all cores at once, in the calling thread.

    Args:
        network: Network from inputs [b, ...] to rows [b, d]; put in evaluation mode while this runs.
        count: Number of items.
        load: Function that opens the items at some positions, as one tensor; called from several threads.
        options: Batch size, threads, engine, precision and progress bar.
        chosen: Callback, called with the engine once it is chosen.
    """
    if count == 0:
        return
    batch_size, label = options.batch_size, options.label
    workers = usual_workers() if options.workers is None else options.workers
    with evaluating(network), _progress_bar(options.progress) as bar:
        task = bar.add_task(label, total=count)
        # The few items of the first batch are opened in parallel, so that a short run does not wait for one thread.
        head = range(min(FIRST, batch_size, count))
        with ThreadPoolExecutor(max(1, workers)) as pool:
            opened = (
                pool.map(lambda position: load(range(position, position + 1)), head) if workers > 1 else [load(head)]
            )
            first = _joined(list(opened))
            choice = _choose(network, first, count, workers, options)
            if chosen is not None:
                chosen(choice)
            run = _run_of(choice.engine, network, first)
            kind = "images" if first.ndim == 4 else "items"
            start = time.perf_counter()
            yield head, run(first).numpy()
            done = len(head)
            rest = _rest(done, count, load, run, choice.engine, pool, batch_size, workers)
            with closing(
                rest
            ):  # closed before the pool, which would otherwise wait for batches that are no longer needed
                for positions, rows in rest:
                    done = positions.stop
                    rate = (done - len(head)) / max(time.perf_counter() - start, 1e-9)
                    bar.update(task, completed=done, description=_description(label, choice, f", {rate:.0f} {kind}/s"))
                    yield positions, rows
            if done == len(head):
                bar.update(task, completed=done, description=_description(label, choice))


def _description(label: str, choice: Choice, rate: str = "") -> str:
    note = f" ({choice.note})" if choice.note else ""
    return escape(f"{label}, {choice.engine.name}{rate}{note}")  # rich would parse brackets as markup


def usual_workers() -> int:
    """Return the number of threads that keep the cores busy; fewer if torch is limited to fewer threads."""
    return max(1, min(cores(), torch.get_num_threads()))


def _choose(network: nn.Module, first: Tensor, count: int, workers: int, options: BatchOptions) -> Choice:
    if options.precision == "float32":
        return choose_engine(network, first, count, workers=workers, name=options.engine)
    eager, device = make_engine(network, first, "eager"), device_of(network)

    def run(inputs: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            return eager.run(inputs)

    return Choice(Engine("eager", run), "bfloat16")


def _run_of(engine: Engine, network: nn.Module, first: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the engine's `run`; inputs of a different shape than it was built for go through eager."""
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
    step = max(1, min(most, -(-(count - start) // max(1, workers))))  # a short run is divided evenly
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
    finally:  # an error, Ctrl-C, or a caller that stopped: batches that have not started are cancelled
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
# At module level, since threads that embed with the same network at the same time share no other state: the last one
# to finish has to restore the mode of the modules. Networks are held by weak references.
_EVALUATING: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_LOCK = threading.Lock()


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode; restore the mode of every module when the last of several threads is done."""
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
