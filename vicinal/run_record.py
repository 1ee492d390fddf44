"""What is written down of a run: its scores, its record, and the card of its embedder."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from vicinal.data import Dataset, Split
from vicinal.embedder import Card, Embedder
from vicinal.evaluation import class_distances, covering_radius, spectral_decay
from vicinal.machine import peak_memory_mib
from vicinal.recipe import SCORES, Recipe
from vicinal.results.item_scores import queries_by_class, score_test_items, scores_by_class
from vicinal.results.record import Record
from vicinal.results.run import EmbeddedItems, Run, RunFiles
from vicinal.results.run_notes import budget_note
from vicinal.training.engine import Outcome
from vicinal.training.frozen import Trainee

__all__ = ["Fitted", "embedded_items", "encode", "facts_of_test", "keep_run", "record_of", "validation_scores"]

PACKAGES = ("vicinal", "torch", "numpy", "lightning-fabric")


@final
@dataclass(frozen=True)
class Fitted:
    """What training leaves: the embedder with its best weights, the model that was trained, and how it went."""

    embedder: Embedder
    model: Trainee
    outcome: Outcome
    identity: str
    instances: tuple[Mapping[str, float], ...]
    notes: tuple[str, ...]
    files: RunFiles | None
    writes: bool  # whether this process is the one that does


def encode(model: Trainee, data: Dataset) -> npt.NDArray[np.float32]:
    """Embed items by an engine that no measurement chooses: a run that was resumed then has the same scores."""
    return model.encode(data, engine="folded")


def embedded_items(model: Trainee, data: Dataset) -> EmbeddedItems:
    """Embed items, with who is searched for and who is searched in."""
    return EmbeddedItems(encode(model, data), data.labels, _search_roles(data))


def validation_scores(model: Trainee, data: Dataset, recipe: Recipe) -> dict[str, float]:
    """Score a model on the validation classes."""
    items = embedded_items(model, data)
    # Sets of labels belong together by the rule that the loss trains by.
    rule = {"overlap": recipe.loss_options.get("overlap", 0.0)} if data.has_sets else {}
    scores = score_test_items(items, model.distance, full_ranking=False, draws=0, **rule)
    chosen = {name: scores[name] for name in SCORES}
    if recipe.ccp is not None:
        geometry = {"distance": model.distance}
        chosen["covering radius"] = covering_radius(items.embeddings, items.labels, **geometry)
        chosen["inter-class distance"] = class_distances(items.embeddings, items.labels, **geometry)[0]
    return chosen


def _search_roles(data: Dataset) -> npt.NDArray[Any] | None:
    """Return who is searched for and who is searched in; None where all items are both."""
    apart = data.roles is not None and {"query", "gallery"} <= set(data.roles.tolist())
    return np.asarray(data.roles, dtype=np.str_) if apart else None


def facts_of_test(items: EmbeddedItems, test: Dataset, distance: str, ks: Sequence[int]) -> dict[str, Any]:
    """Return what a record says of the test classes."""
    scores = score_test_items(items, distance, k=ks, full_ranking=False, draws=0)
    classes = len(test.class_names)
    return {
        "test": dict(scores.overall) | {"spectral decay": spectral_decay(items.embeddings)},
        "gallery": items.roles is not None,
        "classes": test.class_names,
        "per_class": {name: scores_by_class(scores, name, classes) for name in SCORES},
        "queries": queries_by_class(scores, classes),
    }


def record_of(fitted: Fitted, recipe: Recipe, split: Split, facts: Mapping[str, Any]) -> Record:
    """Return the record of a finished run; without validation classes nothing was chosen."""
    outcome = fitted.outcome
    chosen = {name: value for name, value in outcome.best_scores.items() if name in SCORES}
    known = {
        "name": recipe.method,
        "status": "done",
        "recipe": recipe.model_dump(mode="json") | {"data": recipe.data or split.train.name},
        "split": fitted.identity,
        "selected_on": "last" if split.chooser is None else "test" if recipe.select_on_test else "validation",
        "distance": fitted.model.distance,
        "threads": torch.get_num_threads(),
        "validation": {} if recipe.select_on_test else chosen,
        "steps": outcome.steps,
        "images": outcome.images,
        "best_step": outcome.best_step,
        "curve": () if recipe.select_on_test else outcome.curve,
        "seconds": outcome.seconds,
        "peak_memory_mib": peak_memory_mib(),
        "instances": [
            {name: value if np.isfinite(value) else None for name, value in instance.items()}
            for instance in fitted.instances
        ],
        "code": recipe.code(),
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
    }
    little = budget_note(outcome.images, split.train) if outcome.steps else None
    known["notes"] = (*known.get("notes", ()), *fitted.notes, *([] if little is None else [little]))
    return Record(**{"key": recipe.key(known.get("data", ""), known["name"]), **known})


def keep_run(fitted: Fitted, split: Split, record: Record, *, keep_model: bool = True) -> None:
    """Give the embedder its card, and write model and record where there is a folder."""
    trained = record.role != "baseline"
    backbone, method = record.network[0], f"trained with {record.method}" if trained else f"({record.name})"
    fitted.embedder.card = Card(
        title=f"{backbone} {method} on {split.train.name}",
        data={
            "dataset": split.train.name,
            "classes": len(split.train.classes),
            "items": len(split.train),
            "protocol": split.protocol,
            "split": record.split,
        },
        recipe=Recipe.of(record.recipe).toml() if trained else "",
        scores={f"{name} (validation)": value for name, value in record.validation.items()}
        | {f"{name} (test)": record.test[name] for name in SCORES if name in record.test},
        trained_on=tuple(split.train.class_names[code] for code in split.train.classes) if trained else (),
    )
    if fitted.files is None or not fitted.writes:
        return
    if keep_model:
        fitted.embedder.save(fitted.files.model)
    Run(record, fitted.files.folder).save_record()
