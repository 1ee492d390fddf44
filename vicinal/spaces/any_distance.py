"""Exact retrieval with any distance, in blocks of rows, without the whole matrix in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.evaluation import Scores, retrieval
from vicinal.neighbours.inputs import ArrayLike, Labels, as_codes, as_embeddings
from vicinal.spaces.axioms import Distance
from vicinal.stats.intervals import class_interval, class_sums

__all__ = ["distances_in_blocks", "evaluate_by"]

NUMBERS = 1 << 22  # numbers in a block of coordinate differences: 16 megabytes


def evaluate_by(
    distance: Distance,
    embeddings: ArrayLike,
    labels: Labels,
    *,
    k: tuple[int, ...] = (1, 2, 4, 8),
    confidence: float | None = 0.95,
) -> Scores:
    """Score embeddings by how well the nearest neighbours in a custom distance share their class.

    Like `vicinal.evaluation.evaluate`, for distances that are neither cosine nor Euclidean. Every pair is compared,
    which takes O(n x n x dim) time and O(n) memory. Ties go to the lower index, and no item finds itself.

    Args:
        distance: Function from n and m rows to an n x m matrix.
        embeddings: One row per item.
        labels: One label per row.
        k: Values of k in R@k.
        confidence: Confidence level of the intervals; None for no intervals.

    Example:
        >>> from vicinal.spaces import LabelMetric
        >>> rows = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7]]
        >>> evaluate_by(LabelMetric(), rows, [0, 0, 1, 1])["MAP@R"]
        1.0
    """
    items = as_embeddings(embeddings)
    classes, (codes,) = as_codes(labels, sizes=[len(items)])
    relevant = torch.bincount(codes)[codes] - 1
    if not bool(relevant.any()):
        raise InputError(f"None of the {len(items)} items shares its class with another item.")
    count = min(len(items) - 1, max([int(relevant.max()), *k]))
    names = ["P@1", *(f"R@{cutoff}" for cutoff in k), "P@R", "MAP@R"]
    scores = torch.empty(len(names), len(items), dtype=torch.float64)
    for rows, block in distances_in_blocks(distance, items):
        order = block.argsort(dim=1, stable=True)
        order = order[order != rows[:, None]].view(len(rows), -1)[:, :count]  # no item finds itself
        hits, here = codes[order] == codes[rows, None], relevant[rows]
        scores[:, rows] = torch.stack(
            [
                retrieval.precision_at_1(hits, here),
                *(retrieval.recall_at(hits, here, min(cutoff, count)) for cutoff in k),
                retrieval.r_precision(hits, here),
                retrieval.average_precision_at_r(hits, here),
            ]
        )
    per_query = dict(zip(names, scores.numpy(), strict=True))
    tables = [class_sums(values, codes.numpy(), len(classes)) for values in per_query.values()]
    counts: NDArray[np.int64] = tables[0][1]
    sums = np.column_stack([table[0] for table in tables])
    ends = [] if confidence is None else class_interval(sums, counts, confidence=confidence)
    return Scores(
        overall=dict(zip(names, (sums.sum(axis=0) / counts.sum()).tolist(), strict=True)),
        intervals=dict(zip(names, ends, strict=False)),
        classes=tuple(classes),  # type: ignore[arg-type]
        query_classes=codes.numpy(),
        per_query=per_query,
        references=len(items),
        settings={
            "metric": getattr(distance, "__name__", str(distance)),
            "gallery": False,
            "sequences": False,
            "confidence": confidence,
        },
    )


def distances_in_blocks(
    distance: Distance, items: Float[Tensor, "n d"]
) -> Iterator[tuple[Int64[Tensor, " r"], Float[Tensor, "r n"]]]:
    """Yield the matrix of all distances a few rows at a time: the row indices, and their distances to all items.

    Args:
        distance: Function from n and m rows to an n x m matrix.
        items: Items to compare with each other.
    """
    across = min(len(items), 1024)
    down = max(1, min(256, NUMBERS // (across * items.shape[1])))
    for first in range(0, len(items), down):
        rows = torch.arange(first, min(first + down, len(items)))
        with torch.no_grad():
            parts = [distance(items[rows], items[start : start + across]) for start in range(0, len(items), across)]
        yield rows, torch.cat(parts, dim=1)
