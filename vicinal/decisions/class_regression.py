"""How likely each class is for an item that is left out: logistic regressions on the other items."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float64, Int64

__all__ = ["left_out_likelihoods"]

FOLDS = 5
STRENGTH = 10.0  # of the data against the prior of small weights, for rows whose usual length is 1
ITERATIONS = 200


def left_out_likelihoods(
    rows: Float64[np.ndarray, "n d"], codes: Int64[np.ndarray, " n"], weights: Float64[np.ndarray, " n"]
) -> Float64[np.ndarray, "n c"]:
    """Return the probability of each class, by a regression on the four fifths that an item is not in.

    The items of a class are dealt to the fifths in turn, so that each fifth has its share of every class. A class that
    has no item among the other four has the probability 0.

    Args:
        rows: One per item, centred.
        codes: The class of each, from 0 on.
        weights: How much each counts; a label that is probably wrong counts little.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    order = np.argsort(codes, kind="stable")
    fold = np.empty(len(codes), dtype=np.int64)
    fold[order] = np.arange(len(codes)) % FOLDS
    scale = float(np.sqrt(np.square(rows).sum(axis=1).mean())) or 1.0
    scaled = (rows / scale).astype(np.float32)
    likely = np.zeros((len(codes), int(codes.max()) + 1))
    for number in range(FOLDS):
        rest, left_out = fold != number, np.flatnonzero(fold == number)
        known = np.unique(codes[rest])
        if len(known) < 2:
            likely[np.ix_(left_out, known)] = 1.0
            continue
        model = LogisticRegression(C=STRENGTH, max_iter=ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # an order of items does not need the last digits
            model.fit(scaled[rest], codes[rest], sample_weight=weights[rest])
        likely[np.ix_(left_out, model.classes_)] = model.predict_proba(scaled[left_out])
    return likely
