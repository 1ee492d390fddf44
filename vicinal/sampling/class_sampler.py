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
    labels: npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_],
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

    An item with several labels may stand for any of its classes, but is in a batch once. Where classes have so many
    items in common that a batch is not full when each has had its turn, they give further items.

    Args:
        labels: Label of every item; or sets of labels, a row of booleans for each item.
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
            if len(taken) == len(classes):  # all have given; only of sets, which share items
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
    """The items of every class that has any, in order, and quick to ask for one of them."""
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
            f"{classes_per_batch} x {samples_per_class}; there are {supply} such items. Ask for fewer classes or "
            "samples, or pass repeat_short=True."
        )
    if not repeat_short and items < classes_per_batch * samples_per_class:  # of sets, which share items
        raise InputError(
            f"{items} items with labels cannot fill a batch of {classes_per_batch} x {samples_per_class} without "
            "coming twice. Ask for fewer classes or samples, or pass repeat_short=True."
        )


def _deal(deck: list[int], members: dict[int, None], count: int, rng: np.random.Generator, held: set[int]) -> list[int]:
    """Take items off a class's deck, shuffling the others under it when it runs out; what a batch holds stays on it."""
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
    """Some items of some classes in every batch, every class once per round; see `class_batches`.

    Args:
        labels: Label of every item; or sets of labels, a row of booleans for each item.
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
    """Labels as integers [n], or sets of labels as booleans [n, c]."""
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
    """Batches whose classes all lie near one of them: `class_sampler` with the most neighbours.

    Example:
        >>> hard_class_sampler([0, 0, 1, 1, 2, 2, 3, 3], 2, 2).wants_embeddings
        True
    """
    return class_sampler(
        labels, classes_per_batch, samples_per_class, **{"neighbours": max(1, classes_per_batch - 1), **options}
    )
