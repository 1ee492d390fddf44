"""How well an item fits each class when it is left out: Gaussian classes of one shape, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

__all__ = ["ClassModels", "fit_class_models", "left_out_fits"]


@dataclass(frozen=True)
class ClassModels:
    """Classes as Gaussians that differ in their means alone.

    Attributes:
        rows: Items along the principal axes of what varies within classes.
        means: Of the classes, along the same axes.
        variances: Within classes, along each axis.
        weights: How much each item counts.
        sums: Of the weights in each class.
    """

    rows: Float64[np.ndarray, "n d"]
    means: Float64[np.ndarray, "c d"]
    variances: Float64[np.ndarray, " d"]
    weights: Float64[np.ndarray, " n"]
    sums: Float64[np.ndarray, " c"]


def fit_class_models(
    items: Float64[np.ndarray, "n d"], codes: Int64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"]
) -> ClassModels:
    """Estimate the means of all classes and the variance that they share.

    Args:
        items: One row per item.
        codes: The class of each, from 0 on.
        weights: How much each counts; a label that is probably wrong counts little.
    """
    many = int(codes.max()) + 1
    sums = np.bincount(codes, weights, minlength=many)
    means = np.zeros((many, items.shape[1]))
    np.add.at(means, codes, items * weights[:, None])
    means /= np.maximum(sums, 1e-12)[:, None]
    apart = (items - means[codes]) * np.sqrt(weights)[:, None]
    variances, axes = np.linalg.eigh(apart.T @ apart / weights.sum())
    return ClassModels(items @ axes, means @ axes, np.maximum(variances, 0.0), weights, sums)


def left_out_fits(
    models: ClassModels, codes: Int64[np.ndarray, " n"], shrinkage: float, rows: Int64[np.ndarray, " m"]
) -> Float64[np.ndarray, "m c"]:
    """Return the log density of some items under each class, as if each item had not been seen before.

    Taking one item out moves the mean of its class and takes a matrix of rank one off the shared variance, so that
    nothing has to be estimated again (Sherman and Morrison, 1950). A mean of few items lies away from the class's by
    chance: what that adds to the distance on average is taken off.

    Formula:
        D(i, c) = (x_i - m_c)' S_i^-1 (x_i - m_c) - tr(S^-1 W) / n_c,    fit = -D / 2,
        S = (1 - shrinkage) W + shrinkage tr(W) / d I,    m_c, n_c and S_i without item i

    Args:
        models: All classes.
        codes: The class of each item.
        shrinkage: Between 0 and 1: how far the shared variance is the same in all directions.
        rows: The items that are asked for.
    """
    kept = (1.0 - shrinkage) * models.variances
    scale = 1.0 / np.sqrt(kept + shrinkage * models.variances.mean() + 1e-12)
    items, means, own = models.rows[rows] * scale, models.means * scale, codes[rows]
    weights, total = models.weights[rows], models.weights.sum()
    rest = np.maximum(models.sums[own] - weights, 1e-12)
    apart = items - means[own]
    reach = np.square(apart).sum(axis=1)
    taken = (1.0 - shrinkage) / total * weights * models.sums[own] / rest
    less = taken / np.maximum(1.0 - taken * reach, 1e-9)
    squares = np.square(items).sum(axis=1)[:, None] - 2 * items @ means.T + np.square(means).sum(axis=1)
    along = (apart * items).sum(axis=1)[:, None] - apart @ means.T
    squares += less[:, None] * np.square(along)
    by_chance = float((models.variances * np.square(scale)).sum())
    squares -= by_chance / np.maximum(models.sums, 1e-12)
    here = np.arange(len(rows))
    grown = models.sums[own] / rest
    squares[here, own] = np.square(grown) * reach * (1.0 + less * reach) - by_chance / rest
    return -0.5 * squares
