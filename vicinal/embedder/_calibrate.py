"""Calibrate an embedder: choose the threshold for "same" on classes that it was not trained on."""

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
    """Choose the threshold of an embedder, with a guarantee on the rate of false matches for new classes.

    The guarantee and its proof are in `vicinal.evaluation.threshold`. To keep the result:
    `embedder.calibration = calibrate(embedder, data)`, then `embedder.save(folder)`.

    Args:
        embedder: Embedder to calibrate.
        data: Items of classes that it was not trained on; those that it was trained on are left out with a warning.
        false_matches: Rate to guarantee: share of the pairs of items of two new classes that are called the same.
        confidence: Probability, over the classes of the data, that the guarantee holds.
        progress: Whether to show a bar on standard error.

    Raises:
        InputError: If there are too few classes for the guarantee; the message says how many are needed.
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
    """Return the calibration of a threshold, with the identity of the embedder that the similarities are from."""
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
    """Return the classes of a dataset that an embedder was not trained on, according to its card.

    Classes are compared by name. Names that are numbers are comparable only within the same dataset.

    Raises:
        InputError: If there are none.
    """
    trained_on = set(embedder.card.trained_on)
    if embedder.card.data.get("dataset") != data.name:
        trained_on = {name for name in trained_on if not name.isdecimal()}
    seen = [code for code in data.classes if data.class_names[code] in trained_on]
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
