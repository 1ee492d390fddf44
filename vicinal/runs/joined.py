"""Second score of the reality check: the models of all folds, joined into one.

Each fold trains a model on the other folds' classes. Their scores are averaged ("separate"), and their embeddings of
the test items are concatenated ("joined"), which is a better model with larger embeddings.

Reference:
    Musgrave, Belongie and Lim (2020), A Metric Learning Reality Check, section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np
import torch

from vicinal._util.progress import LiveBar
from vicinal._util.text import counted, listed
from vicinal.errors import DataError
from vicinal.evaluation import concatenate
from vicinal.pairs import to_ball
from vicinal.runs.journal import Journal
from vicinal.runs.record import Network, Record
from vicinal.runs.run import EmbeddedItems, Run, queries_by_class, recall_at, score_test_items, scores_by_class

__all__ = ["JoinedFolds", "join_folds", "join_vectors"]

JOINED = "concatenated"  # folder of the journal of joined folds
PROTOCOL = "reality-check"


@final
@dataclass(frozen=True)
class JoinedFolds:
    """Joined folds of one method with one network.

    Attributes:
        runs: One run for each joined seed, with fold None and the scores of the joined vectors.
        reasons: Reasons why the folds of other seeds were not joined.
    """

    runs: list[Run] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def join_folds(
    runs: Iterable[Run], folders: Sequence[Path] = (), *, progress: bool = False
) -> dict[tuple[str, Network], JoinedFolds]:
    """Score the joined embeddings of all folds, once for each method, network and seed.

    A seed is joined only if all of its folds are done and their test items were saved.

    Args:
        runs: Runs of one comparison; those of protocols that do not join folds are ignored.
        folders: Folders of the comparisons that the runs belong to. Joined results are cached there.
        progress: Whether to show a bar.
    """
    groups: dict[tuple[str, Network, int], list[Run]] = {}
    for run in runs:
        record = run.record
        if record.protocol == PROTOCOL and record.status == "done" and record.fold is not None:
            groups.setdefault((record.name, record.network, record.seed), []).append(run)
    journals = [Journal(folder / JOINED) for folder in folders]
    cached = {record.key: record for journal in journals for record in journal.records()} if groups else {}
    outcome: dict[tuple[str, Network], JoinedFolds] = {}
    with LiveBar(shown=progress and bool(groups), transient=True) as bar:
        task = bar.add_task("joining folds", total=len(groups))
        for (name, network, seed), members in sorted(groups.items(), key=lambda item: item[0][2]):
            joined = _joined_once(members, cached, journals)
            of_method = outcome.setdefault((name, network), JoinedFolds())
            if isinstance(joined, str):
                of_method.reasons.append(f"seed {seed}: {joined}")
            else:
                of_method.runs.append(Run(joined))
            bar.advance(task)
    return outcome


def _joined_once(members: list[Run], cached: dict[str, Record], journals: Sequence[Journal]) -> Record | str:
    """Return the record of the joined folds of a seed, cached or new, or the reason why there is none."""
    members.sort(key=lambda run: run.record.fold or 0)
    reason = _incomplete([run.record for run in members])
    if reason:
        return reason
    key = hashlib.sha256("".join(run.record.key for run in members).encode()).hexdigest()[:16]
    if key not in cached:
        joined = _join(members, key)
        if isinstance(joined, str):
            return joined
        cached[key] = joined
        if journals:
            with suppress(DataError):  # the folder may be read-only
                journals[0].append(joined)
    return cached[key]


def _incomplete(records: Sequence[Record]) -> str:
    """Return the reason why folds are incomplete; empty if they are complete."""
    folds = max(record.folds or 0 for record in records)
    done = [record.fold for record in records]
    missing = [str(fold) for fold in range(folds) if fold not in done]
    if missing:
        noun = "folds" if len(missing) > 1 else "fold"
        verb = "are" if len(missing) > 1 else "is"
        return f"{folds - len(missing)} of {counted(folds, 'fold')} done, {noun} {listed(missing)} {verb} missing"
    return "" if len(done) == folds else "a fold was run several times with different settings"


def _join(members: Sequence[Run], key: str) -> Record | str:
    """Return the record of joined folds, or the reason why there is none."""
    without = [str(run.record.fold) for run in members if not run.has_test_items]
    if without:
        return f"the test items of fold {listed(without)} were not saved"
    first = members[0].record
    folds = [run.test_items() for run in members]
    labels, roles = folds[0].labels, folds[0].roles
    if not all(np.array_equal(items.labels, labels) and _same_roles(items, folds[0]) for items in folds):
        return "its folds were tested on different items"
    joined = EmbeddedItems(join_vectors(first, folds), labels, roles)
    scores = score_test_items(joined, first.distance, k=recall_at(first.dataset), also=[], intervals=None)
    classes = len(first.classes) or int(labels.max()) + 1
    return first.model_copy(
        update={
            "key": key,
            "recipe": {**first.recipe, "fold": None},
            "validation": {},
            "test": dict(scores.overall),
            "per_class": {score: scores_by_class(scores, score, classes) for score in ("P@1", "P@R", "MAP@R")},
            "queries": queries_by_class(scores, classes),
            "seconds": sum(run.record.seconds for run in members),
        }
    )


def join_vectors(record: Record, folds: Sequence[EmbeddedItems]) -> np.ndarray:
    """Concatenate vectors: normalised if they are compared by cosine, otherwise as they are."""
    vectors = [items.embeddings for items in folds]
    if record.distance == "cosine":
        return concatenate(vectors).numpy()
    joined = torch.from_numpy(np.concatenate(vectors, axis=1))
    return (to_ball(joined) if record.recipe.get("normalisation") == "ball" else joined).numpy()


def _same_roles(items: EmbeddedItems, other: EmbeddedItems) -> bool:
    if items.roles is None or other.roles is None:
        return items.roles is other.roles
    return np.array_equal(items.roles, other.roles)
