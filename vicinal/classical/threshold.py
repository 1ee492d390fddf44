"""The distance up to which a pair counts as the same."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from vicinal.errors import InputError, UnknownName

__all__ = ["best_threshold"]


def best_threshold(
    distances: Float[np.ndarray, " n"],
    same: Bool[np.ndarray, " n"],
    *,
    strategy: str = "accuracy",
    beta: float = 1.0,
    limit: float = 0.05,
) -> float:
    """Return the threshold that is best on some pairs, half-way between two of their distances.

    Args:
        distances: Of each pair.
        same: Which pairs belong together.
        strategy: "accuracy"; "f_beta"; or "false_positives", the most true matches with few false ones.
        beta: For "f_beta": above 1, recall counts more than precision.
        limit: For "false_positives": the largest share of different pairs that may be taken for the same.

    Example:
        >>> best_threshold(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, False]))
        2.5
    """
    if same.dtype != np.bool_ or same.shape != distances.shape or same.all() or not same.any():
        raise InputError(
            f"same must be booleans, one per pair, with both kinds among them; got {same.dtype} of shape "
            f"{list(same.shape)} for {len(distances)} pairs."
        )
    steps, position = np.unique(distances, return_inverse=True)
    # Entry k counts the pairs taken for the same when the threshold lies above the first k distinct distances.
    true, false = (
        np.concatenate([[0], np.cumsum(np.bincount(position[kind], minlength=len(steps)))]) for kind in (same, ~same)
    )
    if strategy == "accuracy":
        merit = (true - false).astype(float)
    elif strategy == "f_beta":
        if not beta > 0:
            raise InputError(f"beta must be above 0; got {beta!r}.")
        merit = (1 + beta**2) * true / (true + false + beta**2 * same.sum())
    elif strategy == "false_positives":
        if not 0 <= limit <= 1:
            raise InputError(f"limit must be a share from 0 to 1; got {limit!r}.")
        merit = np.where(false <= limit * (~same).sum(), true, -1).astype(float)
    else:
        raise UnknownName("strategy", strategy, ("accuracy", "f_beta", "false_positives"))
    edges = np.concatenate([[steps[0] / 2], (steps[:-1] + steps[1:]) / 2, [steps[-1]]])
    return float(edges[merit.argmax()])
