"""Journals, sorted into comparisons: trials of the same data under the same protocol, and nothing else together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vicinal.errors import InputError
from vicinal.results import Record, read_records, trial_folder
from vicinal.results.joined import concatenated

__all__ = ["Comparison", "Entry", "Trial", "read_comparisons"]

DEFAULT_METRIC = "MAP@R"


@final
@dataclass(frozen=True)
class Trial:
    """A record, and where its files are.

    Args:
        record: Of the journal.
        folder: None where its files were not kept.
    """

    record: Record
    folder: Path | None

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl; a line that a killed process left half-written is passed over."""
        path = None if self.folder is None else self.folder / "metrics.jsonl"
        if path is None or not path.exists():
            return []
        lines = []
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                continue
        return lines

    @property
    def has_embeddings(self) -> bool:
        """Whether the embeddings of the test items were kept."""
        return self.folder is not None and (self.folder / "test.npz").exists()

    def embeddings(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """The embeddings and labels of the test items, read anew each time: those of many trials may not fit memory."""
        if self.folder is None:
            raise InputError(f"The files of trial {self.record.key} were not kept.")
        with np.load(self.folder / "test.npz", allow_pickle=False) as file:
            return file["embeddings"], file["labels"]


@final
@dataclass(frozen=True)
class Entry:
    """What a row of a table is about: one loss with one backbone and one dimension, over seeds and folds.

    Args:
        name: What tables call the loss.
        backbone: Name of the network.
        dim: Length of the embeddings.
        trials: Those that were done.
    """

    name: str
    backbone: str
    dim: int | None
    trials: tuple[Trial, ...]

    @property
    def label(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")

    @property
    def records(self) -> tuple[Record, ...]:
        """Of its trials."""
        return tuple(trial.record for trial in self.trials)

    @property
    def seeds(self) -> list[int]:
        """In order."""
        return sorted({record.seed for record in self.records})

    def by_seed(self, metric: str) -> list[float]:
        """The test score of each seed: the mean over its folds."""
        return [
            float(np.mean([record.test[metric] for record in self.records if record.seed == seed]))
            for seed in self.seeds
        ]

    def mean(self, metric: str) -> float:
        """The test score over seeds."""
        return float(np.mean(self.by_seed(metric)))

    def validation(self, metric: str) -> float | None:
        """The mean score on validation classes, of the steps that were chosen by it; None where there were none."""
        known = [record.validation[metric] for record in self.records if metric in record.validation]
        return float(np.mean(known)) if known else None

    def typical(self) -> Trial:
        """The trial whose files are there and whose score lies in the middle of its seeds and folds."""
        kept = [trial for trial in self.trials if trial.has_embeddings] or list(self.trials)
        ordered = sorted(kept, key=lambda trial: trial.record.test.get(DEFAULT_METRIC, 0.0))
        return ordered[len(ordered) // 2]


@final
@dataclass(frozen=True, eq=False)
class Comparison:
    """All trials on one dataset under one protocol.

    Args:
        trials: Done and failed; at least one.
        folders: They were read from.
    """

    trials: tuple[Trial, ...]
    folders: tuple[Path, ...]

    @property
    def first(self) -> Record:
        """Any of the records, for what they share."""
        return self.trials[0].record

    @property
    def title(self) -> str:
        """Data and protocol in words."""
        return f"{Path(self.first.dataset).name}, {self.first.protocol.replace('-', ' ')} protocol"

    @property
    def failed(self) -> list[Record]:
        """Trials without scores."""
        return [trial.record for trial in self.trials if trial.record.status == "failed"]

    @cached_property
    def metric(self) -> str:
        """The score that models were chosen by, where it was measured on the test classes."""
        done = [trial.record for trial in self.trials if trial.record.status == "done"]
        asked = str(done[0].recipe.get("training", {}).get("metric", DEFAULT_METRIC)) if done else DEFAULT_METRIC
        return asked if all(asked in record.test for record in done) else DEFAULT_METRIC

    @cached_property
    def entries(self) -> list[Entry]:
        """Of the trials that were done, best first by the mean test score."""
        found = _entries(trial for trial in self.trials if trial.record.status == "done")
        return sorted(found, key=lambda entry: -entry.mean(self.metric))

    @cached_property
    def joined(self) -> list[Entry]:
        """The folds of each seed joined to one embedder, best first; under the reality-check protocol alone."""
        records = concatenated((trial.record for trial in self.trials), self.folders)
        return sorted(_entries(Trial(record, None) for record in records), key=lambda entry: -entry.mean(self.metric))

    @cached_property
    def networks(self) -> list[tuple[str, int | None]]:
        """Backbones and dimensions, narrow ones first."""
        found = {(entry.backbone, entry.dim) for entry in self.entries}
        return sorted(found, key=lambda network: (network[0], network[1] or 0))

    @cached_property
    def main_network(self) -> tuple[str, int | None]:
        """The backbone and dimension that details are shown of: those of the best entry by validation scores.

        Without validation classes it is the best on the test classes, which tends to flatter.
        """
        validated = [entry for entry in self.entries if entry.validation(self.metric) is not None]
        best = max(validated, key=lambda entry: entry.validation(self.metric) or 0.0, default=self.entries[0])
        return best.backbone, best.dim

    def of_network(self, network: tuple[str, int | None]) -> list[Entry]:
        """The entries with one backbone and dimension, best first."""
        return [entry for entry in self.entries if (entry.backbone, entry.dim) == network]

    @cached_property
    def losses(self) -> list[Entry]:
        """The entries of the main network, best first: one for each loss."""
        return self.of_network(self.main_network)

    @property
    def records(self) -> list[Record]:
        """Of the trials that were done."""
        return [record for entry in self.entries for record in entry.records]


def read_comparisons(folders: Sequence[Path]) -> list[Comparison]:
    """Read the journals of folders and sort their trials.

    Trials are compared only where the content of the data, the protocol and what chose the reported step are the same.

    Raises:
        InputError: Where a folder holds no journal, or no trial is in any.
    """
    if not folders:
        raise InputError("A report needs at least one folder that `vicinal compare` wrote; got none.")
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    # A trial that failed early knows neither the content nor what would have chosen its step: it joins the others.
    for record in sorted(read_records(*folders), key=lambda record: record.status == "failed"):
        places = (trial_folder(folder, record.key) for folder in folders)
        trial = Trial(record, next((place for place in places if place.is_dir()), None))
        key: tuple[str, str, str] = (record.protocol, record.data, record.selected_on)
        if record.status == "failed" and key not in groups:
            alike = (group for group, members in groups.items() if _same_task(members[0].record, record))
            key = next(alike, key)
        groups.setdefault(key, []).append(trial)
    if not groups:
        raise InputError(f"No trial has finished in {', '.join(map(str, folders))}: there is nothing to report yet.")
    return [Comparison(tuple(trials), tuple(folders)) for trials in groups.values()]


def _same_task(one: Record, other: Record) -> bool:
    return (one.dataset, one.protocol) == (other.dataset, other.protocol)


def _entries(trials: Iterable[Trial]) -> list[Entry]:
    """Group trials by loss and network; within a group by seed and fold."""
    found: dict[tuple[str, str, int | None], list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: (trial.record.seed, trial.record.fold or 0)):
        record = trial.record
        key = (record.name, str(record.recipe.get("backbone", "")), record.recipe.get("dim"))
        found.setdefault(key, []).append(trial)
    return [Entry(*key, tuple(members)) for key, members in found.items()]
