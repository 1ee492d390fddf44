"""What a random order of the references would score: exact expectations, from the numbers of positives alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vicinal.errors import InputError
from vicinal.evaluation.scores import Scores
from vicinal.neighbours.checked_inputs import Labels, as_codes
from vicinal.statistics.intervals import class_sums

__all__ = ["chance_scores"]


def chance_scores(labels: Labels, *, gallery_labels: Labels | None = None, k: Sequence[int] = (1, 2, 4, 8)) -> Scores:
    """Return the expected scores of neighbours in random order, as `evaluate` returns those of embeddings.

    Formula:
        A query that may find N references, R of them of its class, H_R = 1 + 1/2 + ... + 1/R:
        P@1 = P@R = R / N
        R@k = 1 - (N-R)! (N-k)! / (N! (N-R-k)!)
        MAP@R = 1/N (H_R + (R-1)/(N-1) (R - H_R)), since the j-th reference is a hit with probability R/N, and each of
        the j-1 before it then with probability (R-1)/(N-1).

    Args:
        labels: One label per item, or per query if there is a gallery.
        gallery_labels: One label per reference; without them every item is searched among the others.
        k: The k of R@k.

    Example:
        >>> chance = chance_scores(["a", "a", "b", "b"])  # each has one of its class among three others
        >>> round(chance["P@1"], 4), round(chance["MAP@R"], 4), round(chance["R@2"], 4)
        (0.3333, 0.3333, 0.6667)
    """
    if gallery_labels is None:
        classes, (codes,) = as_codes(labels)
        among = codes
    else:
        classes, (codes, among) = as_codes(labels, gallery_labels)
    itself = int(gallery_labels is None)
    query_classes = codes.numpy()
    relevant = np.bincount(among.numpy(), minlength=len(classes))[query_classes] - itself
    if not relevant.any():
        raise InputError(f"None of the {len(query_classes)} queries has a reference of its class.")
    per_query = _expected(relevant, len(among) - itself, sorted(set(k)))
    sums = {name: class_sums(values, query_classes, len(classes)) for name, values in per_query.items()}
    return Scores(
        overall={name: float(totals.sum() / counts.sum()) for name, (totals, counts) in sums.items()},
        intervals={},
        classes=tuple(classes),  # type: ignore[arg-type]
        query_classes=query_classes,
        per_query=per_query,
        references=len(among),
        settings={"gallery": gallery_labels is not None},
    )


def _expected(relevant: NDArray[np.int64], references: int, ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """The expected scores of queries by their numbers of positives; NaN without any."""
    positives = np.where(relevant > 0, relevant, np.nan).astype(np.float64)
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, max(1, relevant.max()) + 1))])[relevant]
    another = (positives - 1) / max(1, references - 1)
    share = positives / references
    return {
        "P@1": share,
        **{f"R@{k}": 1 - _none_in(k, positives, references) for k in ks},
        "P@R": share,
        "MAP@R": (harmonic + another * (positives - harmonic)) / references,
    }


def _none_in(k: int, positives: NDArray[np.float64], references: int) -> NDArray[np.float64]:
    """The probability that the first k references hold no positive."""
    drawn = np.arange(min(k, references))
    left = (references - drawn)[:, None]
    return np.asarray(np.prod(np.maximum(left - positives, 0) / left, axis=0))
