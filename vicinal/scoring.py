"""Scores of an embedder on a dataset."""

from __future__ import annotations

from typing import Any

from vicinal.data import Dataset
from vicinal.embedder import Embedder
from vicinal.evaluation import Scores
from vicinal.evaluation import evaluate as evaluate_embeddings

__all__ = ["evaluate", "score_embedder"]


def score_embedder(embedder: Embedder, data: Dataset, *, progress: bool = False, **options: Any) -> Scores:
    """Embed a dataset and score the embeddings; queries are searched in the gallery where there is one.

    Args:
        embedder: Trained.
        data: Items of classes that it has not seen, as a rule.
        progress: Whether to show progress.
        **options: Options of `vicinal.evaluation.evaluate`.
    """
    options = {"metric": embedder.metric, **options}
    roles = set() if data.roles is None else set(data.roles.tolist())
    if {"query", "gallery"} <= roles:
        query, gallery = data.with_role("query"), data.with_role("gallery")
        return evaluate_embeddings(
            embedder.encode(query, progress=progress),
            query.labels,
            gallery=embedder.encode(gallery, progress=progress),
            gallery_labels=gallery.labels,
            **options,
        )
    return evaluate_embeddings(embedder.encode(data, progress=progress), data.labels, **options)


def evaluate(what: Any, labels: Any, **options: Any) -> Scores:
    """Score embeddings against labels, or an embedder on a dataset.

    Args:
        what: Embeddings [n, d], or an `Embedder`.
        labels: Their labels, or a `Dataset`.
        **options: Options of `vicinal.evaluation.evaluate`.

    Example:
        >>> round(evaluate(np.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1])["MAP@R"], 3)
        1.0
    """
    if isinstance(what, Embedder):
        return score_embedder(what, labels, **options)
    return evaluate_embeddings(what, labels, **options)
