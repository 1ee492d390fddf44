"""Embeddings and labels in, scores out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.evaluation import retrieval
from vicinal.evaluation.clustering import cluster_scores
from vicinal.evaluation.geometry import collapse_warning, geometry_scores
from vicinal.evaluation.ranks import positive_ranks
from vicinal.evaluation.scores import Scores
from vicinal.neighbours.blocked_search import search
from vicinal.neighbours.checked_inputs import ArrayLike, Labels, as_codes, as_embeddings
from vicinal.neighbours.exclusion import Exclusion, exclusion
from vicinal.neighbours.similarity import Vectors, vectors
from vicinal.statistics.intervals import Interval, class_bootstrap, class_sums

__all__ = ["Encoder", "LabelledItems", "by_role", "evaluate"]

Report: TypeAlias = Callable[[str, float], None]

FULL_RANKING_LIMIT = 100_000_000  # pairs of query and reference that are ranked in a few seconds


@runtime_checkable
class Encoder(Protocol):
    """What embeds items and knows how its embeddings are compared: an `Embedder`, say."""

    @property
    def distance(self) -> str: ...  # noqa: D102 (said above)
    def encode(self, inputs: Any, /) -> NDArray[np.float32]: ...  # noqa: D102


@runtime_checkable
class LabelledItems(Protocol):
    """Items with labels, and roles where queries are searched in a gallery: a `Dataset`, say."""

    labels: NDArray[np.int64]
    roles: NDArray[Any] | None


def evaluate(
    embeddings: ArrayLike | Encoder,
    labels: Labels | LabelledItems,
    *,
    gallery: ArrayLike | None = None,
    gallery_labels: Labels | None = None,
    sequences: Labels | None = None,
    gallery_sequences: Labels | None = None,
    distance: str | None = None,
    k: Sequence[int] = (1, 2, 4, 8),
    full_ranking: bool | None = None,
    clustering: bool = False,
    geometry: bool = False,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Report = lambda stage, fraction: None,
) -> Scores:
    """Score embeddings by how well the neighbours of each item share its class.

    P@1, R@k, P@R and MAP@R need only the nearest neighbours; mAP, MRR and nDCG need the rank of every positive
    in the full ranking, which takes several times as long. Neighbours are exact, ties go to the lower index,
    and an item never finds itself. Queries without a reference of their class are left out and counted.

    Args:
        embeddings: One row per item, or per query if there is a gallery: torch, numpy or lists; or an embedder, which
            embeds the items of a dataset.
        labels: One label per row: integers of any size or strings; or the dataset that the rows are of, whose queries
            are searched in its gallery where it has one.
        gallery: One row per reference, for queries that are searched among other items.
        gallery_labels: One label per reference.
        sequences: One entry per row; references with the same entry are ignored.
        gallery_sequences: One entry per reference, with a gallery.
        distance: "cosine" or "euclidean"; by default the embedder's own, and cosine for embeddings.
        k: The k of R@k.
        full_ranking: Also mAP, MRR and nDCG; by default for up to 10,000 queries and references.
        clustering: Also NMI, AMI and pairwise F1 of k-means; minutes for 60,000 items of 11,000 classes.
        geometry: Also the shape of the space: covering radius, density, uniformity and others.
        draws: Resamples of the intervals; 0 for no intervals.
        confidence: Of the intervals.
        seed: Of the resamples and of k-means.
        progress: Called with the stage and the fraction of it that is done.

    Example:
        >>> scores = evaluate([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], ["a", "a", "b", "b"], k=[1])
        >>> print(scores)
        score      value    95 % interval over classes
        P@1       1.0000              1.0000 to 1.0000
        R@1       1.0000              1.0000 to 1.0000
        P@R       1.0000              1.0000 to 1.0000
        MAP@R     1.0000              1.0000 to 1.0000
        mAP       1.0000              1.0000 to 1.0000
        MRR       1.0000              1.0000 to 1.0000
        nDCG      1.0000              1.0000 to 1.0000
        <BLANKLINE>
        4 of 4 queries scored against 4 references, 2 classes; none left out.
    """
    if isinstance(embeddings, Encoder):
        if not isinstance(labels, LabelledItems):
            raise InputError(f"An embedder is scored on a Dataset; got {type(labels).__name__}.")
        distance = distance or embeddings.distance
        embeddings = embeddings.encode(labels)
    if isinstance(labels, LabelledItems):
        rows = np.asarray(embeddings)
        embeddings, labels, gallery, gallery_labels = by_role(rows, labels.labels, labels.roles)
    distance = distance or "cosine"
    items = as_embeddings(embeddings)
    others = None if gallery is None else as_embeddings(gallery, "gallery embeddings")
    ks = _checked_ks(k)
    if draws < 0 or seed < 0 or not 0 < confidence < 1:
        raise InputError(
            f"draws and seed must not be negative and 0 < confidence < 1; got {draws}, {seed} and {confidence}."
        )
    classes, codes, reference_codes = _joint_codes(items, labels, others, gallery_labels)
    queries, references = vectors(items, others, distance=distance)
    ignored = exclusion(len(queries), len(references), gallery is None, sequences, gallery_sequences)
    relevant = _relevant(codes, reference_codes, ignored)
    if not bool(relevant.any()):
        raise InputError(
            f"None of the {len(items)} queries has a reference of its class; check that the labels of one class "
            "are equal and that each class has at least two items (or one in the gallery)."
        )
    per_query = _neighbour_scores(
        queries, references, codes, reference_codes, ignored, relevant, ks, lambda done: progress("neighbours", done)
    )
    if full_ranking is None:
        full_ranking = len(queries) * len(references) <= FULL_RANKING_LIMIT
    if full_ranking:
        per_query |= _ranking_scores(
            queries, references, codes, reference_codes, ignored, lambda done: progress("full ranking", done)
        )
    code_array = codes.numpy()
    means, intervals = _overall(per_query, code_array, len(classes), draws, confidence, seed)
    if clustering or geometry:
        every = items if others is None else torch.cat([items.double(), others.double()])
        every_label = codes if others is None else torch.cat([codes, reference_codes])
    if clustering:
        progress("clustering", 0.0)
        means |= cluster_scores(every, every_label, distance=distance, seed=seed)
        progress("clustering", 1.0)
    if geometry:
        progress("geometry", 0.0)
        means |= geometry_scores(every, every_label, distance=distance)
        progress("geometry", 1.0)
    warning = collapse_warning(references.rows, distance=distance)
    return Scores(
        overall=means,
        intervals=intervals,
        classes=tuple(classes),  # type: ignore[arg-type]
        query_classes=code_array,
        per_query=per_query,
        references=len(references),
        settings={
            "distance": distance,
            "gallery": gallery is not None,
            "sequences": sequences is not None,
            "draws": draws,
            "confidence": confidence,
            "seed": seed,
        },
        notes=(warning,) if warning else (),
    )


def by_role(
    embeddings: NDArray[np.float32], labels: NDArray[np.int64], roles: NDArray[Any] | None
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32] | None, NDArray[np.int64] | None]:
    """Divide items into queries and gallery where their roles name both; all items are both where they do not.

    Returns:
        Embeddings and labels of the queries, and of the gallery.
    """
    if roles is None or not {"query", "gallery"} <= set(roles.tolist()):
        return embeddings, labels, None, None
    query, gallery = roles == "query", roles == "gallery"
    return embeddings[query], labels[query], embeddings[gallery], labels[gallery]


def _checked_ks(k: Sequence[int]) -> list[int]:
    ks = sorted(set(k))
    if ks and ks[0] < 1:
        raise InputError(f"Each k of R@k must be at least 1, got {ks[0]}.")
    return ks


def _joint_codes(
    items: Tensor, labels: Labels, others: Tensor | None, gallery_labels: Labels | None
) -> tuple[list[int] | list[str], Tensor, Tensor]:
    if others is None:
        if gallery_labels is not None:
            raise InputError("gallery_labels came without a gallery; give both or neither.")
        classes, (codes,) = as_codes(labels, sizes=[len(items)])
        return classes, codes, codes
    if gallery_labels is None:
        raise InputError("A gallery needs gallery_labels, one label per reference.")
    classes, (codes, reference_codes) = as_codes(labels, gallery_labels, sizes=[len(items), len(others)])
    return classes, codes, reference_codes


def _relevant(codes: Tensor, reference_codes: Tensor, ignored: Exclusion) -> Int64[Tensor, " n"]:
    """The number of references of each query's class that it may find."""
    many = int(max(codes.max(), reference_codes.max())) + 1
    found = torch.bincount(reference_codes, minlength=many)[codes]
    if ignored.queries is None or ignored.references is None:
        return found - int(ignored.itself)
    both = int(max(ignored.queries.max(), ignored.references.max())) + 1
    _, (mine, theirs) = as_codes(codes * both + ignored.queries, reference_codes * both + ignored.references)
    size = int(max(mine.max(), theirs.max())) + 1
    return found - torch.bincount(theirs, minlength=size)[mine]


def _neighbour_scores(
    queries: Vectors,
    references: Vectors,
    codes: Tensor,
    reference_codes: Tensor,
    ignored: Exclusion,
    relevant: Tensor,
    ks: list[int],
    progress: Callable[[float], None],
) -> dict[str, NDArray[np.float64]]:
    """P@1, R@k, P@R and MAP@R, band by band: the neighbours themselves are not kept."""
    many = min(len(references), max([int(relevant.max()), *ks, 1]))
    names = ["P@1", *(f"R@{k}" for k in ks), "P@R", "MAP@R"]
    scores = torch.empty(len(names), len(queries), dtype=torch.float64)

    def consume(rows: Tensor, columns: Tensor) -> None:
        hits = (reference_codes[columns] == codes[rows, None]) & (columns >= 0)
        here = relevant[rows]
        recalls = [retrieval.recall_at(hits, here, min(k, many)) for k in ks]
        at_r = [retrieval.r_precision(hits, here), retrieval.average_precision_at_r(hits, here)]
        scores[:, rows] = torch.stack([retrieval.precision_at_1(hits, here), *recalls, *at_r])

    search(queries, references, ignored, many, consume, progress=progress)
    return dict(zip(names, scores.numpy(), strict=True))


def _ranking_scores(
    queries: Vectors,
    references: Vectors,
    codes: Tensor,
    reference_codes: Tensor,
    ignored: Exclusion,
    progress: Callable[[float], None],
) -> dict[str, NDArray[np.float64]]:
    """mAP, MRR and nDCG, band by band."""
    functions = {
        "mAP": retrieval.average_precision,
        "MRR": retrieval.reciprocal_rank,
        "nDCG": retrieval.discounted_gain,
    }
    scores = torch.empty(len(functions), len(queries), dtype=torch.float64)

    def consume(rows: Tensor, ranks: Tensor) -> None:
        scores[:, rows] = torch.stack([function(ranks) for function in functions.values()])

    positive_ranks(queries, references, codes, reference_codes, ignored, consume, progress)
    return dict(zip(functions, scores.numpy(), strict=True))


def _overall(
    per_query: dict[str, NDArray[np.float64]],
    codes: NDArray[np.int64],
    classes: int,
    draws: int,
    confidence: float,
    seed: int,
) -> tuple[dict[str, float], dict[str, Interval]]:
    tables = [class_sums(values, codes, classes) for values in per_query.values()]
    counts = tables[0][1]
    sums = np.column_stack([table[0] for table in tables])
    means = dict(zip(per_query, (sums.sum(axis=0) / counts.sum()).tolist(), strict=True))
    if not draws:
        return means, {}
    ends = class_bootstrap(sums, counts, draws=draws, confidence=confidence, seed=seed)
    return means, dict(zip(per_query, ends, strict=True))
