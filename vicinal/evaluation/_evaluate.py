"""Evaluate embeddings against labels: the function `evaluate` and its options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal._util.code import Trust, find, name_of, short_name
from vicinal.errors import InputError, UnknownName
from vicinal.evaluation import retrieval
from vicinal.evaluation.clustering import cluster_scores
from vicinal.evaluation.geometry import collapse_warning, geometry_scores
from vicinal.evaluation.identification import few_shot_accuracy, identify_items
from vicinal.evaluation.items import Encoder, Gallery, OverlappingSets, SameClass, ScoredItems, as_scored_items
from vicinal.evaluation.retrieval import positive_ranks
from vicinal.evaluation.scores import Scores
from vicinal.evaluation.verification import verify_items
from vicinal.neighbours.exact import search
from vicinal.neighbours.inputs import ArrayLike, checked_count
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
from vicinal.stats.intervals import NO_INTERVALS, USUAL_INTERVALS, Bootstrap, Interval, class_interval, class_sums

__all__ = ["Neighbourhood", "evaluate", "ranks_by_default"]


# Better neighbours from the same vectors: whitening, averaging with neighbours, re-ranking by shared neighbours.


@dataclass(frozen=True)
class Neighbourhood:
    """How neighbours are improved before they are scored.

    Args:
        whitening: Map that all vectors go through first, learned on training classes with `learn_whitening`; after
            it vectors are compared by their cosine.
        augment: Number of neighbours that each reference is averaged with; costs a search of all items among all.
        expand: Number of references that each query is averaged with; costs a second search.
        rerank: True to order the nearest by shared neighbours with the settings of the paper, or `Reranking(...)`
            with other settings; costs a search of all items among all and excludes a full ranking.

    Example:
        >>> Neighbourhood(expand=3).to_dict()
        {'expand': 3}
    """

    whitening: Whitening | None = None
    augment: int = 0
    expand: int = 0
    rerank: Reranking | bool | None = None

    def __post_init__(self) -> None:
        if min(self.augment, self.expand) < 0:
            raise InputError(f"augment and expand must not be negative; got {self.augment} and {self.expand}.")
        if self.reranking is not None and (self.augment or self.expand):
            raise InputError("Re-ranking cannot be combined with expand or augment.")

    @property
    def reranking(self) -> Reranking | None:
        """Settings of the re-ranking; None for none."""
        return as_reranking(self.rerank)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from a plain search, for a record."""
        settings = {
            "whitening": None if self.whitening is None else len(self.whitening.axes),
            "augment": self.augment or None,
            "expand": self.expand or None,
            "rerank": None if self.reranking is None else asdict(self.reranking),
        }
        return {name: value for name, value in settings.items() if value is not None}


def improved_items(scored: ScoredItems, neighbours: Neighbourhood) -> ScoredItems:
    """Whiten all vectors, then average references with their neighbours, then queries with the references.

    Args:
        scored: Queries and references.
        neighbours: Steps to apply; re-ranking comes later, in `reranked_neighbours`.
    """
    whitening, augment, expand = neighbours.whitening, neighbours.augment, neighbours.expand
    itself = scored.ignored.itself
    queries, references, distance = scored.queries.rows, scored.references.rows, scored.queries.distance
    if whitening is not None:
        queries = torch.from_numpy(whitening.apply(queries.numpy()))
        references = queries if itself else torch.from_numpy(whitening.apply(references.numpy()))
        distance = "cosine"
    if augment or expand:
        _check_drawing(scored, distance)
        # When items are searched among themselves, none may be averaged with itself, nor with its own copy.
        original_queries, original_references = queries, references
        if augment:
            references = augment_references(original_references, count=augment)
        if expand:
            queries = expand_queries(original_queries, None if itself else references, count=expand)
    elif whitening is None:
        return scored
    new_queries, new_references = vectors(queries, references, distance=distance)
    return replace(scored, queries=new_queries, references=new_references)


def reranked_neighbours(scored: ScoredItems, many: int, rerank: Reranking) -> Neighbours:
    """Return at least `many` neighbours of every query, with each shortlist re-ranked by shared neighbours."""
    if scored.ignored.queries is not None:
        raise InputError("Re-ranking does not support sequences.")
    enough = min(max(many, rerank.shortlist), len(scored.references))
    nearest = collect(scored.queries, scored.references, scored.ignored, enough)
    reranker = Reranker(scored.references.rows, scored.references.distance, settings=rerank)
    if scored.ignored.itself:
        return reranker.reordered_items(torch.arange(len(scored.queries)), nearest)
    return reranker.reordered(scored.queries.rows, nearest)


def _check_drawing(scored: ScoredItems, distance: str) -> None:
    if distance != "cosine":
        raise InputError("expand and augment need the cosine distance.")
    if scored.ignored.queries is not None:
        raise InputError("expand does not support sequences.")


Report: TypeAlias = Callable[[str, float], None]

RANKED: dict[str, Callable[..., Tensor]] = {
    "mAP": retrieval.average_precision,
    "MRR": retrieval.reciprocal_rank,
    "nDCG": retrieval.discounted_gain,
}
SETS_NOTE = (
    "Labels are sets: classes are the sets that differ, and may share labels, so that intervals may be too narrow."
)
EXTRAS = ("ranking", "clustering", "geometry", "verification", "identification")  # names in `also`
FEW_SHOT = re.compile(r"(\d+)-way (\d+)-shot")
FULL_RANKING_LIMIT = 100_000_000  # pairs of query and reference that are ranked in a few seconds


def evaluate(
    embeddings: ArrayLike | Encoder,
    labels: Any,
    *,
    gallery: Gallery | None = None,
    distance: str | None = None,
    k: Sequence[int] = (1, 2, 4, 8),
    also: Sequence[str] | None = None,
    scores: Sequence[str | Callable[..., Tensor]] = (),
    neighbours: Neighbourhood | None = None,
    intervals: Bootstrap | None = USUAL_INTERVALS,
    progress: Report = lambda stage, fraction: None,
) -> Scores:
    """Score embeddings by how well the neighbours of each item share its class.

    P@1, R@k, P@R and MAP@R need only the nearest neighbours; mAP, MRR and nDCG need the rank of every positive
    in the full ranking, which takes several times as long. Neighbours are exact, ties go to the lower index,
    and an item never finds itself. Queries without a reference of their class are left out and counted.

    Args:
        embeddings: One row per item, or per query if there is a gallery: torch, numpy or lists; or an embedder, which
            embeds the items of a dataset.
        labels: One label per row: integers of any size or strings; or the dataset of the rows, whose queries are
            searched in its gallery if it has one. Or sets of labels: a row of booleans for each item; two items match
            if they share a label, and each distinct set is a class. `GroundTruth(labels, ...)` adds sequences whose
            items do not count for each other, or the overlap that two sets need.
        gallery: Pair of embeddings and labels, `(embeddings, labels)`, one row per reference, for queries that are
            searched among other items.
        distance: "cosine" or "euclidean"; by default the embedder's own, and cosine for embeddings.
        k: Each k of R@k.
        also: Further scores, any of "ranking" (mAP, MRR and nDCG), "clustering" (NMI, AMI and pairwise F1 of k-means;
            minutes for 60,000 items of 11,000 classes), "geometry" (covering radius, density, uniformity and others),
            "verification" (AUC, EER and others of `verify`), "identification" (rank-1 and DIR@FAR of `identify`) and
            "5-way 1-shot" with any two numbers (`few_shot_accuracy`). By default "ranking" for up to 10,000 queries
            and references; an empty list for none.
        scores: Custom scores: functions of (hits, relevant) or of (ranks) as those in `vicinal.evaluation.retrieval`,
            which return a number for each query; or "my_module:my_score".
        neighbours: Improvement of neighbours: whitening, augmentation, expansion, re-ranking.
        intervals: Confidence level, resamples and seed of the intervals; None for no intervals.
        progress: Callback, called with the stage and the fraction of it that is done.

    Example:
        >>> scores = evaluate([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], ["a", "a", "b", "b"], k=[1])
        >>> print(scores)
        score      value    95 % interval over classes
        P@1       1.0000              0.0122 to 1.0000
        R@1       1.0000              0.0122 to 1.0000
        P@R       1.0000              0.0122 to 1.0000
        MAP@R     1.0000              0.0122 to 1.0000
        mAP       1.0000              0.0122 to 1.0000
        MRR       1.0000              0.0122 to 1.0000
        nDCG      1.0000              0.0122 to 1.0000
        <BLANKLINE>
        4 queries scored against 4 references, 2 classes.
    """
    neighbours = neighbours or Neighbourhood()
    extras = None if also is None else _checked_extras(also)
    scored = as_scored_items(embeddings, labels, gallery=gallery, distance=distance, sets=True)
    _check_combination(scored, extras or _Extras(), neighbours)
    scored = improved_items(scored, neighbours)
    ks = _checked_ks(k)
    relevant = scored.relevance.count(scored.ignored)
    if not bool(relevant.any()):
        raise InputError(
            f"None of the {len(scored.queries)} queries has a reference of its class; check that the labels of one "
            "class are equal and that each class has at least two items (or one in the gallery)."
        )
    if extras is None:
        ranked = neighbours.reranking is None and ranks_by_default(len(scored.queries), len(scored.references))
        extras = _Extras({"ranking"} if ranked else set())
    on_hits, on_ranks = _own_scores(scores)
    per_query = _neighbour_scores(
        scored, relevant, ks, on_hits, neighbours.reranking, lambda done: progress("neighbours", done)
    )
    if "ranking" in extras.names or on_ranks:
        functions = (RANKED if "ranking" in extras.names else {}) | on_ranks
        per_query |= _ranking_scores(scored, functions, lambda done: progress("full ranking", done))
    bootstrap = intervals or NO_INTERVALS
    means, ends = _overall(per_query, scored.codes.numpy(), len(scored.classes), bootstrap)
    sets = isinstance(scored.relevance, OverlappingSets)
    notes = [collapse_warning(scored.references.rows, distance=scored.queries.distance), SETS_NOTE if sets else ""]
    for overall, more_ends, more_notes in _further_scores(scored, extras, bootstrap, progress):
        means |= overall
        ends |= more_ends
        notes += more_notes
    return Scores(
        overall=means,
        intervals=ends,
        classes=scored.classes,
        query_classes=scored.codes.numpy(),
        per_query=per_query,
        references=len(scored.references),
        settings={
            "distance": scored.queries.distance,
            "gallery": not scored.ignored.itself,
            "sequences": scored.ignored.queries is not None,
            **({"overlap": scored.relevance.overlap} if isinstance(scored.relevance, OverlappingSets) else {}),
            **asdict(bootstrap),
            **neighbours.to_dict(),
        },
        notes=tuple(note for note in notes if note),
    )


def ranks_by_default(queries: int, references: int) -> bool:
    """Return whether a full ranking takes only seconds, so that `evaluate` computes it by default."""
    return queries * references <= FULL_RANKING_LIMIT


@dataclass(frozen=True)
class _Extras:
    """Names of the groups of further scores, and the (ways, shots) of each few-shot accuracy."""

    names: Set[str] = frozenset()
    few_shot: tuple[tuple[int, int], ...] = ()


def _checked_extras(also: Sequence[str]) -> _Extras:
    if isinstance(also, str):
        raise InputError(f"also is a list, such as [{also!r}]; got the string {also!r}.")
    names, few_shot = set(), []
    for name in also:
        if shots := FEW_SHOT.fullmatch(str(name)):
            few_shot.append((int(shots[1]), int(shots[2])))
        elif name in EXTRAS:
            names.add(name)
        else:
            raise UnknownName("group of scores in also", str(name), [*EXTRAS, "5-way 1-shot"])
    return _Extras(names, tuple(few_shot))


def _check_combination(scored: ScoredItems, extras: _Extras, neighbours: Neighbourhood) -> None:
    if isinstance(scored.relevance, OverlappingSets) and (extras.names - {"ranking"} or extras.few_shot):
        raise InputError(
            "Clustering, geometry, verification, identification and few shots need one label per item; sets of labels "
            "have none."
        )
    if neighbours.reranking is not None and "ranking" in extras.names:
        raise InputError(
            'Re-ranking orders only the nearest items; it cannot be combined with a full ranking (also=["ranking"]).'
        )
    if neighbours.reranking is not None and "identification" in extras.names:
        raise InputError("Identification uses similarities; it cannot be combined with re-ranking.")


def _further_scores(
    scored: ScoredItems, extras: _Extras, bootstrap: Bootstrap, progress: Report
) -> Iterator[tuple[Mapping[str, float], Mapping[str, Interval], Sequence[str]]]:
    """Yield the means, intervals and notes of each further group of scores, in the order of the table."""
    queries, references, distance = scored.queries, scored.references, scored.queries.distance
    rows, labels = queries.rows, scored.codes
    if not scored.ignored.itself and (extras.names & {"clustering", "geometry"} or extras.few_shot):
        rows = torch.cat([queries.rows.double(), references.rows.double()])
        labels = torch.cat([scored.codes, scored.reference_codes])
    if "clustering" in extras.names:
        progress("clustering", 0.0)
        yield cluster_scores(rows, labels, distance=distance, seed=bootstrap.seed), {}, ()
        progress("clustering", 1.0)
    if "geometry" in extras.names:
        progress("geometry", 0.0)
        yield geometry_scores(rows, labels, distance=distance), {}, ()
        progress("geometry", 1.0)
    if "verification" in extras.names:
        verified = verify_items(scored, intervals=bootstrap, progress=lambda done: progress("pairs", done))
        yield verified.overall, verified.intervals, (verified.thresholds_in_words(), *verified.notes)
    if "identification" in extras.names:
        progress("identification", 0.0)
        named = identify_items(scored, intervals=bootstrap)
        progress("identification", 1.0)
        yield named.overall, named.intervals, [f"Identification: {named.summary()}", *named.notes]
    for ways, shots in extras.few_shot:
        few = few_shot_accuracy(
            rows,
            labels,
            ways=ways,
            shots=shots,
            distance=distance,
            confidence=bootstrap.confidence,
            seed=bootstrap.seed,
        )
        name = f"{ways}-way {shots}-shot"
        if bootstrap.draws:
            note = f"The interval of {name} is over {few.episodes:,} episodes, not over classes."
            yield {name: few.accuracy}, {name: few.interval}, [note]
        else:
            yield {name: few.accuracy}, {}, ()


def _own_scores(
    scores: Sequence[str | Callable[..., Tensor]],
) -> tuple[dict[str, Callable[..., Tensor]], dict[str, Callable[..., Tensor]]]:
    """Return the custom scores by name: those computed from neighbours, and those computed from the full ranking."""
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
    """Return a score as float64; raise an error if a custom score returned something else."""
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
    """Return P@1, R@k, P@R and MAP@R, computed band by band; the neighbours themselves are not kept."""
    queries, references = scored.queries, scored.references
    count = min(len(references), max([int(relevant.max()), *ks, 1]))
    names = ["P@1", *(f"R@{k}" for k in ks), "P@R", "MAP@R", *more]
    scores = torch.empty(len(names), len(queries), dtype=torch.float64)

    def consume(rows: Tensor, columns: Tensor) -> None:
        hits = scored.relevance.hits(rows, columns)
        relevant_here = relevant[rows]
        recalls = [retrieval.recall_at(hits, relevant_here, min(k, count)) for k in ks]
        at_r = [retrieval.r_precision(hits, relevant_here), retrieval.average_precision_at_r(hits, relevant_here)]
        own = [_per_query(name, function(hits, relevant_here), len(relevant_here)) for name, function in more.items()]
        scores[:, rows] = torch.stack([retrieval.precision_at_1(hits, relevant_here), *recalls, *at_r, *own])

    if rerank is None:
        # No built-in score needs more neighbours of a query than its class has other items; a custom score may.
        wanted = None if more else relevant.clamp(min=max([*ks, 1]), max=count)
        itself, relevance = scored.ignored.itself, scored.relevance
        order = relevance.together if itself and isinstance(relevance, SameClass) else None
        search(queries, references, scored.ignored, count, consume, wanted=wanted, order=order, progress=progress)
    else:
        consume(torch.arange(len(queries)), reranked_neighbours(scored, count, rerank).indices[:, :count])
    return dict(zip(names, scores.numpy(), strict=True))


def _ranking_scores(
    scored: ScoredItems,
    functions: Mapping[str, Callable[..., Tensor]],
    progress: Callable[[float], None],
) -> dict[str, NDArray[np.float64]]:
    """Return the scores of the full ranking, computed band by band."""
    scores = torch.empty(len(functions), len(scored.queries), dtype=torch.float64)

    def consume(rows: Tensor, ranks: Tensor) -> None:
        values = [_per_query(name, function(ranks), len(ranks)) for name, function in functions.items()]
        scores[:, rows] = torch.stack(values)

    positive_ranks(scored.queries, scored.references, scored.relevance.positives, scored.ignored, consume, progress)
    return dict(zip(functions, scores.numpy(), strict=True))


def _overall(
    per_query: dict[str, NDArray[np.float64]], codes: NDArray[np.int64], classes: int, bootstrap: Bootstrap
) -> tuple[dict[str, float], dict[str, Interval]]:
    tables = [class_sums(values, codes, classes) for values in per_query.values()]
    counts = tables[0][1]
    sums = np.column_stack([table[0] for table in tables])
    means = dict(zip(per_query, (sums.sum(axis=0) / counts.sum()).tolist(), strict=True))
    if not bootstrap.draws:
        return means, {}
    ends = class_interval(sums, counts, confidence=bootstrap.confidence)
    return means, dict(zip(per_query, ends, strict=True))
