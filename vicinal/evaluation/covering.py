"""How far the items of a class reach from any few of them."""

from __future__ import annotations

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vicinal.neighbours.checked_inputs import ArrayLike, Labels, as_codes, as_embeddings
from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.similarity import vectors

__all__ = ["classes_by_size", "covering_radius", "greedy_radii"]

BUDGET = 1 << 22  # numbers that are taken together


def covering_radius(embeddings: ArrayLike, labels: Labels, *, distance: str = "cosine") -> float:
    """The radius of balls around k items of a class that cover the class, averaged over k and classes.

    Formula:
        For each class and k = 1..n, the greedy k-Center radius r_k = max_x min_c |x - c|; the mean of
        r_1, ..., r_n, then the mean over classes.

    Args:
        embeddings: One row per item.
        labels: One label per item.
        distance: "cosine" looks at the normalised embeddings; distances are Euclidean in both.

    Example:
        >>> covering_radius([[0.0], [1.0], [4.0]], ["a", "a", "a"], distance="euclidean")
        1.3333333333333333
    """
    items = as_embeddings(embeddings)
    classes, (codes,) = as_codes(labels, sizes=[len(items)])
    prepared, _ = vectors(items, distance=distance)
    scale = prepared.scale if distance == "cosine" else torch.ones_like(prepared.scale)

    def radius(members: Tensor) -> float:
        points = items[members].double() * scale[members, None]
        return float(greedy_radii(points).mean(dim=1).sum())

    return sum(side_by_side(radius, classes_by_size(codes, items.shape[1]))) / len(classes)


def classes_by_size(codes: Int64[Tensor, " n"], dimensions: int) -> list[Int64[Tensor, "classes size"]]:
    """The members of each class, several classes of one size in a table as long as memory allows.

    Example:
        >>> [table.tolist() for table in classes_by_size(torch.tensor([0, 1, 0, 2]), 8)]
        [[[1], [3]], [[0, 2]]]
    """
    counts = torch.bincount(codes).tolist()
    members = torch.split(codes.argsort(stable=True), counts)
    tables: list[Tensor] = []
    for size in sorted(set(counts)):
        same = torch.stack([mine for mine in members if len(mine) == size])
        tables += torch.split(same, max(1, BUDGET // (size * max(size, dimensions))))
    return tables


def greedy_radii(points: Float64[Tensor, "classes n d"]) -> Float64[Tensor, "classes n"]:
    """The radii of greedy k-Center for k = 1..n: the point farthest from all centres becomes the next.

    The first centre is the point nearest to the mean, so that the order of the points does not matter.

    Reference:
        Gonzalez (1985), Clustering to minimize the maximum intercluster distance.

    Example:
        >>> greedy_radii(torch.tensor([[[0.0], [1.0], [4.0]]], dtype=torch.float64))
        tensor([[3., 1., 0.]], dtype=torch.float64)
    """
    each = torch.arange(len(points))
    farthest = (points - points.mean(dim=1, keepdim=True)).norm(dim=2).argmin(dim=1)
    nearest = torch.full(points.shape[:2], torch.inf, dtype=torch.float64)
    radii = torch.empty_like(nearest)
    for k in range(points.shape[1]):
        nearest = torch.minimum(nearest, (points - points[each, farthest, None]).norm(dim=2))
        radii[:, k], farthest = nearest.max(dim=1)
    return radii
