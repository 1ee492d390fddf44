"""Large-margin nearest neighbours (LMNN) with all impostors."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, final

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.classical.learner import MetricLearner, first_map
from vicinal.classical.relations import Relations, nearest_positives
from vicinal.classical.solvers import ENTRIES, ROWS, Cost, Solution, over_masks, solve
from vicinal.objectives.lmnn import lmnn

__all__ = ["LMNN", "over_impostors"]


# The cost of LMNN from its impostors alone, which are few once the metric is reasonable.

BEYOND = 1.1  # radius within which negatives are listed, relative to that of the ball
MANY = 0.05  # share of all pairs; with more listed negatives, a list is slower than the whole matrix
PATIENCE = 8  # evaluations of the whole matrix before a list is tried again
LARGEST_SINGLE = 1e30  # largest squares that single precision can sum


def over_impostors(
    targets: Bool[Tensor, "n n"], negative: Bool[Tensor, "n n"], *, push: float = 0.5, margin: float = 1.0
) -> Cost:
    """Return the objective `lmnn` of all pairs of points as a cost, exactly as `over_masks` does.

    Only negatives in the ball around an anchor that extends a margin beyond its farthest target count. A search of the
    whole matrix lists those in a larger ball. The list remains complete as long as no point has moved so far (up to a
    common scale) that another negative can have entered the ball, by the triangle inequality.

    Args:
        targets: Target neighbours of each anchor.
        negative: Pairs that do not belong together.
        push: Weight of the push term from 0 to 1, as in `lmnn`.
        margin: Margin in squared distance, as in `lmnn`.
    """
    plain: Cost | None = None
    usable = _any_in_row(targets) & _any_in_row(negative)
    total = max(1, int(usable.sum()))
    near = _Targets(targets, usable)
    listed = _ListedNegatives(negative, usable)

    def cost(at: Tensor, on: Tensor) -> tuple[float, Tensor]:
        nonlocal plain
        distances, reach = near.distances(at, margin)
        impostors = listed.inside(at, reach)
        if impostors is None:
            if plain is None:  # built on first use: few datasets need it
                every = partial(lmnn, push=push, margin=margin)
                plain = over_masks(every, targets, negative, by_anchor=True)
            return plain(at, on)
        anchors, others, far = impostors
        excess = (margin + distances[anchors] - far.unsqueeze(1)).clamp_min(0.0)
        invaded = excess > 0
        value = (1.0 - push) * float(near.sum(distances)) + push * float(excess.sum())
        per_target = torch.zeros_like(distances).index_add_(0, anchors, invaded.to(distances.dtype))
        pulls = near.known * ((1.0 - push) + push * per_target)
        pushes = -push * invaded.sum(1).to(distances.dtype)
        rows = torch.cat([near.anchors.flatten(), anchors])
        columns = torch.cat([near.columns.flatten(), others])
        return value / total, _forces(rows, columns, torch.cat([pulls.flatten(), pushes]), on) / total

    return cost


@final
class _Targets:
    """The targets of every anchor as indices, padded with the anchor itself if there are fewer."""

    def __init__(self, targets: Bool[Tensor, "n n"], usable: Bool[Tensor, " n"]) -> None:
        n = len(targets)
        rows, columns = np.divmod(np.flatnonzero(targets.numpy()), n)
        valid = usable.numpy()[rows]
        rows, columns = rows[valid], columns[valid]
        counts = np.bincount(rows, minlength=n)
        position = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        filled = np.repeat(np.arange(n)[:, None], max(1, int(counts.max())), axis=1)
        self.anchors = torch.from_numpy(filled.copy())
        filled[rows, position] = columns
        self.columns = torch.from_numpy(filled)
        self.known = (self.columns != self.anchors).to(torch.float64)

    def distances(self, at: Tensor, margin: float) -> tuple[Float[Tensor, "n k"], Float[Tensor, " n"]]:
        """Return squared distances to targets, -inf for padding, and the squared radius of the largest ball."""
        squared = (at.unsqueeze(1) - at[self.columns]).square().sum(2)
        squared = squared.masked_fill(self.known == 0, -torch.inf)
        return squared, margin + squared.amax(1)

    def sum(self, distances: Float[Tensor, "n k"]) -> Tensor:
        """Return the sum over targets without padding."""
        return torch.where(self.known > 0, distances, 0.0).sum()


@final
class _ListedNegatives:
    """Negatives near enough to anchors to matter soon, with a check that no others can matter."""

    def __init__(self, negative: Bool[Tensor, "n n"], usable: Bool[Tensor, " n"]) -> None:
        self._negative, self._anchors = negative, usable
        self._most = MANY * negative.numel()
        self._pairs: tuple[Int[Tensor, " p"], Int[Tensor, " p"]] | None = None
        self._then = self._radius = torch.empty(0)
        self._wait = 0

    def inside(self, at: Tensor, reach: Float[Tensor, " n"]) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return anchors, negatives and squared distances of pairs nearer than `reach`; None if there are too many."""
        if self._wait:
            self._wait -= 1
            return None
        radius = reach.clamp_min(0.0).sqrt()
        if self._pairs is None or not self._holds(at, radius):
            self._search(at, radius)
        if self._pairs is None:
            return None
        anchors, others = self._pairs
        distances = _squared_distances(at, anchors, others)
        counts = (distances < reach[anchors]).nonzero().squeeze(1)
        return anchors[counts], others[counts], distances[counts]

    def _holds(self, at: Tensor, radius: Tensor) -> bool:
        """Return whether no unlisted negative can be within the radius of its anchor.

        An unlisted negative was beyond the listed radius. Its distance has changed by at most the movement of its two
        points.
        """
        if self._then.shape != at.shape:
            return False
        scale = ((at * self._then).sum() / self._then.square().sum().clamp_min(1e-300)).clamp_min(0.0)
        moved = (at - scale * self._then).norm(dim=1)
        return bool((radius + moved + moved.max() <= scale * self._radius)[self._anchors].all())

    def _search(self, at: Tensor, radius: Tensor) -> None:
        """List the negatives in a larger ball around each anchor; the list is None if there are too many.

        Single precision is enough, since the ball is enlarged by the rounding error bound.
        """
        self._then, self._radius, self._pairs = at.clone(), BEYOND * radius, None
        squares = at.square().sum(1)
        single = at.float() if squares.max() < LARGEST_SINGLE else at
        error = (2 * at.shape[1] + 8) * torch.finfo(single.dtype).eps * (squares + squares.max())
        # The anchor's term of |x|^2 + |y|^2 - 2 xy is moved to the other side, which saves a pass over memory.
        limits = torch.where(self._anchors, self._radius.square() - squares + error, -torch.inf).to(single.dtype)
        lengths, anchors, others, count = squares.to(single.dtype), [], [], 0
        rows = max(1, min(ROWS, ENTRIES // len(at)))
        for first in range(0, len(at), rows):
            here = slice(first, first + rows)
            matrix = torch.addmm(lengths, single[here], single.T, alpha=-2.0)
            inside = (matrix <= limits[here].unsqueeze(1)).logical_and_(self._negative[here])
            row, column = np.divmod(np.flatnonzero(inside.numpy()), len(at))
            anchors.append(row + first)
            others.append(column)
            count += len(row)
            if count > self._most:
                self._wait = PATIENCE
                return
        self._pairs = torch.from_numpy(np.concatenate(anchors)), torch.from_numpy(np.concatenate(others))


def _any_in_row(mask: Bool[Tensor, "n n"]) -> Bool[Tensor, " n"]:
    return torch.from_numpy(mask.numpy().any(axis=1))


def _squared_distances(at: Tensor, first: Int[Tensor, " p"], second: Int[Tensor, " p"]) -> Float[Tensor, " p"]:
    """Return squared distances of pairs of points, a block at a time: there are more pairs than points."""
    squared = at.new_empty(len(first))
    pairs = max(1, ENTRIES // at.shape[1])
    for start in range(0, len(first), pairs):
        here = slice(start, start + pairs)
        apart = at.index_select(0, first[here]).sub_(at.index_select(0, second[here]))
        torch.linalg.vecdot(apart, apart, out=squared[here])
    return squared


def _forces(rows: Tensor, columns: Tensor, weights: Tensor, on: Tensor) -> Tensor:
    """Return the forces of weighted pairs; see `vicinal.classical.solvers`."""
    n = len(on)
    both = (np.concatenate([rows, columns]), np.concatenate([columns, rows]))
    pulled = scipy.sparse.csr_array((np.tile(weights.numpy(), 2), both), shape=(n, n))
    sums = torch.from_numpy(np.asarray(pulled.sum(axis=1)))
    return 2.0 * (sums.unsqueeze(1) * on - torch.from_numpy(pulled @ on.numpy()))


class LMNN(MetricLearner):
    """Learn the metric that pulls each point to its target neighbours and keeps other classes a margin away.

    The target neighbours of a point are its nearest points of the same class before learning; in a class with fewer
    other members, all of them. Impostors are counted exactly, among all points, in every iteration.

    Args:
        n_neighbors: Number of target neighbours of each point (k).
        push: Weight of the push term, from 0, pull only, to 1, push only (mu).
        margin: Margin by which impostors must be farther than a target neighbour, in squared distance.
        n_components: Dimension of the learned space; None for the number of features. Only for the solver "map".
        solver: "map", L-BFGS over a map G; "matrix", projected gradient over A = G^T G, in which the cost is convex.
        init: Initial map: "auto", "identity", "pca", "lda" or an array.
        max_iter: Largest number of iterations.
        tol: Tolerance of the stopping criterion.

    Reference:
        Weinberger and Saul, "Distance metric learning for large margin nearest neighbor classification", JMLR 2009. The
        cost is `vicinal.objectives.lmnn`.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> LMNN(n_neighbors=3, n_components=2).fit_transform(*load_iris(return_X_y=True)).shape
        (150, 2)
    """

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        push: float = 0.5,
        margin: float = 1.0,
        n_components: int | None = None,
        solver: Literal["map", "matrix"] = "map",
        init: Any = "auto",
        max_iter: int = 100,
        tol: float = 1e-5,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.push = push
        self.margin = margin
        self.n_components = n_components
        self.solver = solver
        self.init = init
        self.max_iter = max_iter
        self.tol = tol

    def _learn(self, points: Tensor, relations: Relations) -> Solution:
        targets = nearest_positives(points, relations, self.n_neighbors)
        cost = over_impostors(targets, relations.negative, push=self.push, margin=self.margin)
        first = first_map(points, relations, self.n_components, self.init)
        return solve(self.solver, points, cost, first, max_iter=self.max_iter, tol=self.tol)
