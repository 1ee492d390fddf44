"""Audit of a run: the distance of its loss, and what this proves about the items it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vicinal.data import Dataset, load
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError
from vicinal.evaluation import evaluate
from vicinal.runs.run import Run
from vicinal.spaces.any_distance import evaluate_by
from vicinal.spaces.axioms import MetricVerdict
from vicinal.spaces.distances import audit
from vicinal.spaces.label_metric import Bounds, LabelMetric, bounds, label_metric_of

__all__ = ["RunAudit", "audit_run", "penultimate"]


# Embedder of the features before the last layer of a classifier.


def penultimate(embedder: Embedder) -> Embedder:
    """Return an embedder without the last linear map; the two share their backbone.

    Args:
        embedder: Embedder, usually one whose embeddings are class probabilities: for unseen classes these are less
            informative than the features before the last layer.

    Example:
        >>> classifier = Embedder("convnet", dim=10, normalisation="softmax")
        >>> penultimate(classifier).dim
        256
    """
    features = Embedder(embedder.backbone, dim=None, pooling=embedder.head.pooling, transform=embedder.transform).eval()
    features.card = embedder.card
    return features


LABEL_LOSSES = ("metric_cross_entropy", "weak_metric_cross_entropy")


@final
@dataclass(frozen=True, eq=False)
class RunAudit:
    """Audit of the distance of a run, and of its items.

    Attributes:
        verdict: Audit of the distance.
        metric: The distance as a function of class probabilities; None for other losses.
        bounds: Bounds that the distance proves for the training items; None for other losses.
        items: Class probabilities of the training items; None for other losses.
        scores: MAP@R and P@1, each for "seen" or "new" classes and for a kind of neighbours.
    """

    verdict: MetricVerdict
    metric: LabelMetric | None = None
    bounds: Bounds | None = None
    items: Float[Tensor, "n c"] | None = None
    scores: tuple[tuple[str, str, float, float], ...] = ()

    def __str__(self) -> str:
        if self.bounds is None:
            return f"{self.verdict}\n\nBounds are for losses on class probabilities: {', '.join(LABEL_LOSSES)}."
        lines = [
            str(self.verdict),
            "",
            "Training items",
            str(self.bounds),
            "",
            "neighbours by                    MAP@R    P@1",
        ]
        lines += [
            f"{classes + ' classes, ' + by:<30} {score:8.4f} {first:6.4f}" for classes, by, score, first in self.scores
        ]
        return "\n".join(lines)


def audit_run(
    folder: str | Path,
    *,
    data: str | None = None,
    items: int = 2000,
    triples: int = 3_000_000,
    seed: int = 0,
    allow_code: Sequence[str] = (),
) -> RunAudit:
    """Audit the distance of a run's loss and, for a loss on class probabilities, what it proves about the items.

    Args:
        folder: Folder written by `vicinal train` or `fit(folder=...)`.
        data: Name or path of the data; by default that of the run.
        items: Number of random items of the training and of the test classes to compare with each other; the bounds
            are those of all training items.
        triples: Smallest number of triples to search.
        seed: Seed of the random triples and items.
        allow_code: Modules or files whose code the run may name.
    """
    run = Run.open(folder, allow_code=allow_code)
    recipe = run.recipe
    if recipe.loss not in LABEL_LOSSES:
        return RunAudit(audit(recipe.loss, triples=triples, seed=seed))
    verdict = audit(recipe.loss, triples=triples, seed=seed, **recipe.loss_options)
    metric = label_metric_of(recipe.loss, recipe.loss_options)
    embedder = run.embedder()
    train, test = _sides(run, data)
    probabilities = embedder.encode(train)
    proved = bounds(metric, probabilities, torch.from_numpy(train.labels), compare=items, seed=seed)
    scores = [
        (side, by, score, first)
        for side, part in (("seen", train), ("new", test))
        if part is not None
        for by, score, first in _scores(embedder, metric, _some(part, items, seed))
    ]
    return RunAudit(verdict, metric, proved, torch.from_numpy(probabilities), tuple(scores))


def _sides(run: Run, data: str | None) -> tuple[Dataset, Dataset | None]:
    """Return the training and test classes of a run, after checking that they have not changed since."""
    name = data or run.record.dataset
    try:
        whole = load(name, skip_bad=run.recipe.skip_bad, allow_code=run.trust.sources)
    except (InputError, DataError, ValueError) as error:
        raise InputError(
            f"Cannot open the data of {run.folder} by the name {name!r}; pass it with --data. ({error})"
        ) from None
    sides = run.recipe.split(whole)
    # `fit` knows only its split, and records the hash of its views.
    if run.record.split not in (sides.hash(data=whole.hash()), sides.hash(), sides.without_test().hash()):
        raise InputError(
            f"{whole.name} is not the data that {run.folder} was trained on, or it has changed: the hash of the split "
            "differs. Pass the data of the run with --data."
        )
    return sides.train, sides.test


def _scores(embedder: Embedder, metric: LabelMetric, part: Dataset) -> list[tuple[str, float, float]]:
    probabilities = embedder.encode(part)
    features = penultimate(embedder).encode(part)
    by_neighbours = {
        "label distance": evaluate_by(metric, probabilities, part.labels, confidence=None),
        "cosine": evaluate(probabilities, part.labels, also=[], intervals=None),
        "features": evaluate(features, part.labels, also=[], intervals=None),
    }
    return [(by, scores["MAP@R"], scores["P@1"]) for by, scores in by_neighbours.items()]


def _some(part: Dataset, items: int, seed: int) -> Dataset:
    if len(part) <= items:
        return part
    return part.subset(np.sort(np.random.default_rng(seed).permutation(len(part))[:items]))
