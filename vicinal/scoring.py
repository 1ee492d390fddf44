"""Scores of embeddings, or of an embedder on a dataset."""

from __future__ import annotations

from typing import Any

from vicinal.data import Dataset
from vicinal.embedder import Embedder
from vicinal.errors import InputError
from vicinal.evaluation import Scores
from vicinal.evaluation import evaluate as evaluate_embeddings
from vicinal.results.run import EmbeddedItems
from vicinal.results.scoring import score_test_items

__all__ = ["evaluate"]


def evaluate(what: Any, labels: Any, **options: Any) -> Scores:
    """Score embeddings against labels, or an embedder on a dataset, whose queries are searched in its gallery.

    Args:
        what: Embeddings [n, d], or an `Embedder`.
        labels: Their labels, or a `Dataset`.
        **options: Options of `vicinal.evaluation.evaluate`.

    Example:
        >>> round(evaluate(np.eye(4)[[0, 0, 1, 1]], [0, 0, 1, 1])["MAP@R"], 3)
        1.0
    """
    if not isinstance(what, Embedder):
        return evaluate_embeddings(what, labels, **options)
    if not isinstance(labels, Dataset):
        raise InputError(f"An embedder is scored on a Dataset; got {type(labels).__name__}.")
    items = EmbeddedItems(what.encode(labels), labels.labels, labels.roles)
    return score_test_items(items, options.pop("distance", what.distance), **options)
