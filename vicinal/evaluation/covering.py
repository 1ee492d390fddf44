"""How far the items of a class reach from any few of them."""

from __future__ import annotations

import torch
from jaxtyping import Float64
from torch import Tensor

from vicinal.evaluation.inputs import ArrayLike, Labels, as_codes, as_embeddings
from vicinal.evaluation.similarity import vectors

__all__ = ["covering_radius", "greedy_radii"]

BUDGET = 1 << 24  # numbers of several classes of one size, taken together


def covering_radius(embeddings: ArrayLike, labels: Labels, *, metric: str = "cosine") -> float:
    """The radius of balls around k items of a class that cover the class, averaged over k and classes.

    Formula:
        For each class and k = 1..n, the greedy k-Center radius r_k = max_x min_c |x - c|; the mean of
        r_1, ..., r_n, then the mean over classes.

    Args:
        embeddings: One row per item.
        labels: One label per item.
        metric: "cosine" looks at the normalised embeddings; distances are Euclidean in both.

    Example:
        >>> covering_radius([[0.0], [1.0], [4.0]], ["a", "a", "a"], metric="euclidean")
        1.3333333333333333
    """
    items = as_embeddings(embeddings)
    classes, (codes,) = as_codes(labels, sizes=[len(items)])
    prepared, _ = vectors(items, metric=metric)
    counts = torch.bincount(codes, minlength=len(classes))
    members = torch.split(codes.argsort(stable=True), counts.tolist())
    total = 0.0
    for size in sorted(set(counts.tolist())):
        same = torch.stack([mine for mine in members if len(mine) == size])
        for part in torch.split(same, max(1, BUDGET // (size * items.shape[1]))):
            chosen = items[part].double()
            points = chosen * prepared.scale[part, None] if metric == "cosine" else chosen
            total += float(greedy_radii(points).mean(dim=1).sum())
    return total / len(classes)


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
