"""Count the similarities of all pairs of items without storing them.

Items are sorted by class and divided into groups of whole classes. Pairs of one class therefore occur only in the
diagonal blocks (a group with itself), and when classes are resampled, a block of two groups is weighted as a whole.

Few pairs are compared exactly (see `vicinal.neighbours.similarity`). For many pairs, similarities are float32 products
(rounding error about 1e-7) in steps of 2^-18 (4e-6; of half the squared distance if distances are compared, with the
longest vector scaled to 1). No pair is left out, and all counts of the rounded similarities are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from threading import Lock

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.evaluation.items import ScoredItems
from vicinal.neighbours.inputs import Exclusion
from vicinal.neighbours.similarity import Vectors, exact_rows, readable
from vicinal.neighbours.threads import side_by_side

__all__ = ["ExactSimilarities", "GroupCounts", "PairCounts", "RoundedSimilarities", "Sides", "count_pairs"]


GROUPS = 48
STEPS = 1 << 18  # per similarity of 1
SAME = 2.0**36  # steps per cosine of 1; closer cosines differ by rounding only, such as those of duplicates
SPARE = 8  # extra steps at both ends, for rounding
COPIED = 1 << 11  # rows converted at a time
AT_ONCE = 1 << 18  # products computed and rounded at a time: 1 MB, which stays in the CPU cache


@dataclass(frozen=True)
class PairCounts:
    """Numbers of pairs by similarity.

    Args:
        values: Distinct similarities, ascending; the cosine, or minus the Euclidean distance. With `step`, the lower
            ends of the steps.
        positives: Number of pairs of one class with each similarity.
        negatives: Number of pairs of two classes with each similarity.
        step: Step that similarities were rounded down to a multiple of; zero if they are exact.
    """

    values: Float64[np.ndarray, " v"]
    positives: Int64[np.ndarray, " v"]
    negatives: Int64[np.ndarray, " v"]
    step: float = 0.0

    @cached_property
    def accepted(self) -> tuple[Float64[np.ndarray, " t"], Int64[np.ndarray, " t"], Int64[np.ndarray, " t"]]:
        """Thresholds from infinity down, and the numbers of pairs of two classes and of one class that each accepts."""
        false, true = (np.append(0, np.cumsum(pairs[::-1])) for pairs in (self.negatives, self.positives))
        return np.append(np.inf, self.values[::-1]), false, true


@dataclass(frozen=True)
class Sides:
    """Queries and references sorted by class, and the first class of each group."""

    queries: Vectors
    references: Vectors
    codes: Int64[Tensor, " n"]
    reference_codes: Int64[Tensor, " m"]
    ignored: Exclusion
    starts: list[int]  # first class of each group, and the number of classes

    @classmethod
    def of(cls, items: ScoredItems) -> Sides:
        """Sort items by class and group the classes."""
        order = items.codes.argsort(stable=True)
        other = order if items.ignored.itself else items.reference_codes.argsort(stable=True)
        sequences, reference_sequences = items.ignored.queries, items.ignored.references
        ignored = replace(
            items.ignored,
            queries=None if sequences is None else sequences[order],
            references=None if reference_sequences is None else reference_sequences[other],
        )
        size = torch.bincount(items.codes, minlength=len(items.classes))
        if not items.ignored.itself:
            size = size + torch.bincount(items.reference_codes, minlength=len(items.classes))
        share = (size.cumsum(0) - size) * min(GROUPS, len(items.classes)) // int(size.sum())
        starts = [0, *(1 + (share[1:] != share[:-1]).nonzero().squeeze(1)).tolist(), len(items.classes)]
        queries = items.queries.take(order)
        references = queries if items.ignored.itself else items.references.take(other)
        return cls(queries, references, items.codes[order], items.reference_codes[other], ignored, starts)

    @property
    def itself(self) -> bool:
        """Whether the queries are the references."""
        return self.ignored.itself

    def rows(self, group: int) -> slice:
        """Return the queries of a group."""
        return _between(self.codes, self.starts[group], self.starts[group + 1])

    def columns(self, group: int) -> slice:
        """Return the references of a group."""
        return _between(self.reference_codes, self.starts[group], self.starts[group + 1])

    def valid(self, rows: slice, columns: slice) -> Bool[Tensor, "r c"] | None:
        """Return which pairs of a block count; None for all."""
        valid = None
        if self.itself and rows == columns:
            valid = torch.ones(rows.stop - rows.start, columns.stop - columns.start, dtype=torch.bool).triu_(1)
        if self.ignored.queries is not None and self.ignored.references is not None:
            apart = self.ignored.queries[rows, None] != self.ignored.references[columns]
            valid = apart if valid is None else valid & apart
        return valid

    def most_positives(self) -> int:
        """Return the number of pairs of one class, including those that do not count."""
        classes = int(max(self.codes.max(), self.reference_codes.max())) + 1
        queries, references = (torch.bincount(codes, minlength=classes) for codes in (self.codes, self.reference_codes))
        return int((queries * (queries - 1) // 2).sum() if self.itself else (queries * references).sum())


def _between(codes: Int64[Tensor, " n"], first: int, last: int) -> slice:
    ends = torch.searchsorted(codes, torch.tensor([first, last]))
    return slice(int(ends[0]), int(ends[1]))


class ExactSimilarities:
    """Similarities that are computed exactly and stored."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._edges = np.empty(0)
        self.positives: list[Tensor] = []
        self.negatives: list[Tensor] = []

    def block(self, rows: slice, columns: slice) -> Tensor:
        """Return the keys (stored form) of the similarities of some queries and references."""
        references = self._sides.references.take(torch.arange(len(self._sides.references))[columns])
        indices = torch.arange(len(self._sides.queries))[rows]
        keys = readable(exact_rows(self._sides.queries, indices, references), references)
        if references.distance == "euclidean":
            return 0.0 - keys
        return keys.mul_(SAME).round_().div_(SAME)

    def similarities(self, keys: Tensor) -> NDArray[np.float64]:
        """Return the similarities that keys stand for: cosines, or minus distances."""
        return keys.numpy()

    def place_edges(self, edges: NDArray[np.float64]) -> int:
        """Set the edges between the bins of `tally`; returns the number of bins."""
        self._edges = np.append(-np.inf, edges)
        return len(self._edges)

    def tally(self, keys: Tensor) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the similarities of some pairs, and the number of them in each bin."""
        values = keys.view(-1)
        bins = np.searchsorted(self._edges, values.numpy(), side="right") - 1
        return values, np.bincount(bins, minlength=len(self._edges))

    def counts(self) -> PairCounts:
        """Return the counts of all pairs that were appended, by similarity."""
        positive = torch.cat(self.positives)
        values, pairs = np.unique(torch.cat([positive, *self.negatives]).numpy(), return_counts=True)
        same = np.bincount(np.searchsorted(values, positive.numpy()), minlength=len(values))  # few pairs
        return PairCounts(values, same, pairs - same)


class _Total:
    """Has the interface of a list, but stores only the sum of the appended tensors."""

    def __init__(self, size: int) -> None:
        self.sum = torch.zeros(size, dtype=torch.int64)

    def append(self, counts: Tensor) -> None:
        self.sum += counts


class RoundedSimilarities:
    """Float32 similarities as whole numbers of steps.

    The product of a row `[s v, s (offset + lowest) + spare, s]` with a column `[w, 1, offset]` is the number of steps
    from the lowest possible similarity, plus the spare steps.
    """

    def __init__(self, sides: Sides) -> None:
        queries, references = sides.queries, sides.references
        self._distance, self._scale = references.distance, float(references.scale[0])
        self._lowest = 1.0 if self._distance == "cosine" else 2.0
        self._bins = 2 * STEPS + 2 * SPARE  # cosines of -1 to 1; minus half of squared distances up to 2
        self._places = np.zeros(1, dtype=np.int64)
        self._left = torch.empty(len(queries), queries.rows.shape[1] + 2)
        self._right = torch.empty(len(references), references.rows.shape[1] + 2)
        for start in range(0, max(len(queries), len(references)), COPIED):
            part = slice(start, start + COPIED)
            self._left[part, :-2] = (queries.scaled(part) * STEPS).float()
            self._right[part, :-2] = references.scaled(part).float()
        self._left[:, -2] = ((queries.offset + self._lowest) * STEPS + SPARE).float()
        self._left[:, -1] = STEPS
        self._right[:, -2] = 1
        self._right[:, -1] = references.offset.float()
        self.positives, self.negatives = _Total(self._bins), _Total(self._bins)

    def block(self, rows: slice, columns: slice) -> Tensor:
        """Return the keys (stored form) of the similarities of some queries and references."""
        left, right = self._left[rows], self._right[columns].T
        keys = torch.empty(len(left), right.shape[1], dtype=torch.int32)
        step = max(1, AT_ONCE // right.shape[1])
        products = torch.empty(min(step, len(left)), right.shape[1])
        for start in range(0, len(left), step):
            part = left[start : start + step]
            keys[start : start + step] = torch.mm(part, right, out=products[: len(part)])
        return keys

    def similarities(self, keys: Tensor) -> NDArray[np.float64]:
        """Return the similarities that keys stand for: cosines, or minus distances."""
        key = (keys.double() - SPARE) / STEPS - self._lowest
        if self._distance == "cosine":
            return key.clamp_(-1.0, 1.0).numpy()
        return (0.0 - (-2 * key).clamp_(min=0.0).sqrt_() / self._scale).numpy()

    def place_edges(self, edges: NDArray[np.float64]) -> int:
        """Set the edges between the bins of `tally`; returns the number of bins."""
        bins = np.searchsorted(self.similarities(torch.arange(self._bins)), edges)
        self._places = np.unique(np.append(0, bins.clip(max=self._bins - 1)))
        return len(self._places)

    def tally(self, keys: Tensor) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the number of pairs of each step, and the number of pairs in each bin."""
        counted = torch.bincount(keys.view(-1), minlength=self._bins)
        return counted, np.add.reduceat(counted.numpy(), self._places)

    def counts(self) -> PairCounts:
        """Return the counts of all pairs that were appended, by similarity."""
        tables = [side.sum.numpy() for side in (self.positives, self.negatives)]
        present = np.flatnonzero(tables[0] + tables[1])
        values, bins = np.unique(self.similarities(torch.from_numpy(present)), return_inverse=True)
        merged = [np.zeros(len(values), dtype=np.int64) for _ in tables]
        for into, table in zip(merged, tables, strict=True):
            np.add.at(into, bins, table[present])  # the spare steps at an end are the same similarity
        return PairCounts(values, merged[0], merged[1], 1 / STEPS)


# Counting: the numbers of pairs of one class and of two classes by similarity, over all pairs, block by block.

FEW_PAIRS = 1 << 25  # up to this number of pairs, similarities are computed exactly and stored
KEPT_POSITIVES = 1 << 25  # maximum number of pairs of one class whose similarities are stored, for scores by class
PILOT = 1 << 10  # items of each side in the sample that determines the edges
EDGES = 160  # number of edges at quantiles of the sample, and of evenly spaced ones
DECADES = 6  # powers of ten of false accept rates that the quantiles span


@dataclass(frozen=True)
class GroupCounts:
    """Numbers of pairs by groups of whole classes, in a few bins of similarity.

    Args:
        positives: Number of pairs of one class in each group and bin.
        negatives: Number of pairs of two classes between each two groups in each bin.
        similarities: Similarities of the pairs of one class; None if there are too many.
        codes: Classes of these pairs.
    """

    positives: Int64[np.ndarray, "g e"]
    negatives: Int64[np.ndarray, "g g e"]
    similarities: Float64[np.ndarray, " p"] | None
    codes: Int64[np.ndarray, " p"] | None


def count_pairs(
    items: ScoredItems, *, exact: bool = True, progress: Callable[[float], None] = lambda fraction: None
) -> tuple[PairCounts, GroupCounts]:
    """Count all pairs of a query and a reference that are not ignored; without a gallery, each pair counts once.

    Args:
        items: Queries and references.
        exact: Whether similarities are exact if there are few pairs; they never are for many.
        progress: Callback, called with the fraction done so far.
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
    stored: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
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
                    stored.append((counter.similarities(keys[chosen]), classes.numpy()))
        with lock:
            progress(next(done) / len(blocks))

    side_by_side(work, blocks)
    counts = counter.counts()
    for what, number in (("one class", counts.positives.sum()), ("two classes", counts.negatives.sum())):
        if not number:
            raise InputError(
                f"There is no pair of {what} to compare; verification needs pairs of both kinds. Check the labels."
            )
    values = np.concatenate([values for values, _ in stored]) if keep else None
    codes = np.concatenate([codes for _, codes in stored]) if keep else None
    return counts, GroupCounts(by_group, by_pair, values, codes)


def _edges(counter: ExactSimilarities | RoundedSimilarities, sides: Sides) -> NDArray[np.float64]:
    """Return the edges of the bins: quantiles of a sample's negatives, and evenly spaced values over its range."""
    rows, columns = (slice(None, None, 1 + len(side) // PILOT) for side in (sides.queries, sides.references))
    keys = counter.block(rows, columns)
    apart = sides.codes[rows, None] != sides.reference_codes[columns]
    sample = counter.similarities(keys.view(-1))
    evenly = np.linspace(sample.min(), sample.max(), EDGES)
    negatives = counter.similarities(keys[apart])
    if not len(negatives):
        return evenly
    return np.unique(np.concatenate([np.quantile(negatives, 1 - np.logspace(0, -DECADES, EDGES)), evenly]))
