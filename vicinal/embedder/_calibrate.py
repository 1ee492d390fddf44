"""Calibrate an embedder: choose the threshold for "same" on classes that it was not trained on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from vicinal._util.warnings import warn_caller
from vicinal.data import Dataset
from vicinal.data.dataset import need_one_label
from vicinal.embedder.calibration import Calibration
from vicinal.errors import InputError
from vicinal.evaluation.threshold import Target, choose_threshold
from vicinal.neighbours.inputs import ArrayLike, Labels

if TYPE_CHECKING:
    from vicinal.embedder.embedder import Embedder

__all__ = ["calibrate", "calibration_on", "unseen_classes"]


def calibrate(
    embedder: Embedder,
    data: Dataset,
    *,
    false_matches: float = 0.01,
    level: str = "auto",
    per: str = "classes",
    confidence: float = 0.95,
    progress: bool = False,
) -> Calibration:
    """Choose the threshold of an embedder for a rate of false matches on new classes.

    The levels and their proofs are in `vicinal.evaluation.threshold`. To keep the result:
    `embedder.calibration = calibrate(embedder, data)`, then `embedder.save(folder)`.

    Args:
        embedder: Embedder to calibrate.
        data: Items of classes that it was not trained on; those that it was trained on are left out with a warning.
        false_matches: Share of the pairs of items of two new classes that may reach the threshold.
        level: Strength of the statement about this rate: "estimate", "bound", "average" or "guarantee"; "auto" takes
            the strongest useful one that the number of classes supports.
        per: "classes" if every pair of classes counts the same, "items" if every pair of items does.
        confidence: Confidence of a bound, a guarantee or the interval of an estimate.
        progress: Whether to show a bar on standard error.

    Raises:
        InputError: If there are too few classes for the level; the message says how many are needed.
    """
    need_one_label(data, "A threshold")
    target = Target(false_matches, level, per, confidence)
    unseen = unseen_classes(embedder, data)
    target.level_for(np.unique(unseen.labels, return_counts=True)[1])  # before anything is embedded
    return calibration_on(embedder, embedder.encode(unseen, progress=progress), unseen.labels, target)


def calibration_on(embedder: Embedder, embeddings: ArrayLike, labels: Labels, target: Target) -> Calibration:
    """Choose the threshold of an embedder on embeddings that it has made."""
    chosen = choose_threshold(embeddings, labels, **asdict(target), distance=embedder.distance)
    return Calibration(**asdict(chosen), embedder=embedder.identity())


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
