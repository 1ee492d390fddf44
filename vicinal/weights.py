"""Pair weights: every loss is a weighting of pairs, and its weights are its gradient.

For any objective H of a similarity matrix S (Theorem 3.1 of "A unified view of deep metric learning via gradient
analysis"), the loss sum_neg w s - sum_pos w s with w held constant has the same gradient, where w is the derivative of
H with respect to S with its sign flipped on positive pairs. So one function shows what any loss does, and a weight rule
alone is a trainable loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from vicinal._util.style import ACCENT, GREEN, styled
from vicinal.errors import InputError, look_up
from vicinal.objectives.traits import Traits, traits_of, traits_or_default
from vicinal.pairs import GEOMETRIES, check_pairs

__all__ = [
    "SimilarityTypes",
    "WeightCurves",
    "objective_from_weights",
    "pair_weights",
    "plot_weights",
    "similarity_types",
    "weight_curves",
]


Miner = Callable[..., tuple[Tensor, Tensor]]


def pair_weights(
    objective: Callable[..., Tensor],
    matrix: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    negative: Bool[Tensor, "n m"],
    *,
    symmetric: bool = False,
    **options: Any,
) -> Float[Tensor, "n m"]:
    """Return how strongly a loss pulls each positive pair together and pushes each negative pair apart.

    Formula:
        w_ij = -dL/ds_ij for a positive and +dL/ds_ij for a negative pair of similarities, the opposite for distances

    Args:
        objective: Any function of (matrix, positive, negative).
        matrix: Similarities, or distances if the objective is declared for distances.
        positive: Pairs that belong together.
        negative: Pairs that do not.
        symmetric: Whether to average the weights of (i, j) and (j, i), which are the same pair if references and
            anchors are the same batch: the w_ij of the theorem. Otherwise the weight is that of anchor i's row alone.
        **options: Options of the objective.

    Returns:
        Weights in the shape of the matrix; below zero if the loss moves a pair the wrong way.

    Example:
        >>> from vicinal.objectives import contrastive
        >>> same = torch.tensor([[True, False, False]])
        >>> pair_weights(contrastive, torch.tensor([[0.8, 0.9, 0.1]]), same, ~same)
        tensor([[1., 1., 0.]])
    """
    check_pairs(matrix, positive, negative)
    if symmetric and matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"symmetric weights need as many references as anchors; got a matrix of {list(matrix.shape)}.")
    traits = traits_of(objective)
    larger_is_closer = traits is None or GEOMETRIES[traits.geometry].similarity
    with torch.enable_grad():
        leaf = matrix.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(objective(leaf, positive, negative, **options), leaf)
    if symmetric:
        slope = (slope + slope.T) / 2
    pull = -slope if larger_is_closer else slope
    return torch.where(positive, pull, torch.where(negative, -pull, 0.0))


def objective_from_weights(
    weigh: Callable[..., Tensor], *, similarity: bool = True
) -> Callable[..., Float[Tensor, ""]]:
    """Turn a weight rule into a trainable loss whose gradient is that rule.

    Args:
        weigh: Function of (matrix, positive, negative, **options) that returns one weight per pair, at least zero.
            It is called without gradient.
        similarity: Whether the rule is written for similarities; False for distances.

    Returns:
        An objective. Its value is the weighted sum of pairs; only its gradient is meaningful.

    Example:
        >>> def hardest_negatives(matrix, positive, negative):
        ...     return positive + torch.softmax(10 * matrix, dim=1) * negative
        >>> loss = objective_from_weights(hardest_negatives)
        >>> same = torch.tensor([[True, False, False]])
        >>> pair_weights(loss, torch.tensor([[0.9, 0.5, 0.5]]), same, ~same)
        tensor([[1.0000, 0.0177, 0.0177]])
    """

    def objective(
        matrix: Float[Tensor, "n m"], positive: Bool[Tensor, "n m"], negative: Bool[Tensor, "n m"], **options: Any
    ) -> Float[Tensor, ""]:
        check_pairs(matrix, positive, negative)
        with torch.no_grad():
            weights = weigh(matrix.detach(), positive, negative, **options)
        if weights.shape != matrix.shape:
            raise InputError(
                f"A weight rule must return one weight per pair, {list(matrix.shape)}; got {list(weights.shape)}."
            )
        sign = 1.0 if similarity else -1.0
        toll = torch.where(negative, weights, 0.0) - torch.where(positive, weights, 0.0)
        return sign * (toll * matrix).sum()

    objective.__name__ = getattr(weigh, "__name__", "objective")
    objective.__doc__ = f"The loss whose pair weights are those of `{objective.__name__}`."
    geometry = "cosine" if similarity else "euclidean"
    objective.traits = Traits(geometry, paper="a weight rule")  # type: ignore[attr-defined]
    return objective


@dataclass(frozen=True)
class SimilarityTypes:
    """Similarities that the weight of a negative pair depends on.

    Attributes:
        own: Whether it depends on the pair's own similarity: it changes when all similarities of the anchor shift
            together.
        negative: Whether it depends on the anchor's other negatives: it changes when they do.
        positive: Whether it depends on the anchor's positives: moving them changes how the push is shared among the
            negatives.
    """

    own: bool
    negative: bool
    positive: bool


def similarity_types(
    objective: Callable[..., Tensor], *, mining: Miner | None = None, seed: int = 0, trials: int = 100, **options: Any
) -> SimilarityTypes:
    """Determine which of the three types of similarity an objective uses, from how its weights change.

    Two anchors are compared with 3 positives and 5 negatives each. The similarities of the first anchor are changed and
    those of the second are kept, and all weights are measured relative to those of the second anchor, so that a
    constant over the whole batch (such as a mean over active triplets) does not count as a dependence. A factor common
    to all negatives of an anchor (the hinge of lifted structure, the saturation of N-pair) does not weigh one pair
    against another and does not count for `positive`.

    Args:
        objective: Any function of (matrix, positive, negative).
        mining: Miner that is applied first; its choice is part of the weights.
        seed: Seed of the random similarities.
        trials: Number of trials; one in which a weight changes is enough.
        **options: Options of the objective.

    Reference:
        Wang et al. 2019, section 3; "Metric learning: a deep dive", Table 1.

    Example:
        >>> from vicinal.objectives import contrastive
        >>> similarity_types(contrastive)
        SimilarityTypes(own=True, negative=False, positive=False)
    """
    traits = traits_or_default(objective)
    positives = 1 if traits.needs else 3
    columns = positives + 5
    positive = (torch.arange(columns) < positives).expand(2, -1)
    watched = positives  # the first negative
    supplied = _supplied(traits, columns, positives)

    def weights(similarities: Tensor) -> Tensor:
        mined = _mined(mining, similarities, positive)
        # Distances are probed on a scale that shifts as similarities do: the test is in the units of the loss.
        matrix = similarities if GEOMETRIES[traits.geometry].similarity else 1.3 * (1.0 - similarities)
        push = pair_weights(objective, matrix, mined[0], mined[1], **{**supplied, **options})[:, positives:]
        return push[0] / push[1].sum() if push[1].sum() > 0 else torch.full_like(push[0], torch.nan)

    def moves(before: Tensor, after: Tensor) -> bool:
        finite = before.isfinite().all() and after.isfinite().all()
        return bool(finite and (before - after).abs().max() > 1e-6 * (1 + before.abs().max()))

    def shares(push: Tensor) -> Tensor:
        return push / push.sum()

    generator = torch.Generator().manual_seed(seed)
    own = other_negatives = positives_move = False
    for _ in range(trials):
        level = 0.8 * torch.rand((), generator=generator, dtype=torch.float64) - 0.3
        similarities = level + 0.3 * torch.rand(2, columns, generator=generator, dtype=torch.float64)
        change = (torch.rand(columns, generator=generator, dtype=torch.float64) - 0.5) * 0.4
        shifted, others_moved, positives_moved = similarities.clone(), similarities.clone(), similarities.clone()
        shifted[0] += change[0]
        others_moved[0, watched + 1 :] += change[watched + 1 :]
        positives_moved[0, :positives] += change[:positives]
        before = weights(similarities)
        own |= moves(before[:1], weights(shifted)[:1])
        other_negatives |= moves(before[:1], weights(others_moved)[:1])
        positives_move |= moves(shares(before), shares(weights(positives_moved)))
    return SimilarityTypes(own, other_negatives, positives_move)


@dataclass(frozen=True)
class WeightCurves:
    """Weights of one pair as its similarity changes, with the anchor's other pairs fixed.

    Attributes:
        similarity: Cosines of the pair.
        positive: Weight of the pair if it is positive.
        negative: Weight of the pair if it is negative.
    """

    similarity: Float[Tensor, " k"]
    positive: Float[Tensor, " k"]
    negative: Float[Tensor, " k"]


def weight_curves(
    objective: Callable[..., Tensor],
    *,
    mining: Miner | None = None,
    points: int = 401,
    positives: tuple[float, ...] = (0.45, 0.6, 0.75),
    negatives: tuple[float, ...] = (-0.1, 0.1, 0.25, 0.35, 0.5),
    geometry: str | None = None,
    **options: Any,
) -> WeightCurves:
    """Trace the weight of one pair over its cosine, from -1 to 1.

    Args:
        objective: Any function of (matrix, positive, negative); one written for distances is also traced over the
            cosine, with unit vectors, so that all losses share an axis.
        mining: Miner that is applied first.
        points: Number of cosines.
        positives: Cosines of the anchor's positives; the first is the one that changes. An objective that needs one
            reference per class gets only the first.
        negatives: Cosines of its negatives; the first is the one that changes.
        geometry: Geometry of the matrix, instead of the one that the objective is written for: with "cosine" an
            objective written for distances gets 1 - cosine, as in the figures of papers on pair weights, so that the
            slope of the distance itself is not part of its weights.
        **options: Options of the objective.

    Reference:
        "A unified view of deep metric learning via gradient analysis", Figure 1.

    Example:
        >>> from vicinal.objectives import contrastive
        >>> weight_curves(contrastive, points=3).negative
        tensor([0., 0., 1.], dtype=torch.float64)
    """
    traits = traits_or_default(objective)
    shown_in = traits.geometry if geometry is None else _given_as(geometry, traits.geometry)
    positives = positives[:1] if traits.needs else positives
    rest = torch.tensor([*positives, *negatives], dtype=torch.float64)
    positive = (torch.arange(len(rest)) < len(positives)).expand(1, -1)
    supplied = _supplied(traits, len(rest), len(positives))
    # At the ends square roots and angles have no slope.
    cosines = torch.linspace(-1 + 1e-6, 1 - 1e-6, points, dtype=torch.float64)

    def weight_of(column: int, sign: float) -> Tensor:
        traced = torch.empty(points, dtype=torch.float64)
        for k, value in enumerate(cosines):
            similarities = rest.clone()[None]
            similarities[0, column] = value
            mined = _mined(mining, similarities, positive)
            leaf = similarities.requires_grad_()
            loss = objective(_from_cosine(leaf, shown_in), *mined, **supplied, **options)
            (slope,) = torch.autograd.grad(loss, leaf)
            traced[k] = sign * slope[0, column]
        return traced

    return WeightCurves(cosines, weight_of(0, -1.0), weight_of(len(positives), 1.0))


def _given_as(geometry: str, written_for: str) -> str:
    """Return the geometry of the matrix for an objective; one written for distances never gets similarities."""
    look_up("geometry", geometry, GEOMETRIES)
    if GEOMETRIES[written_for].similarity == GEOMETRIES[geometry].similarity:
        return geometry
    if geometry == "cosine":
        return "cosine_distance"
    raise InputError(f"An objective written for {written_for} cannot be used with geometry={geometry!r}; use 'cosine'.")


def _from_cosine(cosines: Tensor, geometry: str) -> Tensor:
    """Return the matrix that unit vectors with these cosines have in a geometry."""
    if GEOMETRIES[geometry].similarity:
        return cosines
    if geometry == "cosine_distance":
        return 1.0 - cosines
    squared = 2.0 - 2.0 * cosines
    return squared if geometry == "squared_euclidean" else squared.clamp_min(1e-12).sqrt()


def _mined(mining: Miner | None, similarities: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    return (positive, ~positive) if mining is None else mining(similarities, positive, ~positive)


def _supplied(traits: Traits, columns: int, positives: int) -> dict[str, Tensor]:
    """Return what a criterion would supply: positives are class 0, and every other column is a separate class."""
    labels = (torch.arange(columns) - positives + 1).clamp_min(0)
    offered = {"reference_labels": labels, "reference_matrix": torch.eye(columns, dtype=torch.float64)}
    return {need: offered[need] for need in traits.needs}


# Figures of weight curves.

PULL, PUSH = GREEN, ACCENT


def plot_weights(curves: Mapping[str, WeightCurves], *, columns: int = 4) -> Figure:
    """Draw the weight of a pair over its similarity, one panel per loss.

    Args:
        curves: Name -> curves of each loss, as `weight_curves` returns them.
        columns: Number of panels per row.

    Returns:
        A figure; save it with `figure.savefig("weights.png")`.
    """
    across = min(columns, len(curves))
    down = math.ceil(len(curves) / across)
    figure = Figure(figsize=(3.4 * across, 2.7 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel, (name, curve) in zip(panels, curves.items(), strict=False):
        panel.plot(curve.similarity, curve.positive, color=PULL, label="positive pair is pulled")
        panel.plot(curve.similarity, curve.negative, color=PUSH, linestyle=":", label="negative pair is pushed")
        # The slope of a distance over the cosine is unbounded at 1: leave that spike out of the scale.
        inner = curve.similarity.abs() < 0.97
        shown = (*curve.positive[inner].tolist(), *curve.negative[inner].tolist())
        pad = 0.06 * (max(shown) - min(shown) or 1.0)
        panel.set(title=name, xlim=(-1, 1), ylim=(min(shown) - pad, max(shown) + pad))
        panel.grid(alpha=0.25)
    for panel in panels[len(curves) :]:
        panel.set_axis_off()
    figure.supxlabel("cosine similarity of the pair")
    figure.supylabel("weight")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    return styled(figure)
