"""Scores of the test items of a run: queries are searched in the gallery where there is one."""

from __future__ import annotations

from typing import Any

from vicinal.evaluation import Scores, evaluate
from vicinal.evaluation.scored_items import by_role
from vicinal.results.run import EmbeddedItems
from vicinal.statistics.intervals import class_sums

__all__ = ["queries_by_class", "recall_at", "score_test_items", "scores_by_class"]

# The k of R@k that the literature reports on each dataset.
RECALL_AT = {"sop": (1, 10, 100, 1000), "inshop": (1, 10, 20, 30)}


def recall_at(data: str) -> tuple[int, ...]:
    """Return the k of R@k that are reported on a dataset.

    Example:
        >>> recall_at("sop"), recall_at("cub")
        ((1, 10, 100, 1000), (1, 2, 4, 8))
    """
    return RECALL_AT.get(data, (1, 2, 4, 8))


def score_test_items(items: EmbeddedItems, distance: str, **options: Any) -> Scores:
    """Score items; those with the role "query" are searched among those with the role "gallery".

    Args:
        items: Embeddings, labels and roles.
        distance: How embeddings are compared.
        **options: Of `vicinal.evaluation.evaluate`.
    """
    embeddings, labels, gallery, gallery_labels = by_role(*items)
    return evaluate(embeddings, labels, gallery=gallery, gallery_labels=gallery_labels, distance=distance, **options)


def scores_by_class(scores: Scores, score: str, classes: int) -> tuple[float | None, ...]:
    """Return the mean score of each class, by label; None where no query of a class was scored."""
    means = scores.per_class(score)
    return tuple(means.get(label) for label in range(classes))


def queries_by_class(scores: Scores, classes: int) -> tuple[int, ...]:
    """Return how many queries of each class were scored, by label."""
    counts = class_sums(scores.per_query["MAP@R"], scores.query_classes, len(scores.classes))[1]
    by_label = dict(zip(scores.classes, counts.tolist(), strict=True))
    return tuple(by_label.get(label, 0) for label in range(classes))
