"""How many pairs of one class and of two have each similarity, over all pairs, block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from threading import Lock

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.evaluation.pair_similarities import ExactSimilarities, PairCounts, RoundedSimilarities, Sides
from vicinal.evaluation.scored_items import ScoredItems
from vicinal.neighbours.parallel import side_by_side

__all__ = ["GroupCounts", "count_pairs"]

FEW_PAIRS = 1 << 25  # whose similarities are computed exactly and kept
KEPT_POSITIVES = 1 << 25  # pairs of one class whose similarities are kept for scores by class
PILOT = 1 << 10  # items of each side whose pairs place the edges
EDGES = 160  # by quantiles of the pilot, and as many evenly
DECADES = 6  # of false accepts that the quantiles span


@dataclass(frozen=True)
class GroupCounts:
    """The same by groups of whole classes, for thresholds that are few.

    Args:
        positives: Pairs of one class of each group from each edge up to the next.
        negatives: Pairs of two classes between each two groups.
        similarities: Of the pairs of one class, if they are not too many.
        codes: Their classes.
    """

    positives: Int64[np.ndarray, "g e"]
    negatives: Int64[np.ndarray, "g g e"]
    similarities: Float64[np.ndarray, " p"] | None
    codes: Int64[np.ndarray, " p"] | None


def count_pairs(
    items: ScoredItems, *, exact: bool = True, progress: Callable[[float], None] = lambda fraction: None
) -> tuple[PairCounts, GroupCounts]:
    """Count all pairs of a query and a reference that are not ignored; of items among themselves each pair once.

    Args:
        items: What is compared.
        exact: Whether few pairs are compared exactly; many never are.
        progress: Called with the fraction done so far.
    """
    sides = Sides.of(items)
    few = len(items.queries) * len(items.references) // (2 if items.ignored.itself else 1) <= FEW_PAIRS
    kept_exactly = exact and few
    counter: ExactSimilarities | RoundedSimilarities = (ExactSimilarities if kept_exactly else RoundedSimilarities)(
        sides
    )
    edges = counter.place_edges(_edges(counter, sides))
    groups = len(sides.starts) - 1
    blocks = [(a, b) for a in range(groups) for b in range(a if sides.itself else 0, groups)]
    by_group = np.zeros((groups, edges), dtype=np.int64)
    by_pair = np.zeros((groups, groups, edges), dtype=np.int64)
    kept: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
    keep = sides.most_positives() <= KEPT_POSITIVES
    done, lock = count(1), Lock()

    def work(block: tuple[int, int]) -> None:
        a, b = block
        rows, columns = sides.rows(a), sides.columns(b)
        keys = counter.block(rows, columns)
        valid = sides.valid(rows, columns)
        if a != b:
            tally, coarse = counter.tally(keys if valid is None else keys[valid])
            with lock:
                counter.negatives.append(tally)
                by_pair[a, b] = coarse
        else:
            same = sides.codes[rows, None] == sides.reference_codes[columns]
            chosen = same if valid is None else same & valid
            tally, coarse = counter.tally(keys[~same if valid is None else ~same & valid])
            positive, in_group = counter.tally(keys[chosen])
            with lock:
                counter.negatives.append(tally)
                counter.positives.append(positive)
                by_pair[a, a], by_group[a] = coarse, in_group
                if keep:
                    classes = sides.codes[rows, None].expand_as(same)[chosen]
                    kept.append((counter.similarities(keys[chosen]), classes.numpy()))
        with lock:
            progress(next(done) / len(blocks))

    side_by_side(work, blocks)
    counts = counter.counts()
    for what, number in (("one class", counts.positives.sum()), ("two classes", counts.negatives.sum())):
        if not number:
            raise InputError(
                f"There is no pair of {what} to compare; verification needs pairs of both kinds. Check the labels."
            )
    values = np.concatenate([values for values, _ in kept]) if keep else None
    codes = np.concatenate([codes for _, codes in kept]) if keep else None
    return counts, GroupCounts(by_group, by_pair, values, codes)


def _edges(counter: ExactSimilarities | RoundedSimilarities, sides: Sides) -> NDArray[np.float64]:
    """Similarities that cut the counts by groups: quantiles of a sample's negatives, and evenly between its ends."""
    rows, columns = (slice(None, None, 1 + len(side) // PILOT) for side in (sides.queries, sides.references))
    keys = counter.block(rows, columns)
    apart = sides.codes[rows, None] != sides.reference_codes[columns]
    sample = counter.similarities(keys.view(-1))
    evenly = np.linspace(sample.min(), sample.max(), EDGES)
    negatives = counter.similarities(keys[apart])
    if not len(negatives):
        return evenly
    return np.unique(np.concatenate([np.quantile(negatives, 1 - np.logspace(0, -DECADES, EDGES)), evenly]))
