"""Choose when two items count as the same, on classes that an embedder was not trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vicinal._util.warnings import warn_caller
from vicinal.data import Dataset
from vicinal.data.dataset import need_one_label
from vicinal.embedder.calibration import Calibration
from vicinal.errors import InputError
from vicinal.evaluation.threshold import Promise, check_promise, promise_threshold

if TYPE_CHECKING:
    from vicinal.embedder.embedder import Embedder

__all__ = ["calibrate", "calibration_of", "unseen_classes"]


def calibrate(
    embedder: Embedder,
    data: Dataset,
    *,
    false_matches: float = 0.001,
    confidence: float = 0.95,
    progress: bool = False,
) -> Calibration:
    """Choose the threshold of an embedder, with a promise about the rate of false matches on new classes.

    The promise and its proof are in `vicinal.evaluation.threshold`. To keep the result:
    `embedder.calibration = calibrate(embedder, data)`, then `embedder.save(folder)`.

    Args:
        embedder: What makes the similarities.
        data: Items of classes that it was not trained on; those that it was trained on are left out with a warning.
        false_matches: The rate to promise: of the pairs of items of two new classes, how many are called the same.
        confidence: The probability, over the classes of the data, that the promise is kept.
        progress: Whether to show a bar on standard error.

    Raises:
        InputError: Where there are too few classes to promise that; it says how many it takes.
    """
    need_one_label(data, "A threshold")
    unseen = unseen_classes(embedder, data)
    check_promise(len(unseen.classes), false_matches, confidence)  # before anything is embedded
    promise = promise_threshold(
        embedder.encode(unseen, progress=progress),
        unseen.labels,
        false_matches=false_matches,
        confidence=confidence,
        distance=embedder.distance,
    )
    return calibration_of(promise, embedder.identity())


def calibration_of(promise: Promise, embedder: str = "") -> Calibration:
    """The calibration that keeps a promise, with the identity of the embedder whose similarities it is about."""
    return Calibration(
        promise.threshold,
        promise.false_matches,
        promise.confidence,
        promise.classes,
        promise.similarities,
        promise.probabilities,
        embedder,
    )


def unseen_classes(embedder: Embedder, data: Dataset) -> Dataset:
    """The classes of a dataset that an embedder was not trained on, as far as its card knows.

    Classes are known by their names. Names that are mere numbers mean something only within one dataset.

    Raises:
        InputError: Where there are none.
    """
    known = set(embedder.card.trained_on)
    if embedder.card.data.get("dataset") != data.name:
        known = {name for name in known if not name.isdecimal()}
    seen = [code for code in data.classes if data.class_names[code] in known]
    if not seen:
        return data
    if len(seen) == len(data.classes):
        raise InputError(
            f"The embedder was trained on all {len(seen):,} classes of {data.name}; what holds on them need not hold "
            "on others: calibrate on classes that it was not trained on."
        )
    warn_caller(
        f"{len(seen):,} of the {len(data.classes):,} classes of {data.name} are left out: the embedder was trained on "
        "them.",
    )
    return data.of_classes(np.setdiff1d(data.classes, seen))
