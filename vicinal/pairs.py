"""Anchors x references -> one matrix: the basis of everything else.

Every method here compares n **anchors** with m **references** and is a function of one n x m matrix and two
boolean masks of the same shape::

    matrix[i, j]                how close (or how far) anchor i and reference j are
    positive[i, j]              they belong together
    negative[i, j]              they do not
    loss = objective(matrix, positive, negative, ...)

A pair that is in neither mask (an item and itself, a pair that mining dropped) does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.errors import InputError, NotFinite

__all__ = [
    "GEOMETRIES",
    "Geometry",
    "as_labels",
    "check_embeddings",
    "check_finite",
    "check_pairs",
    "cosine",
    "cosine_distance",
    "dot",
    "euclidean",
    "masks",
    "squared_euclidean",
    "to_ball",
    "to_sphere",
    "widen",
]


def widen(tensor: Tensor) -> Tensor:
    """Return half-precision numbers as float32 and leave wider ones alone.

    Sums of exponentials over a batch overflow float16 at 11 and lose every digit in bfloat16.

    Example:
        >>> widen(torch.zeros(2, dtype=torch.float16)).dtype
        torch.float32
    """
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def to_sphere(vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Scale every vector to length one; a zero vector has no direction and stays zero, with zero gradient.

    A vector shorter than the square root of the smallest float becomes zero, too: its direction is lost to rounding,
    and its gradient would overflow.

    Example:
        >>> to_sphere(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    return _ToSphere.apply(vectors)  # type: ignore[no-untyped-call]


class _ToSphere(torch.autograd.Function):
    """x / |x|, whose gradient (g - u <u, g>) / |x| needs half the passes of the gradients of its parts."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        inverse = _inverse_length(vectors)
        units = vectors * inverse
        ctx.save_for_backward(vectors, units, inverse)
        return units

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        vectors, units, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives these must be functions of the vectors
            inverse = _inverse_length(vectors)
            units = vectors * inverse
        along = torch.linalg.vecdot(units, gradients[0], dim=1).unsqueeze(1)
        return torch.addcmul(gradients[0], units, -along) * inverse


def _inverse_length(vectors: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    tiny = torch.finfo(vectors.dtype).tiny ** 0.5
    return torch.where(length > tiny, length.clamp_min(tiny).reciprocal(), 0.0)


def to_ball(vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Project every vector onto the unit ball: longer ones are cut to length one, the rest are untouched.

    Unlike `to_sphere` it is 1-Lipschitz, like every projection onto a convex set.

    Example:
        >>> to_ball(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
    """
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / length.clamp_min(1.0)


def dot(anchors: Float[Tensor, "n d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Inner product of every anchor with every reference.

    Example:
        >>> dot(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[11.,  2.]])
    """
    return _products(widen(anchors), widen(references))


def cosine(anchors: Float[Tensor, "n d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Cosine similarity of every anchor with every reference, in [-1, 1].

    Example:
        >>> cosine(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0], [3.0, 0.0]]))
        tensor([[0., 1.]])
    """
    if references is anchors:
        units = to_sphere(widen(anchors))
        return _products(units, units)
    return _products(to_sphere(widen(anchors)), to_sphere(widen(references)))


def cosine_distance(anchors: Float[Tensor, "n d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """One minus the cosine similarity: half the squared Euclidean distance on the sphere.

    Example:
        >>> cosine_distance(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0], [3.0, 0.0]]))
        tensor([[1., 0.]])
    """
    return 1.0 - cosine(anchors, references)


def squared_euclidean(anchors: Float[Tensor, "n d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Squared Euclidean distance of every anchor and every reference, never below zero.

    Example:
        >>> squared_euclidean(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[25.]])
    """
    return _squared(anchors, references).clamp_min(0.0)


def euclidean(anchors: Float[Tensor, "n d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Euclidean distance of every anchor and every reference; its gradient is zero where the distance is.

    Example:
        >>> euclidean(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
        tensor([[5.]])
    """
    squared = _squared(anchors, references)
    # The square root has no derivative at zero; below the smallest float, clamp_min passes no gradient.
    return squared.clamp_min(torch.finfo(squared.dtype).tiny).sqrt()


def _squared(anchors: Tensor, references: Tensor) -> Tensor:
    """Return squared distances, which may be slightly below zero because of rounding."""
    anchors, references = (widen(anchors),) * 2 if references is anchors else (widen(anchors), widen(references))
    lengths = references.square().sum(1)
    return torch.sub(lengths, _products(anchors, references), alpha=2.0).add_(anchors.square().sum(1, keepdim=True))


def _products(anchors: Tensor, references: Tensor) -> Tensor:
    return _Gram.apply(anchors) if references is anchors else anchors @ references.T  # type: ignore[no-untyped-call]


class _Gram(torch.autograd.Function):
    """X X^T, whose gradient (G + G^T) X needs one product, whereas that of two separate factors needs two."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(vectors)
        return vectors @ vectors.T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (vectors,) = ctx.saved_tensors
        return (gradients[0] + gradients[0].T) @ vectors


@dataclass(frozen=True)
class Geometry:
    """A method to compute the matrix.

    Attributes:
        name: Public name.
        compare: Function of anchors and references that returns the matrix.
        similarity: Whether larger entries mean closer; False for distances.
    """

    name: str
    compare: Callable[[Tensor, Tensor], Tensor]
    similarity: bool


GEOMETRIES: dict[str, Geometry] = {
    geometry.name: geometry
    for geometry in (
        Geometry("cosine", cosine, similarity=True),
        Geometry("dot", dot, similarity=True),
        Geometry("cosine_distance", cosine_distance, similarity=False),
        Geometry("euclidean", euclidean, similarity=False),
        Geometry("squared_euclidean", squared_euclidean, similarity=False),
    )
}


def masks(
    anchor_labels: Int[Tensor, " n"] | Bool[Tensor, "n c"],
    reference_labels: Int[Tensor, " m"] | Bool[Tensor, "m c"],
    itself: Bool[Tensor, "n m"] | None = None,
    *,
    overlap: float = 0.0,
) -> tuple[Bool[Tensor, "n m"], Bool[Tensor, "n m"]]:
    """Return which pairs share a label and which do not.

    Args:
        anchor_labels: Labels of the anchors: integers of any size, or sets of labels, a row of booleans per item.
        reference_labels: Labels of the references, of the same kind; with sets of anchors they may also be integers,
            the column indices of their label.
        itself: Pairs of an item with itself; they are in neither mask.
        overlap: Jaccard index (shared labels over all labels of either) above which two sets belong together; 0 needs
            one shared label.

    Example:
        >>> positive, negative = masks(torch.tensor([0, 0, 1]), torch.tensor([0, 1]))
        >>> positive.int().tolist(), negative.int().tolist()
        ([[1, 0], [1, 0], [0, 1]], [[0, 1], [0, 1], [1, 0]])
    """
    if anchor_labels.ndim == 2:
        same = _overlapping(anchor_labels, reference_labels, overlap)
    else:
        same = anchor_labels[:, None] == reference_labels[None, :]
    return (same, ~same) if itself is None else (same & ~itself, ~(same | itself))


def _overlapping(sets: Tensor, others: Tensor, overlap: float) -> Tensor:
    if others.ndim == 1:  # each reference represents one label
        return sets[:, others]
    left, right = sets.float(), others.float()  # counts are exact up to 2^24 labels
    common = left @ right.T
    either = left.sum(1)[:, None] + right.sum(1)[None, :] - common
    return common > overlap * either


def as_labels(labels: Any, device: torch.device) -> Tensor:
    """Return labels that are a tensor, an array or a list as a tensor: integers [n], or sets as booleans [n, c].

    Example:
        >>> as_labels([3, 3, 5], torch.device("cpu"))
        tensor([3, 3, 5])
    """
    if not isinstance(labels, Tensor):
        try:
            labels = torch.as_tensor(labels)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(
                f"labels must be integers, one per embedding, or booleans [items, labels]; got {_shortened(labels)}. "
                "Encode names first: classes, labels = np.unique(names, return_inverse=True)."
            ) from None
        labels = labels.to(device)
    if labels.ndim == 2 and labels.dtype == torch.bool:
        return labels
    return labels if labels.is_floating_point() or labels.is_complex() else labels.long()


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:76]}..."


def check_pairs(matrix: Tensor, positive: Tensor, negative: Tensor) -> None:
    """Raise `InputError` unless the three are one matrix and two boolean masks of its shape."""
    if matrix.ndim != 2 or not matrix.is_floating_point():
        raise InputError(
            f"matrix must be a floating-point tensor of shape [anchors, references]; got {matrix.dtype} of "
            f"shape {list(matrix.shape)}. Use vicinal.pairs.cosine(anchors, references), for example."
        )
    for name, mask in (("positive", positive), ("negative", negative)):
        if mask.shape != matrix.shape or mask.dtype != torch.bool:
            raise InputError(
                f"{name} must be a boolean mask of the matrix's shape {list(matrix.shape)}; got {mask.dtype} "
                f"of shape {list(mask.shape)}. Use vicinal.pairs.masks(labels, reference_labels) for both masks."
            )


def check_embeddings(embeddings: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
    """Raise `InputError` unless these are n embeddings with n labels (and n ids)."""
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise InputError(
            f"embeddings must be a floating-point tensor of shape [items, dimensions]; got {embeddings.dtype} "
            f"of shape {list(embeddings.shape)}."
        )
    sets = labels.ndim == 2 and labels.dtype == torch.bool
    if not sets and (labels.ndim != 1 or labels.is_floating_point() or labels.is_complex()):
        raise InputError(
            f"labels must be a 1-D tensor of integers, one per embedding, or booleans [items, labels]; got "
            f"{labels.dtype} of shape {list(labels.shape)}. Encode names first: classes, labels = np.unique(names, "
            "return_inverse=True)."
        )
    if len(labels) != len(embeddings):
        raise InputError(
            f"There are {len(embeddings)} embeddings but {len(labels)} labels; every embedding needs one label."
        )
    if ids is not None and ids.shape != labels.shape[:1]:
        raise InputError(f"ids must name one item per label; got shape {list(ids.shape)} for {len(labels)} labels.")


def check_finite(embeddings: Tensor) -> None:
    """Raise `NotFinite` if embeddings hold NaN or infinity, naming their rows."""
    if torch.compiler.is_compiling():  # a graph cannot check values
        return
    # One NaN or infinity makes the sum NaN or infinite: one pass without a temporary of the input's size.
    if not torch.isfinite(embeddings.detach().sum(dtype=torch.float64)):
        bad = (~torch.isfinite(embeddings.detach())).any(1).nonzero().flatten().tolist()
        if bad:  # otherwise only the sum overflowed
            raise NotFinite(
                f"{len(bad)} of {len(embeddings)} embeddings hold NaN or infinity (first rows: {bad[:5]}). Common "
                "causes are a learning rate that is too high, float16 overflow, and division by a zero norm."
            )
