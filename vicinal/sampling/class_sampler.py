"""Batches of some items of some classes, at random or from classes that lie near each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.errors import InputError
from vicinal.sampling.nearest_classes import nearest_class_order
from vicinal.sampling.sampler import Centroids, Indices, Sampler


def class_batches(
    labels: npt.NDArray[np.integer[Any]],
    classes_per_batch: int,
    samples_per_class: int,
    rng: np.random.Generator,
    *,
    rounds: int = 1,
    repeat_short: bool = False,
    order: Callable[[], Indices] | None = None,
) -> list[Indices]:
    """Batches of some items of some classes, until every class has had its turn `rounds` times.

    All batches have `classes_per_batch * samples_per_class` items and none holds an item twice. A class
    with fewer items gives what it has and further classes fill the batch, the last of them perhaps with
    fewer items than it could give; with `repeat_short` it repeats its items in place of that. A class
    gives all its items before any comes again. If the classes do not fill the last batch, some of them
    have one more turn in it.

    Args:
        labels: Label of every item.
        classes_per_batch: Classes in a batch.
        samples_per_class: Items of each.
        rng: For everything that is random.
        rounds: Turns of every class.
        repeat_short: Whether to draw with replacement from classes that are too small.
        order: Gives the order of the classes in each round; random if None.

    Example:
        >>> labels = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
        >>> [labels[batch].tolist() for batch in class_batches(labels, 3, 2, np.random.default_rng(0))]
        [[2, 2, 0, 0, 1, 1]]
    """
    classes, sizes = np.unique(labels, return_counts=True)
    by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    members = dict(zip(classes.tolist(), by_class, strict=True))
    _check_supply(sizes, classes_per_batch, samples_per_class, repeat_short)
    decks: dict[int, list[int]] = {label: [] for label in members}
    size = classes_per_batch * samples_per_class
    queue: deque[int] = deque()
    begun = 0
    batches = []
    while begun < rounds or (begun == rounds and queue):
        batch: list[int] = []
        taken: set[int] = set()
        later: list[int] = []
        while len(batch) < size:
            if not queue:
                queue.extend((rng.permutation(classes) if order is None else order()).tolist())
                begun += 1
            label = queue.popleft()
            if label in taken:
                later.append(label)
                continue
            taken.add(label)
            count = min(samples_per_class, size - len(batch), len(members[label]))
            batch += _deal(decks[label], members[label], count, rng)
            if repeat_short and count < samples_per_class:
                batch += rng.choice(members[label], samples_per_class - count).tolist()
        queue.extendleft(reversed(later))
        batches.append(np.array(batch, dtype=np.int64))
    return batches


def _check_supply(sizes: Indices, classes_per_batch: int, samples_per_class: int, repeat_short: bool) -> None:
    if min(classes_per_batch, samples_per_class) < 1:
        raise InputError(
            "classes_per_batch and samples_per_class must be at least 1; got "
            f"{classes_per_batch} and {samples_per_class}."
        )
    supply = len(sizes) * samples_per_class if repeat_short else int(np.minimum(sizes, samples_per_class).sum())
    if supply < classes_per_batch * samples_per_class:
        raise InputError(
            f"{len(sizes)} classes with at most {samples_per_class} items of each cannot fill a batch of "
            f"{classes_per_batch} x {samples_per_class}; there are {supply} such items. Ask for fewer classes or "
            "samples, or pass repeat_short=True."
        )


def _deal(deck: list[int], members: Indices, count: int, rng: np.random.Generator) -> list[int]:
    """Take items off a class's deck, shuffling the others under it when it runs out."""
    if len(deck) < count:
        deck[:0] = [item for item in rng.permutation(members).tolist() if item not in deck]
    return [deck.pop() for _ in range(count)]


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
    """Some items of some classes in every batch, every class once per round; see `class_batches`.

    Args:
        labels: Label of every item.
        classes_per_batch: Classes in a batch.
        samples_per_class: Items of each.
        neighbours: How many of the nearest classes follow each random one, once `Sampler.update`
            was given embeddings; 0 for random classes. Every class still has one turn per round.
        rounds: Turns of every class in one pass. A pass over many items of few classes is short
            (100 classes, 8 per batch: 13 batches); more rounds make it as long as an epoch.
        repeat_short: Whether classes with too few items repeat them.
        seed: Of all passes.
        rank: Which process this is.
        world_size: How many there are.

    Example:
        >>> sampler = class_sampler([0, 0, 1, 1, 2, 2, 3, 3], 2, 2)
        >>> [len(batch) for batch in sampler], sampler.epoch
        ([4, 4], 1)
    """
    targets = np.asarray(labels, dtype=np.int64)
    classes = np.unique(targets)
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


def hard_class_sampler(
    labels: npt.ArrayLike, classes_per_batch: int, samples_per_class: int, **options: Any
) -> Sampler:
    """Batches whose classes all lie near one of them: `class_sampler` with the most neighbours.

    Example:
        >>> hard_class_sampler([0, 0, 1, 1, 2, 2, 3, 3], 2, 2).wants_embeddings
        True
    """
    return class_sampler(
        labels, classes_per_batch, samples_per_class, **{"neighbours": max(1, classes_per_batch - 1), **options}
    )
