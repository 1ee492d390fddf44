"""A comparison as `vicinal compare` leaves it, made in seconds: real images, and linear maps of them for embeddings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from vicinal._util.files import sealed
from vicinal.data import Dataset, load, split
from vicinal.data.splits import Split
from vicinal.evaluation import evaluate
from vicinal.runs import EmbeddedItems, Journal, Record, Run
from vicinal.runs.recipe import Recipe

# How much noise the "embeddings" of each loss have: the less, the better.
NOISE = {
    "proxy_anchor": 0.3, "multi_similarity": 0.45, "soft_triple": 0.5, "contrastive": 0.8, "margin": 0.85,
    "lifted_structure": 0.9, "arcface": 1.0, "proxy_nca": 1.1, "triplet": 1.3, "n_pair": 1.6,
}  # fmt: skip


@cache
def data_of(name: str) -> Dataset:
    return load(name)


@cache
def split_of(name: str, protocol: str, seed: int, fold: int | None) -> tuple[Split, str]:
    made = split(data_of(name), protocol, seed=seed, fold=fold)
    return made, made.hash()


def _make_comparison(
    folder: Path,
    *,
    dataset: str = "digits",
    protocol: str = "fixed-validation",
    losses: Sequence[str] = ("proxy_anchor", "contrastive", "triplet"),
    seeds: Sequence[int] = (0, 1, 2),
    folds: Sequence[int | None] = (None,),
    dims: Sequence[int] = (16,),
    selected_on: str = "validation",
    steps: int = 200,
) -> Path:
    """Write journal, logs and embeddings of a grid of trials."""
    for dim in dims:
        for seed in seeds:
            for fold in folds:
                for loss in losses:
                    _trial(folder, dataset, protocol, loss, seed, fold, dim, selected_on, steps)
    return folder


def _trial(
    folder: Path,
    dataset: str,
    protocol: str,
    loss: str,
    seed: int,
    fold: int | None,
    dim: int,
    selected: str,
    steps: int,
) -> None:
    views, split_hash = split_of(dataset, protocol, seed, fold)
    test = views.test
    assert test is not None
    pixels = np.asarray(test.items, dtype=np.float32).reshape(len(test), -1)
    pixels = (pixels - pixels.mean(axis=0)) / pixels.std()
    generator = np.random.default_rng([seed, fold or 0, len(loss)])
    directions = np.linalg.svd(pixels[:: max(1, len(pixels) // 1000)], full_matrices=False)[2][:dim].T
    embeddings = pixels @ directions
    embeddings += NOISE[loss] * embeddings.std() * generator.standard_normal(embeddings.shape)
    embeddings = (embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)).astype(np.float32)
    scores = evaluate(embeddings, test.labels, k=[1, 2, 4, 8], also=[], intervals=None)
    asked = {
        "loss": loss,
        "dim": dim,
        "steps": steps,
        "seed": seed,
        "data": dataset,
        "protocol": protocol,
        "fold": fold,
    }
    recipe = Recipe.of(asked)
    proxies = loss.startswith(("proxy", "arcface", "soft_triple"))
    by_class = {name: scores.per_class(name) for name in ("P@1", "P@R", "MAP@R")}
    key = f"{dataset}-{protocol}-{loss}-{dim}-{seed}-{fold}"
    record = Record(
        key=key,
        name=loss,
        status="done",
        data=data_of(dataset).hash(),
        split=split_hash,
        selected_on=selected,  # type: ignore[arg-type]
        recipe=recipe.model_dump(mode="json"),
        demands=("1 item per class", "proxy learning rate x100") if proxies else (),
        validation={"MAP@R": min(1.0, scores["MAP@R"] + 0.1 * generator.random()), "P@1": 0.9},
        test={name: value for name, value in scores.overall.items() if np.isfinite(value)},
        classes=test.class_names,
        per_class={
            name: tuple(found.get(label) for label in range(len(test.class_names))) for name, found in by_class.items()
        },
        queries=tuple(int(count) for count in np.bincount(test.labels)),
        steps=steps,
        best_step=steps - 20 * int(generator.integers(0, 3)),
        seconds=20.0 + 10 * float(generator.random()),
        peak_memory_mib=512.0,
        versions={"vicinal": "0.1.0", "torch": "2.6.0", "python": "3.11"},
        command=f"vicinal compare {dataset} --losses {','.join(NOISE)} --protocol {protocol} --seeds 3",
        finished=f"2026-01-0{1 + seed}T12:00:00Z",
    )
    run = Run(record, Journal(folder).run_folder(key))
    run.files.folder.mkdir(parents=True)
    run.save_test_items(EmbeddedItems(embeddings, test.labels, None))
    lines = []
    for step in range(10, steps + 1, 10):
        fall = np.exp(-3 * step / steps)
        lines.append({"step": step, "loss": float(1 + 4 * fall + 0.2 * generator.random())})
        if step % 20 == 0:
            lines.append({"step": step, "score": float(record.validation["MAP@R"] * (1 - fall))})
    run.files.log.write_bytes(b"".join(sealed(json.dumps(line).encode()) + b"\n" for line in lines))
    Journal(folder).append(record)


def _fail(
    folder: Path, loss: str, *, seed: int = 9, dataset: str = "digits", protocol: str = "fixed-validation"
) -> None:
    """Add a trial that ended with an error."""
    recipe = Recipe.of({"loss": loss, "data": dataset, "protocol": protocol, "seed": seed})
    Journal(folder).append(
        Record(
            key=f"failed-{loss}-{seed}",
            name=loss,
            status="failed",
            error="NotFinite: The loss is nan. See trials/failed/error.txt <script>alert(1)</script>",
            recipe=recipe.model_dump(mode="json"),
        )
    )


@pytest.fixture(scope="session")
def make_comparison() -> Callable[..., Path]:
    """Write journal, logs and embeddings of a grid of trials to a folder."""
    return _make_comparison


@pytest.fixture(scope="session")
def fail() -> Callable[..., None]:
    """Add a trial that ended with an error."""
    return _fail
