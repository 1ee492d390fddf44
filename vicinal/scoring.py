"""Scores of an embedder on a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.data import Dataset
from vicinal.embedder import Embedder
from vicinal.evaluation import Scores
from vicinal.evaluation import evaluate as evaluate_embeddings

__all__ = ["evaluate", "score_embedder", "score_embeddings"]


def score_embedder(embedder: Embedder, data: Dataset, *, progress: bool = False, **options: Any) -> Scores:
    """Embed a dataset and score the embeddings; queries are searched in the gallery where there is one.

    Args:
        embedder: Trained.
        data: Items of classes that it has not seen, as a rule.
        progress: Whether to show progress.
        **options: Options of `vicinal.evaluation.evaluator`.
    """
    return score_embeddings(embedder.encode(data, progress=progress), data, **{"distance": embedder.distance, **options})


def score_embeddings(embeddings: npt.NDArray[np.float32], data: Dataset, **options: Any) -> Scores:
    """Score the embeddings of a dataset's items; queries are searched in the gallery where there is one.

    Args:
        embeddings: One row per item.
        data: The items.
        **options: Options of `vicinal.evaluation.evaluator`.
    """
    roles = data.roles
    if roles is None or not {"query", "gallery"} <= set(roles.tolist()):
        return evaluate_embeddings(embeddings, data.labels, **options)
    query, gallery = roles == "query", roles == "gallery"
    return evaluate_embeddings(
        embeddings[query],
        data.labels[query],
        gallery=embeddings[gallery],
        gallery_labels=data.labels[gallery],
        **options,
    )


def evaluate(what: Any, labels: Any, **options: Any) -> Scores:
    """Score embeddings against labels, or an embedder on a dataset.

    Args:
        what: Embeddings [n, d], or an `Embedder`.
        labels: Their labels, or a `Dataset`.
        **options: Options of `vicinal.evaluation.evaluator`.

    Example:
        >>> round(evaluate(np.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1])["MAP@R"], 3)
        1.0
    """
    if isinstance(what, Embedder):
        return score_embedder(what, labels, **options)
    return evaluate_embeddings(what, labels, **options)
