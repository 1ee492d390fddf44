"""Samplers: batches of some items of some classes, at random or from classes that are near each other.

Pure functions draw all batches of a pass, and one class, `Sampler`, keeps the position. A pass is drawn from (seed,
number of the pass) alone, so a sampler resumes from two integers, and under DDP every rank draws the same batches and
takes its own slice of each.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.errors import InputError

__all__ = [
    "SAMPLERS",
    "Sampler",
    "batch_that_fits",
    "class_batches",
    "class_sampler",
    "composition",
    "compositions",
    "hard_class_sampler",
    "nearest_class_order",
    "random_batches",
    "random_sampler",
]


# State of every sampler: the position in the passes over the data.

Indices = npt.NDArray[np.int64]
Centroids = npt.NDArray[np.float32]


@final
class Sampler:
    """Position of a run in its passes over the data; iterating yields the rest of the current pass.

    Args:
        draw: Function from a generator and the class centroids (None before `update`) to all batches of a pass.
        seed: Seed of all passes.
        rank: Rank of this process.
        world_size: Number of processes; each takes its part of every batch.
        wants_embeddings: Whether `update` changes what is drawn.
    """

    def __init__(
        self,
        draw: Callable[[np.random.Generator, Centroids | None], list[Indices]],
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        wants_embeddings: bool = False,
    ) -> None:
        if not 0 <= rank < world_size:
            raise InputError(f"rank must be in 0..world_size-1; got rank {rank} of {world_size}.")
        self.epoch = 0
        self.batch = 0
        self.wants_embeddings = wants_embeddings
        self._draw, self._seed, self._rank, self._world_size = draw, seed, rank, world_size
        self._centroids: Centroids | None = None
        self._next_centroids: Centroids | None = None
        self._plan: list[Indices] | None = None
        if len(self._pass()[0]) % world_size:
            raise InputError(
                f"a batch of {len(self._pass()[0])} cannot be shared by {world_size} processes evenly; "
                "choose a batch size that is a multiple of the number of processes."
            )

    def __len__(self) -> int:
        """Return the number of batches in the current pass."""
        return len(self._pass())

    def __iter__(self) -> Iterator[Indices]:
        for batch in self.remaining():
            self.advance()
            yield batch

    def remaining(self) -> list[Indices]:
        """Return this rank's part of the remaining batches of the current pass."""
        batches = self._pass()[self.batch :]
        share = len(batches[0]) // self._world_size
        return [batch[self._rank * share : (self._rank + 1) * share] for batch in batches]

    def advance(self) -> None:
        """Record that one batch was used; after the last one the next pass begins."""
        self.batch += 1
        if self.batch == len(self):
            self.epoch, self.batch = self.epoch + 1, 0
            self._centroids, self._plan = self._next_centroids, None

    def update(self, embeddings: Float[Tensor, "n d"], labels: Int[Tensor, n] | Bool[Tensor, "n c"]) -> None:
        """Update the nearest classes, from the mean embedding of every class.

        This takes effect with the next pass, or with the current one if none of its batches was used. All ranks must
        pass the same embeddings.
        """
        if not self.wants_embeddings:
            raise InputError("this sampler does not use embeddings; use hard_class_sampler for one that does.")
        rows, labels = embeddings.detach().float().cpu(), labels.cpu()
        if labels.ndim == 2:  # sets: an empty column is not a class
            sums, count = labels.float().T @ rows, labels.sum(dim=0).clamp(min=1)
        else:
            count = torch.bincount(labels)
            if not count.all():
                missing = torch.nonzero(count == 0).flatten().tolist()
                raise InputError(f"embeddings of every class are needed; there are none for classes {missing[:10]}.")
            sums = torch.zeros(len(count), rows.shape[1]).index_add_(0, labels, rows)
        self._next_centroids = (sums / count.float()[:, None]).numpy()
        if self.batch == 0:
            self._centroids, self._plan = self._next_centroids, None

    def state_dict(self) -> dict[str, int | str | Tensor]:
        """Return the state for resuming: numbers, a string and possibly tensors."""
        state: dict[str, int | str | Tensor] = {"epoch": self.epoch, "batch": self.batch, "plan": self._fingerprint()}
        for name in ("centroids", "next_centroids"):
            if (value := getattr(self, f"_{name}")) is not None:
                state[name] = torch.from_numpy(value.copy())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; raises if the state belongs to a sampler that draws other batches."""
        self.epoch, self.batch, self._plan = int(state["epoch"]), int(state["batch"]), None
        self._centroids, self._next_centroids = (
            None if name not in state else state[name].cpu().numpy() for name in ("centroids", "next_centroids")
        )
        if self._fingerprint() != state["plan"]:
            raise InputError(
                "the saved state belongs to a sampler that draws other batches; resume with the same data, "
                "seed and batch sizes."
            )

    def _pass(self) -> list[Indices]:
        if self._plan is None:
            self._plan = self._draw(np.random.default_rng([self._seed, self.epoch]), self._centroids)
        return self._plan

    def _fingerprint(self) -> str:
        return hashlib.sha256(np.concatenate(self._pass()).astype("<i8").tobytes()).hexdigest()


# Composition of a batch: the number of classes and of items per class for a given batch size.

MOST_ITEMS = 8  # largest number of items per class that is tried


def composition(images: int, items_per_class: int, classes: int) -> tuple[int, int] | None:
    """Return classes and items per class in a batch of `images`: `items_per_class`, or the next number that fits.

    Returns:
        Classes and items per class; None if no number of items from `items_per_class` on divides the images and needs
        at most the available classes.

    Example:
        >>> composition(64, 1, classes=100), composition(64, 1, classes=40), composition(64, 2, classes=8)
        ((64, 1), (32, 2), (8, 8))
    """
    for items in range(items_per_class, images + 1):
        if images % items == 0 and images // items <= classes:
            return images // items, items
    return None


def compositions(images: int, fewest: int, classes: int) -> list[tuple[int, int]]:
    """Return all compositions of a batch, as classes and items per class, those with the fewest items first.

    Args:
        images: Number of images in a batch.
        fewest: Smallest number of items per class; 2 for a loss on pairs of the batch.
        classes: Number of available classes.

    Example:
        >>> compositions(64, 2, classes=100)
        [(32, 2), (16, 4), (8, 8)]
    """
    return [
        (images // items, items)
        for items in range(fewest, MOST_ITEMS + 1)
        if images % items == 0 and 2 <= images // items <= classes
    ]


# Order of classes with near ones next to each other.


def nearest_class_order(
    centroids: Float[np.ndarray, "c d"], group: int, rng: np.random.Generator
) -> Int[np.ndarray, c]:
    """Return all classes in groups: one at random followed by the nearest of the remaining ones, and so on.

    Example:
        >>> line = np.array([[0.0], [10.0], [1.0], [11.0]])
        >>> order = nearest_class_order(line, 2, np.random.default_rng(0))
        >>> sorted(map(set, order.reshape(2, 2).tolist()), key=min)
        [{0, 2}, {1, 3}]
    """
    squares = (centroids**2).sum(axis=1)
    left = np.ones(len(centroids), dtype=bool)
    order: list[int] = []
    for first in rng.permutation(len(centroids)):
        if not left[first]:
            continue
        left[first] = False
        distances = np.where(left, squares - 2 * centroids @ centroids[first], np.inf)
        near = np.argsort(distances, kind="stable")[: min(group - 1, int(left.sum()))]
        left[near] = False
        order += [int(first), *near.tolist()]
    return np.array(order, dtype=np.int64)


def class_batches(
    labels: npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_],
    classes_per_batch: int,
    samples_per_class: int,
    rng: np.random.Generator,
    *,
    rounds: int = 1,
    repeat_short: bool = False,
    order: Callable[[], Indices] | None = None,
) -> list[Indices]:
    """Draw batches of some items of some classes, until every class has been used `rounds` times.

    All batches have `classes_per_batch * samples_per_class` items, and none contains an item twice. A class with fewer
    items contributes all of them, and further classes fill the batch, the last of them possibly with fewer items than
    it could; with `repeat_short` the class repeats its items instead. All items of a class are used before any is used
    again. If the classes do not fill the last batch, some of them are used once more in it.

    An item with several labels may represent any of its classes, but is in a batch only once. If classes share so many
    items that a batch is not full after each has been used, they contribute further items.

    Args:
        labels: Label of every item; or sets of labels, a row of booleans per item.
        classes_per_batch: Number of classes in a batch.
        samples_per_class: Number of items per class.
        rng: Source of randomness.
        rounds: Number of times that every class is used.
        repeat_short: Whether to draw with replacement from classes that are too small.
        order: Function that returns the order of the classes in each round; random if None.

    Example:
        >>> labels = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
        >>> [labels[batch].tolist() for batch in class_batches(labels, 3, 2, np.random.default_rng(0))]
        [[2, 2, 0, 0, 1, 1]]
    """
    members = _members(labels)
    sizes = np.array([len(items) for items in members.values()], dtype=np.int64)
    _check_supply(sizes, classes_per_batch, samples_per_class, repeat_short, len(set().union(*members.values())))
    classes = np.array(list(members))
    decks: dict[int, list[int]] = {label: [] for label in members}
    size = classes_per_batch * samples_per_class
    queue: deque[int] = deque()
    begun = 0
    batches = []
    while begun < rounds or (begun == rounds and queue):
        batch: list[int] = []
        held: set[int] = set()
        taken: set[int] = set()
        later: list[int] = []
        while len(batch) < size:
            if len(taken) == len(classes):  # all have been used; only with sets, which share items
                taken.clear()
            if not queue:
                queue.extend((rng.permutation(classes) if order is None else order()).tolist())
                begun += 1
            label = queue.popleft()
            if label in taken:
                later.append(label)
                continue
            taken.add(label)
            left = len(members[label]) - sum(item in members[label] for item in held)
            count = min(samples_per_class, size - len(batch), left)
            drawn = _deal(decks[label], members[label], count, rng, held)
            if repeat_short and count < samples_per_class:
                drawn += rng.choice(list(members[label]), samples_per_class - count).tolist()
            batch += drawn
            held.update(drawn)
        queue.extendleft(reversed(later))
        batches.append(np.array(batch, dtype=np.int64))
    return batches


def _members(labels: npt.NDArray[Any]) -> dict[int, dict[int, None]]:
    """Return the items of every non-empty class, in order, as dictionaries for fast membership tests."""
    if labels.ndim == 2:
        by_class = [(label, np.flatnonzero(column)) for label, column in enumerate(labels.T) if column.any()]
    else:
        classes, sizes = np.unique(labels, return_counts=True)
        parts = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
        by_class = list(zip(classes.tolist(), parts, strict=True))
    return {label: dict.fromkeys(items.tolist()) for label, items in by_class}


def _check_supply(
    sizes: Indices, classes_per_batch: int, samples_per_class: int, repeat_short: bool, items: int
) -> None:
    if min(classes_per_batch, samples_per_class) < 1:
        raise InputError(
            "classes_per_batch and samples_per_class must be at least 1; got "
            f"{classes_per_batch} and {samples_per_class}."
        )
    supply = len(sizes) * samples_per_class if repeat_short else int(np.minimum(sizes, samples_per_class).sum())
    if supply < classes_per_batch * samples_per_class:
        raise InputError(
            f"{len(sizes)} classes with at most {samples_per_class} items of each cannot fill a batch of "
            f"{classes_per_batch} x {samples_per_class}; there are {supply} such items. Use fewer classes or samples, "
            "or pass repeat_short=True."
        )
    if not repeat_short and items < classes_per_batch * samples_per_class:  # with sets, which share items
        raise InputError(
            f"{items} items with labels cannot fill a batch of {classes_per_batch} x {samples_per_class} without "
            "repetition. Use fewer classes or samples, or pass repeat_short=True."
        )


def _deal(deck: list[int], members: dict[int, None], count: int, rng: np.random.Generator, held: set[int]) -> list[int]:
    """Take items from the deck of a class, reshuffling when it runs out; items already in the batch stay on it."""
    dealt: list[int] = []
    passed: list[int] = []
    while len(dealt) < count:
        if not deck:
            deck.extend(item for item in rng.permutation(list(members)).tolist() if item not in {*dealt, *passed})
        item = deck.pop()
        (passed if item in held else dealt).append(item)
    deck.extend(reversed(passed))
    return dealt


def class_sampler(
    labels: npt.ArrayLike,
    classes_per_batch: int,
    samples_per_class: int,
    *,
    neighbours: int = 0,
    rounds: int = 1,
    repeat_short: bool = False,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> Sampler:
    """Return a sampler of some items of some classes in every batch, every class once per round; see `class_batches`.

    Args:
        labels: Label of every item; or sets of labels, a row of booleans per item.
        classes_per_batch: Number of classes in a batch.
        samples_per_class: Number of items per class.
        neighbours: Number of nearest classes that follow each random one, once `Sampler.update` has been called with
            embeddings; 0 for random classes. Every class is still used once per round.
        rounds: Number of times that every class is used in one pass. A pass over many items of few classes is short
            (100 classes, 8 per batch: 13 batches); more rounds make it as long as an epoch.
        repeat_short: Whether classes with too few items repeat them.
        seed: Seed of all passes.
        rank: Rank of this process.
        world_size: Number of processes.

    Example:
        >>> sampler = class_sampler([0, 0, 1, 1, 2, 2, 3, 3], 2, 2)
        >>> [len(batch) for batch in sampler], sampler.epoch
        ([4, 4], 1)
    """
    targets = _targets(labels)
    classes = np.flatnonzero(targets.any(axis=0)) if targets.ndim == 2 else np.unique(targets)
    if rounds < 1 or neighbours < 0:
        raise InputError(f"rounds must be at least 1 and neighbours at least 0; got {rounds} and {neighbours}.")

    def draw(rng: np.random.Generator, centroids: Centroids | None) -> list[Indices]:
        def order() -> Indices:
            if centroids is None:
                return rng.permutation(classes)
            return classes[nearest_class_order(centroids[classes], neighbours + 1, rng)]

        return class_batches(
            targets, classes_per_batch, samples_per_class, rng, rounds=rounds, repeat_short=repeat_short, order=order
        )

    return Sampler(draw, seed=seed, rank=rank, world_size=world_size, wants_embeddings=neighbours > 0)


def _targets(labels: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return labels as integers [n], or sets of labels as booleans [n, c]."""
    array = np.asarray(labels)
    if array.ndim == 2 and array.dtype == np.bool_:
        return array
    if array.ndim != 1:
        raise InputError(
            "labels must be integers, one per item, or sets of labels as booleans [items, labels]; got "
            f"{array.dtype} of shape {list(array.shape)}."
        )
    return array.astype(np.int64)


def hard_class_sampler(
    labels: npt.ArrayLike, classes_per_batch: int, samples_per_class: int, **options: Any
) -> Sampler:
    """Return a sampler of batches whose classes are all near one of them: `class_sampler` with the most neighbours.

    Example:
        >>> hard_class_sampler([0, 0, 1, 1, 2, 2, 3, 3], 2, 2).wants_embeddings
        True
    """
    return class_sampler(
        labels, classes_per_batch, samples_per_class, **{"neighbours": max(1, classes_per_batch - 1), **options}
    )


# Batches of items in random order.


def random_batches(count: int, batch_size: int, rng: np.random.Generator) -> list[Indices]:
    """Return all items in random order, cut into batches; items that do not fill the last batch are left out.

    Example:
        >>> [len(batch) for batch in random_batches(10, 4, np.random.default_rng(0))]
        [4, 4]
    """
    order = rng.permutation(count)
    return [order[start : start + batch_size] for start in range(0, count - batch_size + 1, batch_size)]


def random_sampler(count: int, batch_size: int, *, seed: int = 0, rank: int = 0, world_size: int = 1) -> Sampler:
    """Return a sampler that uses every item at most once per pass, in random order.

    Example:
        >>> len(random_sampler(100, 30))
        3
    """
    if not 1 <= batch_size <= count:
        raise InputError(f"batch_size must be from 1 to the number of items, {count}; got {batch_size}.")
    return Sampler(lambda rng, _: random_batches(count, batch_size, rng), seed=seed, rank=rank, world_size=world_size)


# The largest batch that a dataset can fill.


def batch_that_fits(labels: npt.ArrayLike, classes: int, items: int) -> tuple[int, int]:
    """Return classes and items per class in a batch: as requested if the data can fill it, else as many as possible.

    Of batches of the same size the one with more classes is used. A batch with pairs keeps them: it does not shrink
    below two items per class or two classes. If even that cannot be filled, the requested numbers are returned, and
    the sampler raises an error that explains the problem.

    Args:
        labels: Labels of the training items; or their sets of labels, a row of booleans per item.
        classes: Requested number of classes in a batch.
        items: Requested number of items per class.

    Example:
        >>> five_classes_of_three = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
        >>> batch_that_fits(five_classes_of_three, 8, 4), batch_that_fits(five_classes_of_three, 2, 2)
        ((5, 3), (2, 2))
    """
    targets = np.asarray(labels)
    if targets.ndim == 2:
        sizes, supply = np.count_nonzero(targets[:, targets.any(axis=0)], axis=0), int(targets.any(axis=1).sum())
    else:
        sizes, supply = np.unique(targets, return_counts=True)[1], len(targets)
    best = (0, 0)
    for each in range(items, min(2, items) - 1, -1):
        most = min(classes, len(sizes), min(int(np.minimum(sizes, each).sum()), supply) // each)
        if most >= min(2, classes) and most * each >= best[0] * best[1]:
            best = (most, each)
    return best if best != (0, 0) else (classes, items)


# Samplers by name.

SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "random": random_sampler,
    "classes": class_sampler,
    "hard-classes": hard_class_sampler,
}
