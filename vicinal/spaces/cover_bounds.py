"""Generalisation bounds, term by term: how far the loss on a few items of each class can be from the loss on all.

The loss is the generalised contrastive loss: (d - positive_margin)_+ for two items of one class and
(negative_margin - d)_+ for others. As a function of either embedding it is 1-Lipschitz, so distances between
embeddings (with `lipschitz=1`) can replace the paper's distances between inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from torch import Tensor, nn

from vicinal._util.text import counted
from vicinal.errors import InputError
from vicinal.evaluation.geometry import classes_by_size, greedy_radii
from vicinal.neighbours.inputs import ArrayLike, Labels, as_codes, as_embeddings

__all__ = ["Bound", "cover_bound", "lipschitz_constant", "sample_bound"]


# Lipschitz constant of a chain of layers.


def lipschitz_constant(layers: Iterable[nn.Module]) -> float:
    """Return an upper bound of the Lipschitz constant of a chain of layers in evaluation mode.

    Formula:
        The product over layers of sqrt(largest row sum x largest column sum) of absolute weights (Schur's test), which
        bounds the spectral norm. A bound on the row sums alone, as in the paper's Lemma 4.1, is not enough.

    Args:
        layers: Linear maps, convolutions, batch norms, 1-Lipschitz layers (ReLU, pooling without overlap, dropout),
            and sequences of these.

    Reference:
        Gurbuz, Can and Alatan (2024), Deep metric learning with chance constraints, Lemma 4.1.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
        >>> lipschitz_constant([layer, nn.ReLU()])
        3.0
    """
    return math.prod(_stretch(layer) for layer in layers)


def _stretch(layer: nn.Module) -> float:
    if isinstance(layer, nn.Sequential):
        return lipschitz_constant(layer)
    if isinstance(layer, nn.Linear):
        absolute = layer.weight.detach().abs()
        return float((absolute.sum(1).max() * absolute.sum(0).max()).sqrt())
    if isinstance(layer, nn.Conv2d):
        absolute = layer.weight.detach().abs().sum(dim=(2, 3)).view(layer.groups, -1, layer.weight.shape[1])
        return float((absolute.sum(2).max() * absolute.sum(1).max()).sqrt())
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.running_var is not None:
        scale = torch.ones_like(layer.running_var) if layer.weight is None else layer.weight.detach().abs()
        return float((scale / (layer.running_var + layer.eps).sqrt()).max())
    pools = isinstance(layer, nn.MaxPool2d | nn.AvgPool2d) and layer.kernel_size == layer.stride
    if pools or isinstance(layer, nn.ReLU | nn.Identity | nn.Flatten | nn.Dropout | nn.AdaptiveAvgPool2d):
        return 1.0
    raise InputError(
        f"No bound is known for a layer of type {type(layer).__name__}; pass linear maps, convolutions, batch norms, "
        "ReLU and pooling without overlap, in sequence."
    )


ROWS = 1024


@dataclass(frozen=True)
class Bound:
    """Measured gap between two mean losses, and the terms of its bound.

    Attributes:
        gap: Difference of the two mean losses.
        cover: Term of the distance from items to their cover.
        error: Training error.
        sampling: Term of the finite sample, which holds with the requested probability.
        radius: Covering radius.
    """

    gap: float
    cover: float
    error: float
    sampling: float
    radius: float

    @property
    def total(self) -> float:
        """Bound, the sum of its terms."""
        return self.cover + self.error + self.sampling


def cover_bound(
    embeddings: ArrayLike,
    labels: Labels,
    chosen: Sequence[int] | NDArray[np.int64] | Tensor,
    *,
    positive_margin: float = 0.0,
    negative_margin: float = 0.5,
    lipschitz: float = 1.0,
    failure: float = 0.05,
) -> Bound:
    """Bound the difference between the loss against a few chosen items and the loss against all items.

    Formula:
        | mean over [n] x [n] - mean over s x [n] |  <=  zeta (3 delta_s + epsilon(n)) + e
            + L (2 sqrt(log(1/gamma) / 2n) + sqrt((2 m log 2 + 2 log(1/gamma)) / n))

        delta_s is the largest distance from an item to the nearest chosen item of its class, epsilon(n) the largest
        distance from an item to the nearest other item of its class (as a new item would have), e the mean loss over
        s x [n], L the largest value that the loss can take, and m the number of chosen items.

    Args:
        embeddings: One row per training item.
        labels: One label per item.
        chosen: Positions of the chosen items (s), at least one of each class.
        positive_margin: Distance up to which two items of one class have no loss.
        negative_margin: Distance from which two items of different classes have no loss.
        lipschitz: Lipschitz constant (zeta) of the loss with respect to the rows.
        failure: Probability (gamma) with which the bound may fail.

    Reference:
        Gurbuz, Can and Alatan (2024), Deep metric learning with chance constraints, Proposition 4.2, with the term of
        Hoeffding's inequality twice, as its proof uses it twice.

    Example:
        >>> bound = cover_bound([[0.0], [0.1], [1.0], [1.2]], [0, 0, 1, 1], [0, 2], negative_margin=0.5)
        >>> round(bound.gap, 3), round(bound.radius, 3), bound.gap <= bound.total
        (0.0, 0.2, True)
    """
    _check(lipschitz, failure, positive_margin, negative_margin)
    items = as_embeddings(embeddings).double()
    _, (codes,) = as_codes(labels, sizes=[len(items)])
    picked = torch.as_tensor(chosen, dtype=torch.int64)
    if missing := sorted(set(codes.tolist()) - set(codes[picked].tolist())):
        raise InputError(f"Every class needs a chosen item; {len(missing)} classes have none (first: {missing[:5]}).")
    margins = (positive_margin, negative_margin)
    error = _mean_loss(items[picked], codes[picked], items, codes, margins)
    radius = _farthest(items, codes, items[picked], codes[picked])
    alone = _farthest(items, codes, items, codes, others=True)
    n, m, tail = len(items), len(picked), math.log(1 / failure)
    hoeffding, cells = math.sqrt(tail / (2 * n)), math.sqrt((2 * m * math.log(2) + 2 * tail) / n)
    return Bound(
        gap=abs(_mean_loss(items, codes, items, codes, margins) - error),
        cover=lipschitz * (3 * radius + alone),
        error=error,
        sampling=_largest_loss(items, margins) * (2 * hoeffding + cells),
        radius=radius,
    )


def sample_bound(
    sample: ArrayLike,
    sample_labels: Labels,
    population: ArrayLike,
    population_labels: Labels,
    *,
    positive_margin: float = 0.0,
    negative_margin: float = 0.5,
    lipschitz: float = 1.0,
    failure: float = 0.05,
) -> Bound:
    """Bound the difference between the loss of a sample against the population and the loss of the population.

    Formula:
        | mean over all x all - mean over S x all |  <=  zeta delta_S + L sqrt((2 K log 2 + 2 log(1/gamma)) / m)

        delta_S is the largest distance from any item to the nearest item of its class in the sample, m the size of the
        sample, and K the number of balls of radius delta_S / 2 that cover the population; here the number that greedy
        k-Center needs, which is an upper bound.

    Args:
        sample: One row per item of the sample (S).
        sample_labels: One label per row.
        population: One row per item of the same classes, as many as available.
        population_labels: One label per row.
        positive_margin: Distance up to which two items of one class have no loss.
        negative_margin: Distance from which two items of different classes have no loss.
        lipschitz: Lipschitz constant (zeta) of the loss with respect to the rows.
        failure: Probability (gamma) with which the bound may fail.

    Reference:
        Gurbuz, Can and Alatan (2024), Proposition 4.1.

    Example:
        >>> bound = sample_bound([[0.0], [1.0]], [0, 1], [[0.0], [0.1], [1.0], [1.2]], [0, 0, 1, 1])
        >>> round(bound.radius, 3), bound.gap <= bound.total
        (0.2, True)
    """
    _check(lipschitz, failure, positive_margin, negative_margin)
    few, all_ = as_embeddings(sample).double(), as_embeddings(population).double()
    classes, (few_codes, all_codes) = as_codes(sample_labels, population_labels, sizes=[len(few), len(all_)])
    if missing := sorted(set(all_codes.tolist()) - set(few_codes.tolist())):
        names = [classes[code] for code in missing[:5]]
        raise InputError(
            f"The sample has no item of {counted(len(missing), 'class')} of the population (first: {names})."
        )
    margins = (positive_margin, negative_margin)
    gap = _mean_loss(all_, all_codes, all_, all_codes, margins) - _mean_loss(few, few_codes, all_, all_codes, margins)
    radius = _farthest(all_, all_codes, few, few_codes)
    spread = 2 * _balls(all_, all_codes, radius / 2) * math.log(2) + 2 * math.log(1 / failure)
    return Bound(
        gap=abs(gap),
        cover=lipschitz * radius,
        error=0.0,
        sampling=_largest_loss(all_, margins) * math.sqrt(spread / len(few)),
        radius=radius,
    )


def _mean_loss(
    anchors: Float64[Tensor, "a d"],
    anchor_codes: Int64[Tensor, " a"],
    references: Float64[Tensor, "r d"],
    reference_codes: Int64[Tensor, " r"],
    margins: tuple[float, float],
) -> float:
    total = 0.0
    for rows in torch.arange(len(anchors)).chunk(-(-len(anchors) // ROWS)):
        distance = torch.cdist(anchors[rows], references)
        same = anchor_codes[rows, None] == reference_codes
        total += float(torch.where(same, distance - margins[0], margins[1] - distance).clamp_min_(0).sum())
    return total / (len(anchors) * len(references))


def _farthest(
    items: Float64[Tensor, "n d"],
    codes: Int64[Tensor, " n"],
    centres: Float64[Tensor, "m d"],
    centre_codes: Int64[Tensor, " m"],
    *,
    others: bool = False,
) -> float:
    """Return the largest distance of an item to the nearest centre of its class; with `others`, not to itself."""
    largest = 0.0
    for code in set(codes.tolist()):
        distance = torch.cdist(items[codes == code], centres[centre_codes == code])
        if others:
            distance.fill_diagonal_(math.inf)
        nearest = distance.amin(dim=1)
        largest = max(largest, float(nearest[nearest.isfinite()].max())) if nearest.isfinite().any() else largest
    return largest


def _balls(items: Float64[Tensor, "n d"], codes: Int64[Tensor, " n"], radius: float) -> int:
    """Return the number of balls that greedy k-Center needs to cover every class."""
    tables = classes_by_size(codes, items.shape[1])
    return sum(int(((greedy_radii(items[table]) > radius).sum(dim=1) + 1).sum()) for table in tables)


def _largest_loss(items: Float64[Tensor, "n d"], margins: tuple[float, float]) -> float:
    """Return the largest loss of two items in the ball that contains all of them."""
    return max(2 * float(items.norm(dim=1).max()) - margins[0], margins[1])


def _check(lipschitz: float, failure: float, positive_margin: float, negative_margin: float) -> None:
    if lipschitz <= 0 or not 0 < failure < 1 or min(positive_margin, negative_margin) < 0:
        raise InputError(
            "lipschitz must be above 0, failure between 0 and 1, and margins at least 0; got "
            f"{lipschitz}, {failure}, {positive_margin} and {negative_margin}."
        )
