"""Several models as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float32
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.checked_inputs import ArrayLike, as_embeddings
from vicinal.neighbours.similarity import vectors

__all__ = ["concatenate"]


def concatenate(models: Sequence[ArrayLike]) -> Float32[Tensor, "n d"]:
    """Join the embeddings of the same items by several models, each with the same weight.

    Each model's embeddings are normalised first, so that the cosine similarity of the joined ones is the mean
    of the models' cosine similarities; the result has length one again.

    Args:
        models: One matrix per model; dimensions may differ.

    Reference:
        Musgrave, Belongie and Lim (2020), A Metric Learning Reality Check, section 4: the models of four
        cross-validation folds, 128 dimensions each, joined to 512.

    Example:
        >>> concatenate([[[3.0, 0.0]], [[0.0, 0.5]]])
        tensor([[0.7071, 0.0000, 0.0000, 0.7071]])
    """
    matrices = [as_embeddings(model, f"embeddings of model {at}") for at, model in enumerate(models)]
    if not matrices:
        raise InputError("An ensemble needs the embeddings of at least one model, got none.")
    sizes = [len(matrix) for matrix in matrices]
    if len(set(sizes)) > 1:
        raise InputError(f"All models must embed the same items in the same order; got {sizes} items.")
    parts = [vectors(matrix)[0].scaled(slice(None)) for matrix in matrices]
    return (torch.cat(parts, dim=1) / len(parts) ** 0.5).float()
