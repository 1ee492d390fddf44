"""The pool of embeddings of each class among which new proxies are looked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.data import Dataset, batches
from vicinal.errors import DataError
from vicinal.training.frozen import Trainee
from vicinal.training.unseen_batch_norm import show_batches

__all__ = ["draw_pool", "embed_pool", "queued_pool"]

BATCH_SIZE = 64
CALIBRATION_BATCHES = 16  # of which batch norm of a network from scratch takes its first statistics


def draw_pool(labels: npt.NDArray[np.integer[Any]], size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw `size` items of every class, each of them once before any comes again.

    Returns:
        Their positions, one row per class.

    Example:
        >>> draw_pool(np.array([0, 1, 1, 0]), 2, np.random.default_rng(0)).tolist()
        [[0, 3], [1, 2]]
    """
    rounds = (
        np.concatenate([rng.permutation(mine) for _ in range(-(-size // len(mine)))]) for mine in _of_each(labels)
    )
    return np.stack([order[:size] for order in rounds])


def queued_pool(
    labels: npt.NDArray[np.integer[Any]], size: int, turn: int, seed: tuple[int, ...] = (0,)
) -> npt.NDArray[np.int64]:
    """Take the next `size` items of every class from a queue of its own, which is shuffled anew whenever it ends.

    Args:
        labels: The class of each item, from 0.
        size: How many items of each class.
        turn: How often as many were taken before.
        seed: Of the shuffling.

    Returns:
        Their positions, one row per class.

    Example:
        >>> [queued_pool(np.zeros(4, int), 2, turn).tolist() for turn in (0, 1, 2)]
        [[[1, 0]], [[3, 2]], [[0, 3]]]
    """
    taken = (turn + 1) * size
    own = np.random.default_rng(seed).spawn(int(labels.max()) + 1)
    return np.stack(
        [
            np.concatenate([rng.permutation(mine) for _ in range(-(-taken // len(mine)))])[taken - size : taken]
            for rng, mine in zip(own, _of_each(labels), strict=True)
        ]
    )


def _of_each(labels: npt.NDArray[np.integer[Any]]) -> list[npt.NDArray[np.int64]]:
    """Return the positions of the items of each class."""
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])


@torch.no_grad()
def embed_pool(
    model: Trainee,
    data: Dataset,
    transform: Callable[..., Tensor] | None,
    size: int,
    *,
    seed: tuple[int, ...] = (0,),
    turn: int | None = None,
    workers: int = 0,
    skip_bad: bool = False,
) -> Float[Tensor, "classes size d"]:
    """Embed items of every class, in evaluation mode and before normalisation.

    Batch norm that has seen no batch yet is shown these items first: without it the items of a network that starts
    from scratch all point in one direction, and proxies among them would too.

    Args:
        model: The embedder, frozen or not.
        data: The training items.
        transform: What makes a tensor of one.
        size: How many items of each class.
        seed: Of the draw and of the transform.
        turn: The items that are next in a running queue after so many turns; None draws them anew.
        workers: Processes that decode.
        skip_bad: Let another item of its class stand for one that cannot be read.
    """
    rng = np.random.default_rng(seed if turn is None else (*seed, turn))
    rows = draw_pool(data.labels, size, rng) if turn is None else queued_pool(data.labels, size, turn, seed)
    chosen = rows.ravel()
    plan = [chosen[first : first + BATCH_SIZE] for first in range(0, len(chosen), BATCH_SIZE)]
    options: dict[str, Any] = {"workers": workers, "seed": int(rng.integers(2**31)), "skip_bad": skip_bad}
    mixed = rng.permutation(chosen)
    shown = [mixed[first : first + BATCH_SIZE] for first in range(0, len(mixed), BATCH_SIZE)][:CALIBRATION_BATCHES]
    show_batches(model, (batch.images.to(model.device) for batch in batches(data, transform, shown, **options)))
    model.eval()
    vectors, labels = [], []
    for batch in batches(data, transform, plan, **options):
        vectors.append(model.unnormalised(batch.images.to(model.device)))
        labels.append(batch.labels)
    places = torch.arange(len(chosen)) if not skip_bad else _places(torch.cat(labels), data, size)
    return torch.cat(vectors).float()[places].view(-1, size, model.head.dim)


def _places(labels: Int[Tensor, " n"], data: Dataset, size: int) -> Int[Tensor, " places"]:
    """Return which row stands in each place, class by class; the rows of a class repeat where some are missing."""
    counts = torch.bincount(labels, minlength=len(data.classes))
    if not counts.all():
        names = [data.class_names[label] for label in (counts == 0).nonzero().flatten().tolist()]
        raise DataError(f"{data.name}: no item of these classes that were drawn for proxies can be read.", names)
    starts = counts.cumsum(0) - counts
    return (starts[:, None] + torch.arange(size) % counts[:, None]).flatten()
