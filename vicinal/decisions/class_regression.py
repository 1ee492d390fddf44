"""How likely each class is for an item that is left out: multinomial regressions on the other items."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.optimize import minimize

__all__ = ["left_out_log_likelihoods"]

FOLDS = 5
STRENGTH = 3.0  # of an item against the prior of small coefficients, for rows whose usual length is 1
ITERATIONS = 10  # along axes that were made alike; an order of items does not need the last digits


def left_out_log_likelihoods(
    rows: Float64[np.ndarray, "n d"], codes: Int64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"]
) -> Float32[np.ndarray, "n c"]:
    """Return the log probability of each class, by a regression on the four fifths that an item is not in.

    The items of a class are dealt to the fifths in turn, so that each fifth has its share of every class.

    Args:
        rows: One per item, centred.
        codes: The class of each, from 0 on.
        weights: How much each counts; a label that is probably wrong counts little.
    """
    many = int(codes.max()) + 1
    fold = np.empty(len(codes), dtype=np.int64)
    fold[np.argsort(codes, kind="stable")] = np.arange(len(codes)) % FOLDS
    scale = float(np.sqrt(np.square(rows).sum(axis=1).mean())) or 1.0
    squares, axes = np.linalg.eigh(rows.T @ rows / scale**2)
    # Along an axis the loss of a class bends by p (1 - p) of what varies there, about 1 / (2 classes), and the prior by
    # 1 / STRENGTH: in units in which they bend alike few steps are needed.
    widths = 1.0 / np.sqrt(0.5 / many * np.maximum(squares, 0.0) + 1.0 / STRENGTH)
    turned = (rows @ axes * (widths / scale)).astype(np.float32)
    prior = (np.square(widths) / STRENGTH).astype(np.float32)[:, None]
    likely = np.empty((len(codes), many), dtype=np.float32)
    for number in range(FOLDS):
        rest, left_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        coefficients = _fit(turned[rest], codes[rest], weights[rest].astype(np.float32), prior, many)
        likely[left_out] = _log_softmax(turned[left_out] @ coefficients[:-1] + coefficients[-1])
    return likely


def _fit(
    rows: Float32[np.ndarray, "n d"],
    codes: Int64[np.ndarray, " n"],
    weights: Float32[np.ndarray, " n"],
    prior: Float32[np.ndarray, "d 1"],
    classes: int,
) -> Float32[np.ndarray, "d1 c"]:
    """Return the coefficients of each class, and in a last line its constant."""
    here, shape = np.arange(len(rows)), (rows.shape[1] + 1, classes)

    def loss(values: Float64[np.ndarray, " v"]) -> tuple[float, Float64[np.ndarray, " v"]]:
        coefficients = values.reshape(shape).astype(np.float32)
        likely = _log_softmax(rows @ coefficients[:-1] + coefficients[-1])
        total = -float(np.dot(weights, likely[here, codes]))
        np.exp(likely, out=likely)
        likely[here, codes] -= 1.0
        likely *= weights[:, None]
        slope = np.concatenate([rows.T @ likely, likely.sum(axis=0, keepdims=True)])
        pull = prior * coefficients[:-1]
        slope[:-1] += pull
        return total + 0.5 * float((pull * coefficients[:-1]).sum()), slope.ravel().astype(np.float64)

    start = np.zeros(shape)
    start[-1] = np.log(np.bincount(codes, weights, minlength=classes) + 1e-3)
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return found.x.reshape(shape).astype(np.float32)


def _log_softmax(scores: Float32[np.ndarray, "n c"]) -> Float32[np.ndarray, "n c"]:
    scores = scores - scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
