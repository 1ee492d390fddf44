"""Where a head starts: at random, or as the principal axes of the features that it will see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vicinal.data import Dataset
from vicinal.embedder.head import Head
from vicinal.embedder.principal_axes import principal_axes
from vicinal.errors import InputError
from vicinal.training.frozen import Trainee

__all__ = ["start_at_principal_axes"]


def start_at_principal_axes(model: Trainee, data: Dataset) -> None:
    """Let the head of a model centre features and keep their principal axes: training starts from PCA.

    Args:
        model: Whose head has a linear map with a bias.
        data: The items to train on.
    """
    linear = model.head.linear
    if linear is None or linear.bias is None or linear.out_features > linear.in_features:
        size = "none" if linear is None else f"{linear.in_features} to {linear.out_features}"
        bias = "" if linear is None or linear.bias is not None else " without a bias"
        mended = "head_bias = true" if bias else "a smaller dim"
        raise InputError(
            "A head that starts at principal axes maps features to as many numbers or fewer, with a bias that centres "
            f"them; got {size}{bias}: give {mended}, or head_start = 'random'."
        )
    with _features_alone(model.head):
        found = principal_axes(model.encode(data, engine="folded"))
    axes = torch.from_numpy(found.axes[: linear.out_features].copy())
    with torch.no_grad():
        linear.weight.copy_(axes)
        linear.bias.copy_(-axes @ torch.from_numpy(found.mean))


@contextmanager
def _features_alone(head: Head) -> Iterator[None]:
    """Let a head pool, and do nothing else."""
    former = head.linear, head.normalisation, head.dim
    assert former[0] is not None
    head.linear, head.normalisation, head.dim = None, "none", former[0].in_features
    try:
        yield
    finally:
        head.linear, head.normalisation, head.dim = former
