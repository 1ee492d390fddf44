"""Validation of a run: scores of held-out classes among distractors, per class, and the selection that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from vicinal.data import Dataset, Split
from vicinal.evaluation import class_distances, covering_radius
from vicinal.runs.recipe import SCORES, Recipe
from vicinal.runs.record import Record
from vicinal.runs.run import EmbeddedItems, queries_by_class, score_test_items, scores_by_class
from vicinal.stats.choice import choose_setting, mean_and_error
from vicinal.training.frozen import Trainee
from vicinal.training.state import Hook, TrainingState

__all__ = [
    "Validated",
    "Validation",
    "choose_by_folds",
    "distractors_of",
    "embedded_items",
    "encode",
    "gain_over_folds",
    "recorded",
    "validation_scores",
]

MOST_CLASSES = (
    200  # with more validation classes, a choice among steps is hardly optimistic, and records would be large
)
# Distractors per validation item of a network that is trained, whose embeddings are computed in every evaluation.
DISTRACTORS_PER_ITEM = 3


def encode(model: Trainee, data: Dataset) -> npt.NDArray[np.float32]:
    """Embed items with a fixed engine, so that a resumed run has the same scores."""
    return model.encode(data, engine="folded")


def embedded_items(model: Trainee, data: Dataset) -> EmbeddedItems:
    """Embed items, with the roles of queries and gallery."""
    roles = np.asarray(data.roles, dtype=np.str_) if data.has_gallery else None
    return EmbeddedItems(encode(model, data), data.labels, roles)


class Validated(NamedTuple):
    """Scores of validation classes.

    Attributes:
        scores: Mean scores over all queries.
        by_class: Score that chooses steps, for each class; None for a class without queries.
        queries: Number of scored queries of each class.
    """

    scores: dict[str, float]
    by_class: tuple[float | None, ...]
    queries: tuple[int, ...]


def validation_scores(model: Trainee, data: Dataset, recipe: Recipe, distractors: Dataset | None = None) -> Validated:
    """Score a model on validation classes.

    Args:
        model: Model to score.
        data: Validation items.
        recipe: Recipe of the run, for its score and its rule for sets of labels.
        distractors: Items of other classes to add to the searched items.
    """
    items = embedded_items(model, data)
    # Sets of labels match by the rule that the loss uses.
    rule = {"overlap": recipe.loss_options.get("overlap", 0.0)} if data.has_sets else {}
    others = None if distractors is None else encode(model, distractors)
    scores = score_test_items(items, model.distance, distractors=others, also=[], intervals=None, **rule)
    chosen = {name: scores[name] for name in SCORES}
    if recipe.ccp is not None:
        geometry = {"distance": model.distance}
        chosen["covering radius"] = covering_radius(items.embeddings, items.labels, **geometry)
        chosen["inter-class distance"] = class_distances(items.embeddings, items.labels, **geometry)[0]
    if data.has_sets:
        return Validated(chosen, (), ())
    classes = len(data.class_names)
    return Validated(chosen, scores_by_class(scores, recipe.training.score, classes), queries_by_class(scores, classes))


def distractors_of(split: Split, recipe: Recipe, *, cheap: bool) -> Dataset | None:
    """Return the training items to add to the items that validation queries are searched in.

    Args:
        split: Training and validation classes.
        recipe: Recipe of the run, for its seed.
        cheap: Whether embedding an item costs almost nothing; otherwise some classes are drawn, up to
            `DISTRACTORS_PER_ITEM` times the validation items.
    """
    data = None if recipe.select_on_test else split.distractors
    if data is None or cheap or split.validation is None:
        return data
    order = np.random.default_rng(recipe.training.seed).permutation(data.classes)
    sizes = np.bincount(data.labels, minlength=len(data.class_names))[order].cumsum()
    count = int(np.searchsorted(sizes, DISTRACTORS_PER_ITEM * len(split.validation), side="right"))
    return data.of_classes(np.sort(order[: max(1, count)]))


@final
class Validation(Hook):
    """Scores the validation classes of a run, and keeps the scores of each class at every evaluation.

    Args:
        data: Validation items.
        recipe: Recipe of the run.
        distractors: Items of other classes to add to the searched items.
    """

    def __init__(self, data: Dataset, recipe: Recipe, distractors: Dataset | None) -> None:
        self._data, self._recipe, self._distractors = data, recipe, distractors
        self._latest = Validated({}, (), ())
        self._curve: list[tuple[float | None, ...]] = []
        self._queries: tuple[int, ...] = ()

    def score(self, model: Trainee) -> dict[str, float]:
        """Return the scores of a model, as the training loop takes them."""
        self._latest = validation_scores(model, self._data, self._recipe, self._distractors)
        return self._latest.scores

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> None:
        """Keep the scores of each class."""
        if self._latest.queries:  # sets of labels have no classes, and only the first process scores
            self._curve.append(self._latest.by_class)
            self._queries = self._latest.queries

    def state_dict(self) -> dict[str, Any]:
        """Return the scores so far."""
        return {"curve": [list(row) for row in self._curve], "queries": list(self._queries)}

    def load_state_dict(self, values: dict[str, Any], state: TrainingState) -> None:
        """Continue with the scores of an interrupted run."""
        self._curve = [tuple(row) for row in values["curve"]]
        self._queries = tuple(values["queries"])

    def recorded(self) -> dict[str, Any]:
        """Return the fields of a record."""
        return recorded(self._data.class_names, self._queries, self._curve)


def recorded(classes: Sequence[str], queries: Sequence[int], curve: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """Return the fields of a record on its validation classes; empty without classes or with too many of them.

    Args:
        classes: Names of the classes.
        queries: Number of scored queries of each class.
        curve: Score of each class at every evaluation.
    """
    scored = [index for index, count in enumerate(queries) if count]
    if not scored or not curve or len(scored) > MOST_CLASSES:
        return {}
    counts = [queries[index] for index in scored]
    rows = np.array([[row[index] for index in scored] for row in curve], dtype=np.float64)
    return {
        "validation_classes": tuple(classes[index] for index in scored),
        "validation_queries": tuple(counts),
        "validation_per_class": tuple(choose_setting({"": rows}, np.array(counts)).by_class.tolist()),
        "class_curve": tuple(tuple(row) for row in rows.round(6).tolist()),
    }


class ChosenByFolds(NamedTuple):
    """A setting that the validation classes of all folds choose.

    Attributes:
        setting: The chosen setting.
        scores: Mean score of each setting.
        facts: Fields of the record of the run that is fitted with them on all training classes.
    """

    setting: Any
    scores: dict[Any, float]
    facts: dict[str, Any]


def choose_by_folds(tried: Mapping[Any, Sequence[Record]], score: str) -> ChosenByFolds | None:
    """Choose a setting by all validation classes; None if no setting has a record of every fold.

    Settings are compared at their last step. Training items, which are among the searched ones, are fitted ever more
    closely, so that the best step on validation classes comes too early.

    Args:
        tried: Records of all folds for each setting; the first setting is preferred.
        score: Name of the score that chooses.
    """
    folds = max(map(len, tried.values()), default=0)
    complete = {
        setting: records
        for setting, records in tried.items()
        if len(records) == folds and all(record.status == "done" and record.class_curve for record in records)
    }
    if not complete:
        return None
    first = next(iter(complete.values()))
    queries = np.array([count for record in first for count in record.validation_queries])
    last = {
        setting: np.array([[value for record in records for value in record.class_curve[-1]]], dtype=np.float64)
        for setting, records in complete.items()
    }
    chosen = choose_setting(last, queries)
    weights, records = queries / queries.sum(), complete[chosen.setting]
    sizes = [sum(record.validation_queries) for record in records]
    means = {
        name: float(np.average([record.validation[name] for record in records], weights=sizes))
        for name in records[0].validation
    }
    curves = [np.array([value for _, value in record.curve]) for record in records]
    images = [seen for seen, _ in records[0].curve]
    facts = {
        "selected_on": "validation",
        "validation": means | {score: float(chosen.by_class @ weights)},
        "validation_classes": tuple(name for record in first for name in record.validation_classes),
        "validation_queries": tuple(queries.tolist()),
        "validation_per_class": tuple(chosen.by_class.tolist()),
        "curve": tuple(zip(images, np.average(curves, axis=0, weights=sizes).tolist(), strict=True)),
    }
    scores = {setting: float(row[0] @ weights) for setting, row in last.items()}
    return ChosenByFolds(chosen.setting, scores, facts)


def gain_over_folds(records: Sequence[Record], others: Sequence[Record]) -> tuple[float, float] | None:
    """Return how much better some runs score than others in all folds, and the standard error over classes.

    Args:
        records: Runs of all folds.
        others: Runs that they are compared with, of the same folds.
    """
    if not all(record.status == "done" and record.class_curve for record in (*records, *others)):
        return None
    last, former = (
        np.array([value for record in runs for value in record.class_curve[-1]], dtype=np.float64)
        for runs in (records, others)
    )
    queries = np.array([count for record in records for count in record.validation_queries])
    return mean_and_error(last - former, queries)
