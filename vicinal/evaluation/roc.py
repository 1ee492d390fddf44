"""Rates of a threshold on the similarity: the curves ROC and DET, their area, and what they say at one point.

Two items are called the same where their similarity is at least the threshold. FAR, the rate of false accepts, is the
share of the pairs of two classes that is called the same; TAR, that of true accepts, the share of the pairs of one
class; FRR = 1 - TAR.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from vicinal.evaluation.pair_similarities import PairCounts

__all__ = ["Curve", "OperatingPoint", "area", "best_accuracy", "curve_of", "equal_error", "true_accepts_at"]


class Curve(NamedTuple):
    """The points of ROC and DET from the highest threshold to the lowest; those on straight pieces are left out.

    Attributes:
        thresholds: Falling from infinity, where nothing is accepted.
        false_accepts: The FAR at each.
        true_accepts: The TAR at each; 1 - TAR over FAR is the curve DET.
    """

    thresholds: Float64[np.ndarray, " t"]
    false_accepts: Float64[np.ndarray, " t"]
    true_accepts: Float64[np.ndarray, " t"]


class OperatingPoint(NamedTuple):
    """A score and the threshold that it belongs to."""

    score: float
    threshold: float


def area(counts: PairCounts) -> float:
    """The area under ROC: how often a pair of one class is more alike than one of two; ties count half.

    Example:
        >>> area(PairCounts(np.array([0.1, 0.5, 0.9]), np.array([0, 1, 1]), np.array([2, 1, 0])))
        0.9166666666666666
    """
    below = np.cumsum(counts.negatives) - counts.negatives
    won = counts.positives.astype(np.float64) @ (below + counts.negatives / 2)
    return float(won / (float(counts.positives.sum()) * float(counts.negatives.sum())))


def curve_of(counts: PairCounts) -> Curve:
    """ROC, with the point where nothing is accepted; points on a straight line between others are left out.

    Example:
        >>> curve_of(PairCounts(np.array([0.1, 0.5, 0.9]), np.array([0, 1, 1]), np.array([2, 1, 1]))).true_accepts
        array([0., 1., 1.])
    """
    thresholds, false, true = counts.accepted
    turns = np.ones(len(false), dtype=bool)
    turns[1:-1] = (np.diff(false, 2) != 0) | (np.diff(true, 2) != 0)
    return Curve(thresholds[turns], (false / false[-1])[turns], (true / true[-1])[turns])


def true_accepts_at(counts: PairCounts, false_accepts: float) -> OperatingPoint:
    """The greatest TAR of a threshold whose FAR is no more than this, and the lowest such threshold."""
    thresholds, false, true = counts.accepted
    place = int(np.searchsorted(false, false_accepts * float(false[-1]) * (1 + 1e-12), side="right")) - 1
    return OperatingPoint(float(true[place] / true[-1]), _finite(thresholds, place))


def equal_error(counts: PairCounts) -> OperatingPoint:
    """The EER, where FAR and FRR are equal: on the straight line between the two points of ROC around it."""
    thresholds, false, true = counts.accepted
    accepted, rejected = false / false[-1], 1 - true / true[-1]
    place = int(np.argmax(accepted >= rejected))
    gap, after = rejected[place - 1] - accepted[place - 1], accepted[place] - rejected[place]
    way = gap / (gap + after)
    return OperatingPoint(float((1 - way) * accepted[place - 1] + way * accepted[place]), _finite(thresholds, place))


def best_accuracy(counts: PairCounts) -> OperatingPoint:
    """The greatest share of right answers where pairs of one class and of two count the same: (TAR + 1 - FAR) / 2."""
    thresholds, false, true = counts.accepted
    right = (true / true[-1] + 1 - false / false[-1]) / 2
    place = int(np.argmax(right))
    return OperatingPoint(float(right[place]), _finite(thresholds, place))


def _finite(thresholds: Float64[np.ndarray, " t"], place: int) -> float:
    """The threshold there; for the one that accepts nothing the number above all similarities."""
    return float(np.nextafter(thresholds[1], np.inf) if place == 0 else thresholds[place])
