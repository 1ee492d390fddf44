"""Geometry of an embedding space: compactness and separation of classes, uniformity, hubness, collapse.

Every function takes embeddings and, where classes matter, labels. With `distance="cosine"` it uses the normalised
embeddings, with "euclidean" the embeddings as they are; distances are Euclidean in both cases.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vicinal.neighbours.inputs import ArrayLike, Labels, as_codes, as_embeddings
from vicinal.neighbours.nearest import find_neighbours
from vicinal.neighbours.similarity import vectors
from vicinal.neighbours.threads import side_by_side

__all__ = [
    "alignment",
    "class_distances",
    "classes_by_size",
    "collapse_warning",
    "covering_radius",
    "effective_rank",
    "geometry_scores",
    "greedy_radii",
    "hubness",
    "spectral_decay",
    "uniformity",
]


# Covering radius: how far the items of a class are from a few of them.

BUDGET = 1 << 22  # numbers processed at a time


def covering_radius(embeddings: ArrayLike, labels: Labels, *, distance: str = "cosine") -> float:
    """Return the radius of balls around k items of a class that cover the class, averaged over k and classes.

    Formula:
        For each class and k = 1..n, the greedy k-Center radius r_k = max_x min_c |x - c|; the mean of
        r_1, ..., r_n, then the mean over classes.

    Args:
        embeddings: One row per item.
        labels: One label per item.
        distance: "cosine" uses the normalised embeddings; distances are Euclidean in both cases.

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
    """Return the members of each class; classes of the same size share a table, as far as memory allows.

    Example:
        >>> [table.tolist() for table in classes_by_size(torch.tensor([0, 1, 0, 2]), 8)]
        [[[1], [3]], [[0, 2]]]
    """
    counts = torch.bincount(codes).tolist()
    members = torch.split(codes.argsort(stable=True), counts)
    tables: list[Tensor] = []
    for size in sorted(set(counts)):
        same = torch.stack([indices for indices in members if len(indices) == size])
        tables += torch.split(same, max(1, BUDGET // (size * max(size, dimensions))))
    return tables


def greedy_radii(points: Float64[Tensor, "classes n d"]) -> Float64[Tensor, "classes n"]:
    """Return the radii of greedy k-Center for k = 1..n: the point farthest from all centres becomes the next centre.

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


HUB_NEIGHBOURS = 10
FLOOR = 2.0**-23  # singular values below this fraction of the sum are float32 noise
BAND = 512
SAMPLE = 1024


def geometry_scores(embeddings: ArrayLike, labels: Labels, *, distance: str = "cosine") -> dict[str, float]:
    """Return all scores of this module by name; NaN where a score is not defined.

    Example:
        >>> scores = geometry_scores([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1])
        >>> scores["alignment"], round(scores["inter-class distance"], 3)
        (0.0, 1.414)
    """
    items = as_embeddings(embeddings)
    inter, intra = class_distances(items, labels, distance=distance)
    return {
        "covering radius": covering_radius(items, labels, distance=distance),
        "inter-class distance": inter,
        "intra-class distance": intra,
        "density": intra / inter if inter > 0 else torch.nan,
        "spectral decay": spectral_decay(items, distance=distance),
        "effective rank": effective_rank(items, distance=distance),
        "uniformity": uniformity(items, distance=distance),
        "alignment": alignment(items, labels, distance=distance),
        "hubness": hubness(items, distance=distance),
    }


def class_distances(embeddings: ArrayLike, labels: Labels, *, distance: str = "cosine") -> tuple[float, float]:
    """Return the mean distance between the centres of two classes, and between two items of one class.

    Their ratio, intra / inter, is the density of Roth et al.

    Returns:
        Inter-class and intra-class distance; NaN with fewer than two classes, or with no class of two items.

    Reference:
        Roth et al. (2020), Revisiting Training Strategies and Generalization Performance, section 5.

    Example:
        >>> class_distances([[0.0], [2.0], [4.0], [8.0]], [0, 0, 1, 1], distance="euclidean")
        (5.0, 3.0)
    """
    points = _points(embeddings, distance)
    classes, (codes,) = as_codes(labels, sizes=[len(points)])
    counts = torch.bincount(codes, minlength=len(classes))
    centres = torch.zeros(len(classes), points.shape[1], dtype=torch.float64).index_add_(0, codes, points)
    centres /= counts[:, None]

    def apart(rows: Tensor) -> float:
        return float(torch.cdist(centres[rows], centres).sum())

    def within(members: Tensor) -> float:
        # A matrix product would be faster, but would not give exact zeros for duplicates.
        distances = torch.cdist(points[members], points[members], compute_mode="donot_use_mm_for_euclid_dist")
        return float(distances.sum()) / (members.shape[1] * (members.shape[1] - 1))

    count = len(classes)
    between = sum(side_by_side(apart, torch.split(torch.arange(count), BAND)))
    tables = [table for table in classes_by_size(codes, points.shape[1]) if table.shape[1] > 1]
    inside = sum(side_by_side(within, tables))
    inter = between / (count * (count - 1)) if count > 1 else torch.nan
    return inter, inside / sum(len(table) for table in tables) if tables else torch.nan


def spectral_decay(embeddings: ArrayLike, *, distance: str = "cosine") -> float:
    """Return how unevenly the directions of the space are used: 0 if all are used equally, larger if few dominate.

    Formula:
        rho = KL(uniform || s) with s the singular values of the embedding matrix, divided by their sum;
        values below the resolution of float32 are raised to it.

    Reference:
        Roth et al. (2020), section 5.

    Example:
        >>> spectral_decay([[1.0, 0.0], [0.0, 1.0]])
        0.0
    """
    shares = _spectrum(_points(embeddings, distance)).clamp(min=FLOOR)
    return abs(float((-torch.log(shares * len(shares))).mean()))


def effective_rank(embeddings: ArrayLike, *, distance: str = "cosine") -> float:
    """Return the number of directions in use: the exponential of the entropy of the singular values.

    Reference:
        Roy and Vetterli (2007), The effective rank.

    Example:
        >>> round(effective_rank([[1.0, 0.0], [0.0, 1.0]]), 6)
        2.0
    """
    shares = _spectrum(_points(embeddings, distance))
    return float(torch.special.entr(shares).sum().exp())


def uniformity(embeddings: ArrayLike, *, distance: str = "cosine") -> float:
    """Return the logarithm of the mean of exp(-2 distance^2) over all pairs; lower is more evenly spread.

    Reference:
        Wang and Isola (2020), Understanding Contrastive Representation Learning, equation 2.

    Example:
        >>> round(uniformity([[1.0, 0.0], [-1.0, 0.0]]), 4)
        -8.0
    """
    points = _points(embeddings, distance)
    points = (points - points.mean(dim=0)).float()  # float32 is precise enough after centring
    count = len(points)
    if count < 2:
        return torch.nan

    def near(rows: Tensor) -> Tensor:
        exponents = torch.cdist(points[rows], points[int(rows[0]) :]).square_().mul_(-2)
        once = torch.ones_like(exponents, dtype=torch.bool).triu_(1)
        return exponents.masked_fill_(~once, -torch.inf).logsumexp(dim=1).double().logsumexp(dim=0)

    bands = torch.stack(side_by_side(near, torch.split(torch.arange(count), BAND)))
    return float(bands.logsumexp(dim=0)) - math.log(count * (count - 1) / 2)


def alignment(embeddings: ArrayLike, labels: Labels, *, distance: str = "cosine") -> float:
    """Return the mean squared distance of two items of one class, over all such pairs; lower is tighter.

    Reference:
        Wang and Isola (2020), equation 1, with exponent 2.

    Example:
        >>> alignment([[0.0], [2.0], [4.0]], [0, 0, 0], distance="euclidean")
        8.0
    """
    points = _points(embeddings, distance)
    classes, (codes,) = as_codes(labels, sizes=[len(points)])
    counts = torch.bincount(codes, minlength=len(classes)).double()
    centres = torch.zeros(len(classes), points.shape[1], dtype=torch.float64).index_add_(0, codes, points)
    centres /= counts[:, None]
    spread = torch.zeros_like(counts).index_add_(0, codes, (points - centres[codes]).square().sum(dim=1))
    pairs = (counts * (counts - 1)).sum()
    return float(2 * (counts * spread).sum() / pairs) if pairs else torch.nan


def hubness(
    embeddings: ArrayLike,
    *,
    distance: str = "cosine",
    k: int = HUB_NEIGHBOURS,
    indices: Int64[Tensor, "n k"] | None = None,
) -> float:
    """Return the skewness of how often an item is among the k nearest of others; large if a few items are hubs.

    Args:
        embeddings: One row per item.
        distance: Distance that the neighbours are found by.
        k: Number of neighbours of each item.
        indices: Precomputed neighbours.

    Reference:
        Radovanovic, Nanopoulos and Ivanovic (2010), Hubs in Space.

    Example:
        >>> hubness([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], k=1)
        0.0
    """
    neighbours = find_neighbours(embeddings, k, distance=distance).indices if indices is None else indices[:, :k]
    times = torch.bincount(neighbours[neighbours >= 0], minlength=len(neighbours)).double()
    away = times - times.mean()
    spread = away.square().mean().sqrt()
    return float(away.pow(3).mean() / spread.pow(3)) if spread > 0 else 0.0


def collapse_warning(embeddings: ArrayLike, *, distance: str = "cosine") -> str | None:
    """Return a warning if the embeddings have (nearly) collapsed onto one point or one line.

    Looks at about a thousand evenly spaced items.

    Returns:
        A sentence, or None if there is nothing to warn about.

    Example:
        >>> collapse_warning([[1.0, 0.0], [1.0, 0.001]])
        'The embeddings have collapsed: they spread over 0.05 % of their length around one point.'
    """
    items = as_embeddings(embeddings)
    points = _points(items[:: -(-len(items) // SAMPLE)], distance)
    moved = points - points.mean(dim=0)
    spread, length = (float(rows.square().sum(dim=1).mean().sqrt()) for rows in (moved, points))
    if len(points) > 1 and spread <= 0.01 * length:
        share = 100 * spread / length if length else 0.0
        return f"The embeddings have collapsed: they spread over {share:.2g} % of their length around one point."
    rank = float(torch.special.entr(_spectrum(moved)).sum().exp())
    if min(points.shape) > 10 and rank < 2:
        return f"The embeddings have nearly collapsed: they use about {rank:.1f} of {points.shape[1]} directions."
    return None


def _points(embeddings: ArrayLike, distance: str) -> Float64[Tensor, "n d"]:
    items = as_embeddings(embeddings)
    return vectors(items, distance=distance)[0].scaled(slice(None)) if distance == "cosine" else items.double()


def _spectrum(points: Float64[Tensor, "n d"]) -> Float64[Tensor, " s"]:
    """Return the singular values divided by their sum, computed from the smaller Gram matrix."""
    gram = points.T @ points if points.shape[1] <= points.shape[0] else points @ points.T
    values = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    total = values.sum()
    return values / total if total > 0 else values
