"""Scores of methods on the same test classes, over one run or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.phrasing import counted

__all__ = ["ClassScores", "class_arrays", "class_scores"]


class ClassScores(NamedTuple):
    """Checked scores per class: methods by falling mean, then by name.

    Args:
        methods: Their names.
        values: Methods by seeds by classes.
        weights: Of the classes, with sum 1.
    """

    methods: tuple[str, ...]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]


def class_arrays(
    runs: Mapping[str, Sequence[Mapping[Any, float]]],
) -> dict[str, NDArray[np.float64]]:
    """Put the scores per class of several runs of several methods in one order of classes.

    Args:
        runs: Method -> one mapping of class -> score for each seed, as `Scores.per_class` returns them.

    Returns:
        Method -> seeds by classes.

    Example:
        >>> class_arrays({"a": [{"wren": 0.4, "crow": 0.9}], "b": [{"crow": 0.8, "wren": 0.5}]})
        {'a': array([[0.9, 0.4]]), 'b': array([[0.8, 0.5]])}
    """
    every = {label for of_method in runs.values() for run in of_method for label in run}
    order = sorted(every, key=lambda label: (isinstance(label, str), label))
    for method, of_method in runs.items():
        for number, run in enumerate(of_method):
            absent = [str(label) for label in order if label not in run]
            if absent:
                shown = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
                raise InputError(
                    f"Run {number} of {method} has no score for {len(absent)} of {len(order)} classes ({shown}): "
                    "score all runs on the same classes."
                )
    return {
        method: np.array([[run[label] for label in order] for run in of_method], dtype=np.float64)
        for method, of_method in runs.items()
    }


def class_scores(per_class: Mapping[str, NDArray[np.float64]], queries: NDArray[np.int64] | None = None) -> ClassScores:
    """Check scores per class and put them in one array, best method first.

    Args:
        per_class: Method -> scores of the same classes in the same order, or seeds by classes.
        queries: How many each class has, to weigh classes as the mean over queries does; without it all are equal.
    """
    if len(per_class) < 2:
        raise InputError(f"A comparison needs at least 2 methods, got {len(per_class)}.")
    arrays = {method: np.atleast_2d(np.asarray(values, dtype=np.float64)) for method, values in per_class.items()}
    shapes = {method: values.shape for method, values in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 or 0 in shape for shape in shapes.values()):
        listed = ", ".join(f"{method} {shape}" for method, shape in shapes.items())
        raise InputError(f"All methods need scores of the same seeds and classes (seeds, classes); got {listed}.")
    for method, values in arrays.items():
        unknown = np.argwhere(~np.isfinite(values)).tolist()
        if unknown:
            raise InputError(
                f"{method} has no score for {counted(len(unknown), 'class')}, first for number {unknown[0][1]} in run "
                f"{unknown[0][0]}: leave classes without a scored query out of all methods."
            )
    classes = next(iter(shapes.values()))[1]
    counts = np.ones(classes) if queries is None else np.asarray(queries, dtype=np.float64)
    if counts.shape != (classes,) or not (counts > 0).all():
        raise InputError(
            f"queries must hold a count above 0 for each of {classes} classes; got {counts.tolist()[:10]}."
        )
    weights = counts / counts.sum()
    order = sorted(arrays, key=lambda method: (-float((arrays[method] @ weights).mean()), method))
    return ClassScores(tuple(order), np.stack([arrays[method] for method in order]), weights)
