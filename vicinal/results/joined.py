"""The reality check's second number: the models of all folds, joined to one.

Each fold trains a model on the other folds' classes. Their scores are averaged ("separate"), and their embeddings of
the test items are joined ("concatenated"), which is a better model of as many times the dimension.

Reference:
    Musgrave, Belongie and Lim (2020), A Metric Learning Reality Check, section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from vicinal.protocols.run import EMBEDDINGS, queries_by_class, scores_by_class

from vicinal.data import PROTOCOLS
from vicinal.errors import DataError
from vicinal.evaluation import concatenate, evaluate
from vicinal.fitting import METRICS
from vicinal.pairs import to_ball
from vicinal.results.record import JOURNAL, Record, read_records, trial_folder, write_record

__all__ = ["concatenated"]

JOINED = "concatenated"


def concatenated(records: Iterable[Record], folders: Sequence[Path]) -> list[Record]:
    """Score the joined embeddings of all folds, once for each loss, network, dimension and seed.

    Args:
        records: Of trials; groups that lack a fold, or whose embeddings were not kept, are left out.
        folders: Of the comparisons they belong to. What is found is kept there, and not computed again.

    Returns:
        Records whose fold is None and whose scores are those of the joined embeddings.
    """
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        if record.status == "done" and record.protocol == "reality-check":
            settings = (record.name, record.data, record.recipe["backbone"], record.recipe["dim"], record.seed)
            groups.setdefault(settings, []).append(record)
    kept = {one.key: one for folder in folders for one in _kept(folder)}
    found = []
    for group in groups.values():
        members = sorted(group, key=lambda record: record.fold or 0)
        if [record.fold for record in members] != list(range(_folds(members))):
            continue
        key = hashlib.sha256("".join(record.key for record in members).encode()).hexdigest()[:16]
        if key not in kept:
            joined = _join(members, folders, key)
            if joined is None:
                continue
            kept[key] = joined
            with suppress(DataError):  # a folder that is only to be read is read all the same
                write_record(folders[0] / JOINED, joined)
        found.append(kept[key])
    return found


def _folds(members: Sequence[Record]) -> int:
    usual = PROTOCOLS["reality-check"] or 1
    return max(usual if len(members) >= usual else len(members), max(record.fold or 0 for record in members) + 1)


def _kept(folder: Path) -> list[Record]:
    return read_records(folder / JOINED) if (folder / JOINED / JOURNAL).exists() else []


def _join(members: Sequence[Record], folders: Sequence[Path], key: str) -> Record | None:
    loaded = [_load(record, folders) for record in members]
    if any(one is None for one in loaded):
        return None
    both = [one for one in loaded if one is not None]
    vectors = [one[0] for one in both]
    # Where lengths count vectors are joined as they are, and clipped ones clipped again; others by direction alone.
    kind = members[0].recipe.get("normalisation", "sphere")
    joined = concatenate(vectors) if kind == "sphere" else torch.from_numpy(np.concatenate(vectors, axis=1))
    joined = to_ball(joined) if kind == "ball" else joined
    metric = "cosine" if kind == "sphere" else "euclidean"
    scores = evaluate(joined, both[0][1], metric=metric, full_ranking=False, draws=0)
    return members[0].model_copy(
        update={
            "key": key,
            "fold": None,
            "validation": {},
            "test": dict(scores.overall),
            "per_class": {metric: scores_by_class(scores, metric) for metric in METRICS},
            "queries": queries_by_class(scores),
            "seconds": sum(record.seconds for record in members),
        }
    )


def _load(record: Record, folders: Sequence[Path]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]] | None:
    for folder in folders:
        path = trial_folder(folder, record.key) / EMBEDDINGS
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                return file["embeddings"], file["labels"]
    return None
