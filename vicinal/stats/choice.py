"""Choices by validation scores: a setting and a step by cross-fitting, and the simplest of several level candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

__all__ = ["Chosen", "choose_setting", "level_with_best"]


class Chosen(NamedTuple):
    """A setting and a step that validation classes choose.

    Attributes:
        setting: The chosen setting.
        step: Index of the chosen evaluation.
        by_class: Cross-fitted score of each class: at the setting and step that the other classes choose.
    """

    setting: Any
    step: int
    by_class: Float64[np.ndarray, " c"]


def choose_setting(curves: Mapping[Any, Float64[np.ndarray, "t c"]], queries: Int64[np.ndarray, " c"]) -> Chosen:
    """Choose the setting and the step with the best mean score, and score the choice without optimism.

    The best of many noisy scores is too high, and the more so the more were tried. The score of each class is therefore
    taken at the setting and step that all *other* classes prefer. A setting replaces the first one only if it is
    better by more than a standard error of the difference over classes.

    Args:
        curves: Score of each class at each evaluation, for each setting; the first one is preferred.
        queries: Number of queries of each class, the weight of its score.

    Example:
        >>> few = np.array([[0.2, 0.4], [0.3, 0.3]])
        >>> chosen = choose_setting({"low": few, "high": few + 0.2}, np.array([10, 10]))
        >>> chosen.setting, chosen.step, chosen.by_class.round(2).tolist()
        ('high', 0, [0.4, 0.5])
    """
    names = list(curves)
    weighted = {name: curve * queries for name, curve in curves.items()}
    totals = {name: sums.sum(axis=1) for name, sums in weighted.items()}

    def best(left_out: int | None) -> tuple[Any, int]:
        sums = totals if left_out is None else {name: totals[name] - weighted[name][:, left_out] for name in names}
        steps = {name: int(sums[name].argmax()) for name in names}
        winner = max(names, key=lambda name: sums[name][steps[name]])
        classes = np.delete(np.arange(len(queries)), [] if left_out is None else [left_out])
        first = names[0]
        ahead = (curves[winner][steps[winner]] - curves[first][steps[first]])[classes]
        difference, error = mean_and_error(ahead, queries[classes])
        chosen = first if difference <= error else winner
        return chosen, steps[chosen]

    by_class = np.empty(len(queries))
    for index in range(len(queries)):
        name, step = best(index) if len(queries) > 1 else best(None)
        by_class[index] = curves[name][step, index]
    return Chosen(*best(None), by_class)


def level_with_best(
    scores: Float64[np.ndarray, "n c"], queries: Int64[np.ndarray, " c"], errors: float = 1.0
) -> list[int]:
    """Return the candidates that are within some standard errors of the best one, which comes first.

    Errors are those of the paired difference over classes, so what is hard for all candidates does not count.

    Args:
        scores: Score of each class for each candidate.
        queries: Number of queries of each class, the weight of its score.
        errors: Number of standard errors.

    Example:
        >>> scores = np.array([[0.5, 0.7, 0.6], [0.6, 0.7, 0.6], [0.1, 0.2, 0.1]])
        >>> level_with_best(scores, np.array([10, 10, 10]))
        [1, 0]
    """
    means = scores @ (queries / queries.sum())
    best = int(means.argmax())
    order: Sequence[int] = np.argsort(-means, kind="stable").tolist()
    behind = {index: mean_and_error(scores[best] - scores[index], queries) for index in order}
    return [index for index in order if index == best or behind[index][0] <= errors * behind[index][1]]


def mean_and_error(values: Float64[np.ndarray, " c"], queries: Int64[np.ndarray, " c"]) -> tuple[float, float]:
    """Return the mean of classes weighted by their queries, and its standard error over classes."""
    weights = queries / queries.sum()
    mean = float(weights @ values)
    if len(values) < 2:
        return mean, 0.0
    spread = float(np.square(weights * (values - mean)).sum())
    return mean, float(np.sqrt(spread * len(values) / (len(values) - 1)))
