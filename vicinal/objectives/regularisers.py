"""Terms on the embeddings or the references alone that a criterion adds to an objective."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.errors import InputError
from vicinal.pairs import to_sphere

__all__ = ["centre_merging", "embedding_norm"]


def embedding_norm(embeddings: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """Return the mean length of the embeddings before normalisation.

    This term of the N-pair loss (Sohn 2016) keeps inner products from growing without bound.

    Example:
        >>> embedding_norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor(2.5000)
    """
    return torch.linalg.vector_norm(embeddings, dim=1).sum() / max(len(embeddings), 1)


def centre_merging(references: Float[Tensor, "m d"], labels: Int[Tensor, " m"]) -> Float[Tensor, ""]:
    """Return the mean distance between the centres of a class, which merges centres that are not needed.

    Formula:
        sum over classes and pairs k < l of sqrt(2 + 1e-5 - 2 w_k . w_l) / (C K (K - 1))

    Args:
        references: Centres, class by class, K for each of C classes.
        labels: Class of each centre.

    Reference:
        Qian et al. 2019 (SoftTriple), eq 10.

    Example:
        >>> centres = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> centre_merging(centres, torch.tensor([0, 0]))
        tensor(0.7071)
    """
    if torch.compiler.is_compiling():  # a graph does not know the number of classes: compare all pairs
        alike = (labels[:, None] == labels).triu(diagonal=1)
        return torch.where(alike, _gaps(to_sphere(references)), 0.0).sum() / (2 * alike.sum()).clamp_min(1)
    classes = len(torch.unique(labels))
    per_class = len(labels) // max(classes, 1)
    heads = labels[:: max(per_class, 1)]
    if len(heads) != classes or not torch.equal(labels, heads.repeat_interleave(per_class)):
        raise InputError(
            f"centre_merging needs the same number of references for every class, stored class by class; got "
            f"{len(labels)} references of {classes} classes."
        )
    if per_class < 2:
        return references.sum() * 0.0
    centres = to_sphere(references).view(classes, per_class, -1)
    gaps = _gaps(centres)
    upper = torch.ones(per_class, per_class, dtype=torch.bool, device=gaps.device).triu(diagonal=1)
    return gaps[:, upper].sum() / (classes * per_class * (per_class - 1))


def _gaps(centres: Tensor) -> Tensor:
    return (2.0 + 1e-5 - 2.0 * centres @ centres.mT).clamp_min(1e-12).sqrt()
