"""Embeddings and labels in, scores out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._util.code import Trust, find, name_of, short_name
from vicinal.errors import InputError
from vicinal.evaluation import retrieval
from vicinal.evaluation.clustering import cluster_scores
from vicinal.evaluation.geometry import collapse_warning, geometry_scores
from vicinal.evaluation.identification import few_shot_accuracy, identify_items
from vicinal.evaluation.items import Encoder, LabelSets, OverlappingSets, SameClass, ScoredItems, as_scored_items
from vicinal.evaluation.retrieval import positive_ranks
from vicinal.evaluation.scores import Scores
from vicinal.evaluation.verification import verify_items
from vicinal.neighbours.exact import search
from vicinal.neighbours.inputs import ArrayLike, Labels, checked_count
from vicinal.neighbours.nearest import Neighbours, collect
from vicinal.neighbours.reranking import (
    Reranker,
    Reranking,
    Whitening,
    as_reranking,
    augment_references,
    expand_queries,
)
from vicinal.neighbours.similarity import vectors
from vicinal.stats.intervals import Interval, class_bootstrap, class_sums

__all__ = ["evaluate"]


# Better neighbours from the same vectors: whitened, drawn towards their neighbours, or in the order of shared ones.


def improved_items(
    scored: ScoredItems, *, whitening: Whitening | None = None, augment: int = 0, expand: int = 0
) -> ScoredItems:
    """Whiten all vectors, then draw references towards their neighbours, then queries towards the references.

    Args:
        scored: Queries and references.
        whitening: Learned elsewhere, on training classes; after it vectors are compared by their cosine.
        augment: Neighbours that a reference is drawn towards; 0 for none.
        expand: References that a query is drawn towards; 0 for none.
    """
    if min(augment, expand) < 0:
        raise InputError(f"augment and expand must not be negative; got {augment} and {expand}.")
    itself = scored.ignored.itself
    queries, references, distance = scored.queries.rows, scored.references.rows, scored.queries.distance
    if whitening is not None:
        queries = torch.from_numpy(whitening.apply(queries.numpy()))
        references = queries if itself else torch.from_numpy(whitening.apply(references.numpy()))
        distance = "cosine"
    if augment or expand:
        _check_drawing(scored, distance)
        # Where items are searched among themselves none may be drawn towards itself, nor towards its own copy.
        asked, plain = queries, references
        if augment:
            references = augment_references(plain, count=augment)
        if expand:
            queries = expand_queries(asked, None if itself else references, count=expand)
    elif whitening is None:
        return scored
    asked_for, among = vectors(queries, references, distance=distance)
    return replace(scored, queries=asked_for, references=among)


def reranked_neighbours(scored: ScoredItems, many: int, rerank: Reranking) -> Neighbours:
    """Return at least `many` neighbours of every query, the shortlist of each in the order of shared neighbours."""
    if scored.ignored.queries is not None:
        raise InputError("Re-ranking looks at all neighbours; it does not know of sequences.")
    enough = min(max(many, rerank.shortlist), len(scored.references))
    found = collect(scored.queries, scored.references, scored.ignored, enough)
    reranker = Reranker(scored.references.rows, scored.references.distance, settings=rerank)
    if scored.ignored.itself:
        return reranker.reordered_items(torch.arange(len(scored.queries)), found)
    return reranker.reordered(scored.queries.rows, found)


def _check_drawing(scored: ScoredItems, distance: str) -> None:
    if distance != "cosine":
        raise InputError("Vectors are drawn towards their neighbours on the sphere: expand and augment need cosines.")
    if scored.ignored.queries is not None:
        raise InputError("Expansion looks at all neighbours; it does not know of sequences.")


Report: TypeAlias = Callable[[str, float], None]

RANKED: dict[str, Callable[..., Tensor]] = {
    "mAP": retrieval.average_precision,
    "MRR": retrieval.reciprocal_rank,
    "nDCG": retrieval.discounted_gain,
}
SETS_NOTE = (
    "Labels are sets: classes are the sets that differ, and may share labels, so that intervals may be too narrow."
)
FULL_RANKING_LIMIT = 100_000_000  # pairs of query and reference that are ranked in a few seconds


def evaluate(
    embeddings: ArrayLike | Encoder,
    labels: Any,
    *,
    gallery: ArrayLike | None = None,
    gallery_labels: Labels | LabelSets | None = None,
    sequences: Labels | None = None,
    gallery_sequences: Labels | None = None,
    overlap: float = 0.0,
    distance: str | None = None,
    k: Sequence[int] = (1, 2, 4, 8),
    full_ranking: bool | None = None,
    clustering: bool = False,
    geometry: bool = False,
    verification: bool = False,
    identification: bool = False,
    few_shot: Sequence[tuple[int, int]] = (),
    scores: Sequence[str | Callable[..., Tensor]] = (),
    whitening: Whitening | None = None,
    augment: int = 0,
    expand: int = 0,
    rerank: Reranking | bool | None = None,
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
            are searched in its gallery where it has one. Or sets of labels: a row of booleans for each item, of which
            two belong together where they share a label. The classes are then the sets that differ.
        gallery: One row per reference, for queries that are searched among other items.
        gallery_labels: One label per reference.
        sequences: One entry per row; references with the same entry are ignored.
        gallery_sequences: One entry per reference, with a gallery.
        overlap: Of sets of labels: two belong together where the share of what both have in all that either has
            (Jaccard) is above this; 0 asks for one common label.
        distance: "cosine" or "euclidean"; by default the embedder's own, and cosine for embeddings.
        k: The k of R@k.
        full_ranking: Also mAP, MRR and nDCG; by default for up to 10,000 queries and references.
        clustering: Also NMI, AMI and pairwise F1 of k-means; minutes for 60,000 items of 11,000 classes.
        geometry: Also the shape of the space: covering radius, density, uniformity and others.
        verification: Also how well a threshold tells pairs of one class from others: AUC, EER and others of `verify`.
        identification: Also who it is, or nobody: rank-1 and DIR@FAR of `identify`.
        few_shot: Also the accuracy of `few_shot_accuracy` for each pair of ways and shots, such as (5, 1).
        scores: More of them, of your own: functions of (hits, relevant) or of (ranks) as those in
            `vicinal.evaluation.retrieval`, which return a number for each query; or "my_module:my_score".
        whitening: What all vectors go through first, learned on training classes: `learn_whitening`.
        augment: References that each reference is drawn towards, once; costs a search of all in all.
        expand: References that each query is drawn towards before it is searched; costs a second search.
        rerank: Put the nearest in the order of shared neighbours, as the paper does (True) or by settings of your own;
            costs a search of all in all. No full ranking.
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
    scored = as_scored_items(
        embeddings,
        labels,
        gallery=gallery,
        gallery_labels=gallery_labels,
        sequences=sequences,
        gallery_sequences=gallery_sequences,
        distance=distance,
        overlap=overlap,
    )
    sets = isinstance(scored.relevance, OverlappingSets)
    if sets and (clustering or geometry or verification or identification or few_shot):
        raise InputError(
            "Clustering, geometry, verification, identification and few shots need one label per item; sets of labels "
            "have none."
        )
    scored = improved_items(scored, whitening=whitening, augment=augment, expand=expand)
    rerank = as_reranking(rerank)
    if rerank is not None and (augment or expand or full_ranking):
        raise InputError("Re-ranking orders the nearest alone: it goes without expand, augment and a full ranking.")
    if rerank is not None and identification:
        raise InputError("Identification goes by similarities: it goes without re-ranking.")
    queries, references, ignored = scored.queries, scored.references, scored.ignored
    codes, reference_codes, classes = scored.codes, scored.reference_codes, scored.classes
    distance = queries.distance
    ks = _checked_ks(k)
    if draws < 0 or seed < 0 or not 0 < confidence < 1:
        raise InputError(
            f"draws and seed must not be negative and 0 < confidence < 1; got {draws}, {seed} and {confidence}."
        )
    relevant = scored.relevance.count(ignored)
    if not bool(relevant.any()):
        raise InputError(
            f"None of the {len(queries)} queries has a reference of its class; check that the labels of one class "
            "are equal and that each class has at least two items (or one in the gallery)."
        )
    on_hits, on_ranks = _own_scores(scores)
    per_query = _neighbour_scores(scored, relevant, ks, on_hits, rerank, lambda done: progress("neighbours", done))
    if rerank is not None:
        full_ranking = False
    if full_ranking is None:
        full_ranking = len(queries) * len(references) <= FULL_RANKING_LIMIT
    if full_ranking or on_ranks:
        functions = (RANKED if full_ranking else {}) | on_ranks
        per_query |= _ranking_scores(scored, functions, lambda done: progress("full ranking", done))
    code_array = codes.numpy()
    means, intervals = _overall(per_query, code_array, len(classes), draws, confidence, seed)
    if clustering or geometry or few_shot:
        every = queries.rows if ignored.itself else torch.cat([queries.rows.double(), references.rows.double()])
        every_label = codes if ignored.itself else torch.cat([codes, reference_codes])
    if clustering:
        progress("clustering", 0.0)
        means |= cluster_scores(every, every_label, distance=distance, seed=seed)
        progress("clustering", 1.0)
    if geometry:
        progress("geometry", 0.0)
        means |= geometry_scores(every, every_label, distance=distance)
        progress("geometry", 1.0)
    notes = [collapse_warning(references.rows, distance=distance)]
    if sets:
        notes.append(SETS_NOTE)
    if verification:
        same = verify_items(
            scored, draws=draws, confidence=confidence, seed=seed, progress=lambda done: progress("pairs", done)
        )
        means |= same.overall
        intervals |= same.intervals
        notes += same.notes
    if identification:
        progress("identification", 0.0)
        named = identify_items(scored, draws=draws, confidence=confidence, seed=seed)
        progress("identification", 1.0)
        means |= named.overall
        intervals |= named.intervals
        notes += [f"Identification: {named.summary()}", *named.notes]
    for ways, shots in few_shot:
        told_apart = few_shot_accuracy(
            every, every_label, ways=ways, shots=shots, distance=distance, confidence=confidence, seed=seed
        )
        name = f"{ways}-way {shots}-shot"
        means[name] = told_apart.accuracy
        if draws:
            intervals[name] = told_apart.interval
            notes.append(f"The interval of {name} is over {told_apart.episodes:,} episodes, not over classes.")
    return Scores(
        overall=means,
        intervals=intervals,
        classes=classes,
        query_classes=code_array,
        per_query=per_query,
        references=len(references),
        settings={
            "distance": distance,
            "gallery": not ignored.itself,
            "sequences": sequences is not None,
            **({"overlap": overlap} if sets else {}),
            "draws": draws,
            "confidence": confidence,
            "seed": seed,
            **_better_settings(whitening, augment, expand, rerank),
        },
        notes=tuple(note for note in notes if note),
    )


def _better_settings(
    whitening: Whitening | None, augment: int, expand: int, rerank: Reranking | None
) -> dict[str, Any]:
    """What was done for better neighbours; nothing is said of what was not."""
    said = {
        "whitening": None if whitening is None else len(whitening.axes),
        "augment": augment or None,
        "expand": expand or None,
        "rerank": None if rerank is None else asdict(rerank),
    }
    return {name: value for name, value in said.items() if value is not None}


def _own_scores(
    scores: Sequence[str | Callable[..., Tensor]],
) -> tuple[dict[str, Callable[..., Tensor]], dict[str, Callable[..., Tensor]]]:
    """Return the user's own scores by name: those of the neighbours, and those of the full ranking."""
    trust = Trust.typed(scores)
    on_hits: dict[str, Callable[..., Tensor]] = {}
    on_ranks: dict[str, Callable[..., Tensor]] = {}
    for score in scores:
        name = name_of("score", score, {})
        function = find("score", name, {}, trust)
        of_ranks = next(iter(inspect.signature(function).parameters), "") == "ranks"
        (on_ranks if of_ranks else on_hits)[short_name(name)] = function
    return on_hits, on_ranks


def _per_query(name: str, values: Any, queries: int) -> Tensor:
    """Return a score as float64, or say what an own one should have returned."""
    if not isinstance(values, Tensor) or values.shape != (queries,):
        got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(
            f"The score {name} must return a tensor with one number for each of {queries} queries; got {got}."
        )
    return values.double()


def _checked_ks(k: Sequence[int]) -> list[int]:
    if isinstance(k, str) or not isinstance(k, Iterable):
        raise InputError(f"k is a list, such as [1, 2, 4]: the k of R@k; got {k!r}.")
    return sorted({checked_count(each, "Each k of R@k") for each in k})


def _neighbour_scores(
    scored: ScoredItems,
    relevant: Tensor,
    ks: list[int],
    more: Mapping[str, Callable[..., Tensor]],
    rerank: Reranking | None,
    progress: Callable[[float], None],
) -> dict[str, NDArray[np.float64]]:
    """P@1, R@k, P@R and MAP@R, band by band: the neighbours themselves are not kept."""
    queries, references = scored.queries, scored.references
    many = min(len(references), max([int(relevant.max()), *ks, 1]))
    names = ["P@1", *(f"R@{k}" for k in ks), "P@R", "MAP@R", *more]
    scores = torch.empty(len(names), len(queries), dtype=torch.float64)

    def consume(rows: Tensor, columns: Tensor) -> None:
        hits = scored.relevance.hits(rows, columns)
        here = relevant[rows]
        recalls = [retrieval.recall_at(hits, here, min(k, many)) for k in ks]
        at_r = [retrieval.r_precision(hits, here), retrieval.average_precision_at_r(hits, here)]
        own = [_per_query(name, function(hits, here), len(here)) for name, function in more.items()]
        scores[:, rows] = torch.stack([retrieval.precision_at_1(hits, here), *recalls, *at_r, *own])

    if rerank is None:
        # No score asks for more neighbours of a query than its class has others, unless it is one of the user's own.
        wanted = None if more else relevant.clamp(min=max([*ks, 1]), max=many)
        itself, relevance = scored.ignored.itself, scored.relevance
        order = relevance.together if itself and isinstance(relevance, SameClass) else None
        search(queries, references, scored.ignored, many, consume, wanted=wanted, order=order, progress=progress)
    else:
        consume(torch.arange(len(queries)), reranked_neighbours(scored, many, rerank).indices[:, :many])
    return dict(zip(names, scores.numpy(), strict=True))


def _ranking_scores(
    scored: ScoredItems,
    functions: Mapping[str, Callable[..., Tensor]],
    progress: Callable[[float], None],
) -> dict[str, NDArray[np.float64]]:
    """Scores of the full ranking, band by band."""
    scores = torch.empty(len(functions), len(scored.queries), dtype=torch.float64)

    def consume(rows: Tensor, ranks: Tensor) -> None:
        found = [_per_query(name, function(ranks), len(ranks)) for name, function in functions.items()]
        scores[:, rows] = torch.stack(found)

    positive_ranks(scored.queries, scored.references, scored.relevance.positives, scored.ignored, consume, progress)
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
