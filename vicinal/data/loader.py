"""Batches of tensors from a Dataset, by worker processes if asked, the same whatever their number."""

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

LOSSES = 3  # times that processes which decode may be killed over one batch
Indices = Sequence[int] | npt.NDArray[np.int64]


@runtime_checkable
class Resumable(Protocol):
    """A sampler that knows where it is: what `vicinal.sampling` makes."""

    epoch: int
    batch: int

    def remaining(self) -> list[npt.NDArray[np.int64]]:
        """The batches that are left of this pass."""
        ...

    def advance(self) -> None:
        """Take note that one batch was used."""
        ...


@runtime_checkable
class OfRows(Protocol):
    """A transform of feature vectors that takes a batch of them at once, which is much faster than one by one."""

    def rows(self, vectors: npt.NDArray[np.floating], items: npt.NDArray[np.int64], rng: np.random.Generator) -> Tensor:
        """Transform some items of all vectors [n, d], which may be mapped from a file."""
        ...


class ItemBatch(NamedTuple):
    """What a loader yields."""

    images: Tensor
    labels: Tensor
    indices: Tensor


class _Key(NamedTuple):
    """Names one draw: which item, in which batch of which pass, and how often before in that batch."""

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
    """Yield the batches that are left of a sampler's pass, as (images, labels, indices).

    The generator that a transform gets is seeded by (seed, pass, batch, item), so that every tensor is
    the same for any number of workers and after a resume. A sampler advances as its batches are
    handed out, not as workers fetch them ahead: its state is always that of the training loop.

    Args:
        dataset: Where the items are.
        transform: From an image (or vector) to a tensor; any callable that `as_transform` takes.
            None leaves vectors as they are.
        batch_sampler: A sampler from `vicinal.sampling`, or any iterable of sequences of indices.
        workers: Processes that decode; 0 decodes in this one.
        seed: Of all random transforms.
        skip_bad: Leave out items that cannot be read, with a warning (their batch is smaller),
            instead of raising.

    Raises:
        DataError: Naming the files that cannot be read, unless `skip_bad`.
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
        dataset: Where the items are.
        transform: From an image (or vector) to a tensor; any callable that `as_transform` takes.
        items: Which.
        seeds: Of the generator that the transform gets, for each item.

    Raises:
        DataError: Naming the files that cannot be read.
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
                prefetch_factor=min(2, processes) or None,  # one alone is to lose no more than one batch
                collate_fn=_collate,
                worker_init_fn=_leave_interrupts_to_the_parent,
                generator=torch.Generator().manual_seed(seed),  # else it would draw from the global one
            )

        return _outliving_workers(dataset, started, keys, workers) if workers else started(keys, 0)
    if dataset.kind != "vectors":
        raise InputError(f"{dataset.name} holds {dataset.kind}; they need a transform, got None.")
    rows = np.asarray(dataset.items)  # perhaps mapped from a file: only what a batch needs is read
    chosen = (torch.tensor([key.item for key in batch], dtype=torch.int64) for batch in keys)
    return ((torch.from_numpy(_wide(rows[indices.numpy()])), indices, []) for indices in chosen)


def _outliving_workers(
    dataset: Dataset,
    started: Callable[[Iterable[list[_Key]], int], DataLoader[_Fetched]],
    keys: Iterable[list[_Key]],
    workers: int,
) -> Iterator[_Fetched]:
    """Fetch batches; where a process that decodes is killed, the batches that it leaves are fetched one by one.

    Raises:
        DataError: Where that does not help: naming what was due.
    """
    left, ahead = iter(keys), deque[list[_Key]]()  # not asked for yet; asked for, and not handed out

    def asked(plan: Iterable[list[_Key]]) -> Iterator[list[_Key]]:
        for batch in plan:
            ahead.append(batch)
            yield batch

    losses = again = 0
    while True:
        fetched = _iterator(
            started(asked(itertools.islice(left, again)), 1) if again else started(asked(left), workers)
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
                    "Most often there is too little memory: give fewer workers. Or one of these files ends its reader: "
                    "find it with `vicinal data`.",
                ) from error
        else:
            if not again:
                return
        del fetched  # which ends the processes that are left
        left, again = itertools.chain(tuple(ahead), left), len(ahead)
        ahead.clear()


def _tells_of_a_loss(error: Exception) -> bool:
    """Whether a process is gone, or the tensors that it had promised are; what a transform raises is told otherwise."""
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker")
    return not str(error).startswith("Caught ")


def _iterator(loader: DataLoader[_Fetched]) -> Iterator[_Fetched]:
    """Start a loader's processes; the death of one is told where its batch is due, as nowhere else it can be mended.

    PyTorch raises it at once, from a handler of signals and so in the middle of anything, while a file is written too.
    """
    handler = getattr(signal, "SIGCHLD", None) and signal.getsignal(signal.SIGCHLD)
    fetched = iter(loader)
    if handler is not None:
        with suppress(ValueError):  # not in the main thread, where PyTorch changes nothing either
            signal.signal(signal.SIGCHLD, handler)
    return fetched


def _wide(rows: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Return rows that are kept in half precision as networks take them."""
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows


def _batches_of_rows(
    vectors: npt.NDArray[np.floating], transform: OfRows, keys: Iterable[list[_Key]], seed: int
) -> Iterator[_Fetched]:
    for batch in keys:
        items = np.array([key.item for key in batch], dtype=np.int64)
        rng = np.random.default_rng([seed, batch[0].epoch, batch[0].batch] if batch else seed)
        yield transform.rows(vectors, items, rng), torch.from_numpy(items), []


def _leave_interrupts_to_the_parent(_: int) -> None:
    # Ctrl-C reaches every process of a terminal; the training loop finishes its step and still needs batches.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@final
@dataclass(frozen=True)
class _Items:
    """The dataset as a DataLoader sees it: a key in, a tensor (or what went wrong) out."""

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
        # Only a file that cannot be decoded at all is bad; anything else is the transform's own error.
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
            "Mend them, or pass skip_bad=True (--skip-bad) to leave them out.",
        )
    for problem in problems:
        warn_caller(f"{dataset.name}: left out {problem}")
