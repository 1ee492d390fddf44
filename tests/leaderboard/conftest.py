"""Journals without training: records from scores by class, or from embeddings of test items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal.runs import EmbeddedItems, Journal, Record, Run, score_test_items
from vicinal.runs.recipe import Recipe
from vicinal.runs.run import queries_by_class, scores_by_class

SCORES = ("P@1", "P@R", "MAP@R")


def _add_run(
    folder: Path,
    name: str = "triplet",
    *,
    seed: int = 0,
    fold: int | None = None,
    classes: Sequence[float | None] | None = None,
    items: EmbeddedItems | None = None,
    status: str = "done",
    validation: float | None = 0.5,
    recipe: dict[str, Any] | None = None,
    **facts: Any,
) -> Record:
    """Add a run to a journal: with the scores of its test classes, or with test items that are kept and scored."""
    made = Recipe.of({"loss": name.split(" + ")[0], "data": "digits", "dim": 8, "fold": fold, **(recipe or {})})
    made = made.changed(seed=seed)
    distance = "cosine" if made.normalisation == "sphere" else "euclidean"
    backbone, dim = made.backbone, made.dim
    key = f"{name}-{backbone}-{dim}-{seed}-{fold}-{made.protocol}-{made.training.steps}-{status}".replace(" ", "")
    values: dict[str, Any] = {
        "key": key,
        "name": name,
        "status": status,
        "error": "It broke." if status == "failed" else None,
        "recipe": made.model_dump(mode="json"),
        "distance": distance,
    }
    if status == "done":
        values |= {"data": "content", "split": "s", "steps": 10, "best_step": 10, "seconds": 1.0 + seed}
        values["validation"] = {} if validation is None else {"MAP@R": validation}
        values |= _of_items(items, distance) if items is not None else _of_classes(classes or (0.4, 0.5, 0.6))
    record = Record(**(values | facts))
    journal = Journal(folder)
    if items is not None:
        journal.run_folder(key).mkdir(parents=True, exist_ok=True)
        Run(record, journal.run_folder(key)).save_test_items(items)
    journal.append(record)
    return record


def _of_classes(scores: Sequence[float | None]) -> dict[str, Any]:
    known = [score for score in scores if score is not None]
    return {
        "classes": tuple(f"class {number}" for number in range(len(scores))),
        "per_class": {score: tuple(scores) for score in SCORES},
        "queries": tuple(0 if score is None else 2 for score in scores),
        "test": {score: float(np.mean(known)) for score in SCORES},
    }


def _of_items(items: EmbeddedItems, distance: str) -> dict[str, Any]:
    classes = int(items.labels.max()) + 1
    scores = score_test_items(items, distance, also=[], intervals=None)
    return {
        "classes": tuple(f"class {number}" for number in range(classes)),
        "per_class": {score: scores_by_class(scores, score, classes) for score in SCORES},
        "queries": queries_by_class(scores, classes),
        "test": dict(scores.overall),
        "gallery": items.roles is not None,
    }


@pytest.fixture(scope="session")
def add_run() -> Callable[..., Record]:
    """Add a run to the journal of a folder."""
    return _add_run
