"""Batches of tensors from a Dataset, optionally by worker processes; independent of their number."""

from __future__ import annotations

import itertools
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast, final, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vicinal._util.warnings import warn_caller
from vicinal.data.dataset import Dataset
from vicinal.data.files import IMAGE_ERRORS
from vicinal.data.transforms import Transform, as_transform
from vicinal.errors import DataError, InputError

LOSSES = 3  # number of times that worker processes may be killed on one batch
Indices = Sequence[int] | npt.NDArray[np.int64]


@runtime_checkable
class Resumable(Protocol):
    """A sampler that knows its position, such as those of `vicinal.sampling`."""

    epoch: int
    batch: int

    def remaining(self) -> list[npt.NDArray[np.int64]]:
        """Return the batches that are left of this epoch."""
        ...

    def advance(self) -> None:
        """Record that one batch was used."""
        ...


@runtime_checkable
class OfRows(Protocol):
    """A transform of feature vectors that takes a batch at once, which is much faster than one by one."""

    def rows(self, vectors: npt.NDArray[np.floating], items: npt.NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """Transform some of the vectors [n, d], which may be memory-mapped."""
        ...


class ItemBatch(NamedTuple):
    """Batch of a loader."""

    images: Tensor
    labels: Tensor
    indices: Tensor


class _Key(NamedTuple):
    """Identifies one draw: the item, the epoch, the batch, and the number of its earlier draws in that batch."""

    item: int
    epoch: int
    batch: int
    before: int


@final
@dataclass(frozen=True)
class _Bad:
    item: int
    reason: str


_Fetched = tuple[Tensor, Tensor, list[_Bad]]


def batches(
    dataset: Dataset,
    transform: Callable[..., Tensor] | None,
    batch_sampler: Resumable | Iterable[Indices],
    *,
    workers: int = 0,
    seed: int = 0,
    skip_bad: bool = False,
) -> Iterator[ItemBatch]:
    """Yield the batches that are left of a sampler's epoch, as (images, labels, indices).

    The generator passed to a transform is seeded by (seed, epoch, batch, item), so that every tensor is
    the same for any number of workers and after a resume. A sampler advances when its batches are
    yielded, not when workers prefetch them: its state is always that of the training loop.

    Args:
        dataset: Dataset of the items.
        transform: Function from an image (or vector) to a tensor; any callable that `as_transform` accepts.
            None leaves vectors unchanged.
        batch_sampler: Sampler from `vicinal.sampling`, or any iterable of sequences of indices.
        workers: Number of worker processes that decode; 0 decodes in this process.
        seed: Seed of all random transforms.
        skip_bad: Whether to leave out unreadable items with a warning (their batch is smaller) instead of
            raising an error.

    Raises:
        DataError: Lists the files that cannot be read; not raised with `skip_bad`.
    """
    resumable = batch_sampler if isinstance(batch_sampler, Resumable) else None
    epoch, first = (resumable.epoch, resumable.batch) if resumable else (0, 0)
    plan = resumable.remaining() if resumable else cast(Iterable[Indices], batch_sampler)
    for images, indices, bad in _fetch(dataset, transform, _keys(plan, epoch, first), seed, workers):
        if bad:
            _report(dataset, bad, skip_bad)
        if resumable:
            resumable.advance()
        if len(indices):
            yield ItemBatch(images, torch.from_numpy(dataset.labels[indices.numpy()]), indices)


def open_items(
    dataset: Dataset, transform: Callable[..., Tensor], items: Indices, seeds: Sequence[Sequence[int]]
) -> Tensor:
    """Return a few items as one tensor, in this thread.

    Args:
        dataset: Dataset of the items.
        transform: Function from an image (or vector) to a tensor; any callable that `as_transform` accepts.
        items: Indices of the items.
        seeds: Seed of the generator passed to the transform, for each item.

    Raises:
        DataError: Lists the files that cannot be read.
    """
    drawn = as_transform(transform)
    opened = [
        _open(dataset, drawn, int(item), np.random.default_rng(seed)) for item, seed in zip(items, seeds, strict=True)
    ]
    images, _, bad = _collate(opened)
    if bad:
        _report(dataset, bad, skip_bad=False)
    return images


def _fetch(
    dataset: Dataset,
    transform: Callable[..., Tensor] | None,
    keys: Iterable[list[_Key]],
    seed: int,
    workers: int,
) -> Iterable[_Fetched]:
    if isinstance(transform, OfRows) and dataset.kind == "vectors":
        return _batches_of_rows(np.asarray(dataset.items), transform, keys, seed)
    if transform is not None:
        items = _Items(dataset, as_transform(transform), seed)

        def started(plan: Iterable[list[_Key]], processes: int) -> DataLoader[_Fetched]:
            return DataLoader(
                items,  # type: ignore[arg-type]
                batch_sampler=plan,  # type: ignore[arg-type]
                num_workers=processes,
                prefetch_factor=min(2, processes) or None,  # a single worker must not lose more than one batch
                collate_fn=_collate,
                worker_init_fn=_leave_interrupts_to_the_parent,
                generator=torch.Generator().manual_seed(seed),  # otherwise it would draw from the global one
            )

        return _outliving_workers(dataset, started, keys, workers) if workers else started(keys, 0)
    if dataset.kind != "vectors":
        raise InputError(f"{dataset.name} holds {dataset.kind}; they need a transform, got None.")
    rows = np.asarray(dataset.items)  # may be memory-mapped: only the rows of a batch are read
    chosen = (torch.tensor([key.item for key in batch], dtype=torch.int64) for batch in keys)
    return ((torch.from_numpy(_wide(rows[indices.numpy()])), indices, []) for indices in chosen)


def _outliving_workers(
    dataset: Dataset,
    started: Callable[[Iterable[list[_Key]], int], DataLoader[_Fetched]],
    keys: Iterable[list[_Key]],
    workers: int,
) -> Iterator[_Fetched]:
    """Fetch batches; if a worker process is killed, fetch its remaining batches one by one.

    Raises:
        DataError: If that fails too; lists the items of the batch.
    """
    left, ahead = iter(keys), deque[list[_Key]]()  # not requested yet; requested, but not yielded yet

    def requested(plan: Iterable[list[_Key]]) -> Iterator[list[_Key]]:
        for batch in plan:
            ahead.append(batch)
            yield batch

    losses = again = 0
    while True:
        fetched = _iterator(
            started(requested(itertools.islice(left, again)), 1) if again else started(requested(left), workers)
        )
        try:
            for batch in fetched:
                ahead.popleft()
                losses = 0
                yield batch
        except (RuntimeError, ConnectionError, EOFError) as error:
            if not _tells_of_a_loss(error):
                raise
            losses += 1
            if losses == LOSSES:
                due = [str(dataset.item(key.item)) if dataset.kind == "paths" else str(key.item) for key in ahead[0]]
                raise DataError(
                    f"{dataset.name}: the processes that read images were killed {losses} times over the same batch.",
                    due,
                    "The usual cause is too little memory: use fewer workers. Or one of these files crashes the "
                    "reader: find it with `vicinal data`.",
                ) from error
        else:
            if not again:
                return
        del fetched  # ends the remaining processes
        left, again = itertools.chain(tuple(ahead), left), len(ahead)
        ahead.clear()


def _tells_of_a_loss(error: Exception) -> bool:
    """Return whether an error means that a worker process, or its tensors, are gone, not that a transform failed."""
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker")
    return not str(error).startswith("Caught ")


def _iterator(loader: DataLoader[_Fetched]) -> Iterator[_Fetched]:
    """Start a loader's processes; the death of one is reported when its batch is due, where it can be handled.

    PyTorch would raise it immediately, from a signal handler and so at any point, even while a file is being written.
    """
    handler = getattr(signal, "SIGCHLD", None) and signal.getsignal(signal.SIGCHLD)
    fetched = iter(loader)
    if handler is not None:
        with suppress(ValueError):  # outside the main thread, where PyTorch sets no handler either
            signal.signal(signal.SIGCHLD, handler)
    return fetched


def _wide(rows: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return half-precision rows as float32, which networks expect."""
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows


def _batches_of_rows(
    vectors: npt.NDArray[np.floating], transform: OfRows, keys: Iterable[list[_Key]], seed: int
) -> Iterator[_Fetched]:
    for batch in keys:
        items = np.array([key.item for key in batch], dtype=np.int64)
        rng = np.random.default_rng([seed, batch[0].epoch, batch[0].batch] if batch else seed)
        yield transform.rows(vectors, items, rng), torch.from_numpy(items), []


def _leave_interrupts_to_the_parent(_: int) -> None:
    # Ctrl-C reaches every process of a terminal, but the training loop finishes its step and still needs batches.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@final
@dataclass(frozen=True)
class _Items:
    """Dataset in the form that DataLoader expects: maps a key to a tensor, or to an error."""

    dataset: Dataset
    transform: Transform
    seed: int

    def __getitem__(self, key: _Key) -> tuple[int, Tensor] | _Bad:
        return _open(self.dataset, self.transform, key.item, np.random.default_rng([self.seed, *key]))


def _open(dataset: Dataset, transform: Transform, item: int, rng: np.random.Generator) -> tuple[int, Tensor] | _Bad:
    if dataset.kind == "vectors":
        return item, transform(dataset.item(item), rng)
    try:
        return item, transform(dataset.open(item), rng)
    except Exception:
        # Only a file that cannot be decoded is bad; anything else is an error of the transform.
        try:
            dataset.image(item)
        except IMAGE_ERRORS as error:
            return _Bad(item, f"{type(error).__name__}: {error}")
        raise


def _keys(plan: Iterable[Indices], epoch: int, first: int) -> Iterator[list[_Key]]:
    for batch, indices in enumerate(plan, start=first):
        seen: Counter[int] = Counter()
        keys = []
        for item in map(int, indices):
            keys.append(_Key(item, epoch, batch, seen[item]))
            seen[item] += 1
        yield keys


def _collate(results: list[tuple[int, Tensor] | _Bad]) -> _Fetched:
    bad = [result for result in results if isinstance(result, _Bad)]
    good = [result for result in results if not isinstance(result, _Bad)]
    images = torch.stack([tensor for _, tensor in good]) if good else torch.empty(0)
    return images, torch.tensor([index for index, _ in good], dtype=torch.int64), bad


def _report(dataset: Dataset, bad: list[_Bad], skip_bad: bool) -> None:
    problems = [f"{dataset.item(b.item) if dataset.kind == 'paths' else b.item}: {b.reason}" for b in bad]
    if not skip_bad:
        raise DataError(
            f"{dataset.name}: {len(bad)} item{'s' if len(bad) > 1 else ''} of a batch cannot be read.",
            problems,
            "Fix them, or pass skip_bad=True (--skip-bad) to skip them.",
        )
    for problem in problems:
        warn_caller(f"{dataset.name}: skipped {problem}")
