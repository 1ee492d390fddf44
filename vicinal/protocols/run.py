"""Run one trial: split, train, embed the test classes, score, and leave a folder that shows all of it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vicinal.data import Dataset
from vicinal.embedder import Embedder
from vicinal.errors import DataError
from vicinal.evaluation import Scores, spectral_decay
from vicinal.statistics.intervals import class_sums
from vicinal.fitting import METRICS, fit
from vicinal.results.record import Record
from vicinal.protocols.trial import Trial
from vicinal.scoring import score_embeddings
from vicinal.training.checkpoint import write_atomically
from vicinal.training.engine import BEST, LAST
from vicinal.training.frozen_features import frozen_features

__all__ = ["embed_test", "failed", "queries_by_class", "run_trial", "scores_by_class"]

EMBEDDINGS = "test.npz"


def run_trial(
    trial: Trial,
    data: Dataset,
    folder: Path,
    *,
    workers: int = 0,
    skip_bad: bool = False,
    cache: Path | None = None,
    keep_model: bool = True,
    command: str = "",
    progress: bool = False,
) -> Record:
    """Train and score one trial; one that was interrupted goes on from its last checkpoint.

    Args:
        trial: What to run.
        data: The whole dataset.
        folder: Of the trial: recipe.toml, metrics.jsonl, test.npz and model/.
        workers: Processes that decode images.
        skip_bad: Leave out images that cannot be read instead of stopping.
        cache: Where frozen features are kept, by default the user's cache folder.
        keep_model: Whether the trained embedder stays in the folder.
        command: What repeats the comparison, for the record.
        progress: Whether to show a bar.

    Returns:
        What came out, for `write_record`.
    """
    whole = trial.split(data)
    if whole.test is None:
        raise DataError(f"{trial.dataset} has no test classes under protocol {trial.protocol!r}.")
    run: dict[str, Any] = {"workers": workers, "skip_bad": skip_bad, "cache": cache, "progress": progress}
    embedder = fit(trial.visible(whole), trial.recipe, folder=folder, resume=True, **run)
    outcome = json.loads((folder / "record.json").read_text())
    embeddings = embed_test(embedder, whole.test, freeze=trial.recipe.freeze, cache=cache)
    _save(folder / EMBEDDINGS, embeddings=embeddings, labels=whole.test.labels)
    scores = score_embeddings(embeddings, whole.test, distance=embedder.distance, full_ranking=False, draws=0)
    record = Record(
        key=trial.key,
        name=trial.name,
        status="done",
        dataset=trial.dataset,
        data=trial.data,
        protocol=trial.protocol,
        split=whole.hash(),
        seed=trial.seed,
        fold=trial.fold,
        selected_on=trial.selected_on,
        recipe=trial.recipe.model_dump(mode="json"),
        demands=trial.demands,
        tuning_trials=trial.tuning_trials,
        validation=_validation(folder, outcome["best_step"]),
        test=dict(scores.overall) | {"spectral decay": spectral_decay(embeddings)},
        classes=whole.test.class_names,
        per_class={metric: scores_by_class(scores, metric) for metric in METRICS},
        queries=queries_by_class(scores),
        steps=outcome["step"],
        best_step=outcome["best_step"],
        seconds=outcome["seconds"],
        peak_memory_mib=_peak_memory(),
        versions=outcome["versions"],
        command=command,
        finished=_now(),
    )
    _tidy(folder, keep_model)
    return record


def failed(trial: Trial, error: BaseException | str, folder: Path, *, command: str = "") -> Record:
    """Return the record of a trial that failed, and leave the traceback in its folder."""
    text = error if isinstance(error, str) else str(error) or type(error).__name__
    if not isinstance(error, str):
        with suppress(OSError, DataError):  # the disk may be what failed
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / "error.txt", "".join(traceback.format_exception(error)))
            text += f" The traceback is in {folder.name}/error.txt."
    return Record(
        key=trial.key,
        name=trial.name,
        status="failed",
        error=text,
        dataset=trial.dataset,
        data=trial.data,
        protocol=trial.protocol,
        split="",
        seed=trial.seed,
        fold=trial.fold,
        selected_on=trial.selected_on,
        recipe=trial.recipe.model_dump(mode="json"),
        demands=trial.demands,
        tuning_trials=trial.tuning_trials,
        command=command,
        finished=_now(),
    )


def embed_test(
    embedder: Embedder, data: Dataset, *, freeze: bool = False, cache: Path | None = None
) -> npt.NDArray[np.float32]:
    """Embed the test items; where the backbone was frozen only the head runs, on features from the cache."""
    if not freeze or embedder.backbone.input.pixels is None:
        return embedder.encode(data, workers=1)
    features = frozen_features(embedder, data, embedder.transform, cache=cache, progress=False)[:, 0]
    with torch.inference_mode():
        return embedder.head(torch.from_numpy(features).to(embedder.device)).float().cpu().numpy()


def scores_by_class(scores: Scores, metric: str) -> tuple[float | None, ...]:
    """Return the mean score of each class in the order of labels; None where no query of a class was scored."""
    found = scores.per_class(metric)
    return tuple(found.get(label) for label in scores.classes)


def queries_by_class(scores: Scores) -> tuple[int, ...]:
    """Return how many queries of each class were scored."""
    counts = class_sums(scores.per_query["MAP@R"], scores.query_classes, len(scores.classes))[1]
    return tuple(counts.tolist())


def _validation(folder: Path, step: int) -> dict[str, float]:
    """Return the validation scores at a step, from the run's log."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = [line for line in lines if line["step"] == step and METRICS[0] in line]
    return {metric: found[-1][metric] for metric in METRICS} if found else {}


def _save(path: Path, **arrays: npt.NDArray[Any]) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise DataError(
            f"Could not write {path}: {error.strerror}.", hint="Free some space or choose another folder."
        ) from error


def _tidy(folder: Path, keep_model: bool) -> None:
    """Remove what only an unfinished run needs."""
    for name in (LAST, BEST):
        (folder / name).unlink(missing_ok=True)
    if not keep_model:
        shutil.rmtree(folder / "model", ignore_errors=True)


def _peak_memory() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
