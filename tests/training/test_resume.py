"""A run that is killed at any moment and resumed ends exactly as the run that never was."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from vicinal.data import Split, digits, split
from vicinal.errors import VicinalError
from vicinal.runs._train import fit
from vicinal.runs.run import Run
from vicinal.training import checkpoint
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.log import read_log

pytestmark = pytest.mark.recipe

RECIPE: dict[str, Any] = {
    "loss": "proxy_anchor",
    "mining": "random",
    "mining_options": {"positives": 2, "negatives": 3},
    "memory": 50,
    "memory_start": 10,
    "backbone_options": {"widths": [4, 8], "size": 16},
    "dim": 8,
    "classes_per_batch": 2,
    "steps": 40,
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "warm_up": 5,
    "evaluate_every": 10,
    "checkpoint_every": 4,
    "log_every": 5,
}
# Children of a process that has imported nothing but this: a new interpreter would take seconds to import torch, and a
# fork of this one has whatever other tests have loaded, of which not everything survives a second fork.
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["vicinal.runs._train"])


@pytest.fixture(scope="module")
def halves() -> Split:
    return split(digits(), "fixed-validation", validation=0.6)


def train(halves: Split, folder: Path, workers: int, resume: bool) -> None:
    fit(halves, folder=folder, workers=workers, resume=resume, progress=False, **RECIPE)


def start(target: Callable[..., object], *arguments: object) -> BaseProcess:
    process = forks.Process(target=child, args=(target, *arguments))
    process.start()
    return process


def child(target: Callable[..., object], *arguments: object) -> None:
    os.setpgid(0, 0)
    torch.set_num_threads(1)
    target(*arguments)


def finish(process: BaseProcess) -> int | None:
    process.join(60)
    assert process.exitcode is not None, "the child hangs"
    return process.exitcode


def result(folder: Path) -> dict[str, Any]:
    """Everything that a run leaves, but for what clocks say."""
    last, best = load_checkpoint(folder / "last.ckpt"), load_checkpoint(folder / "best.ckpt")
    assert last["progress"].pop("run") == best.pop("run")  # drawn at random for each run
    record = Run.open(folder).record.model_dump(exclude={"seconds", "finished", "peak_memory_mib"})
    del last["progress"]["seconds"]
    return {
        "last": repr(flat(last)),
        "best": repr(flat(best)),
        "model": (folder / "model" / "model.safetensors").read_bytes(),
        "record": record,
        "log": [
            {name: value for name, value in line.items() if name != "images_per_second"}
            for line in read_log(folder / "metrics.jsonl")
        ],
        "files": sorted(os.listdir(folder)),
    }


def flat(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {name: flat(item) for name, item in value.items()}
    return [flat(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def uninterrupted(halves: Split, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert finish(start(train, halves, folder, 0, False)) == 0
    return result(folder)


@pytest.fixture(scope="module")
def seconds(halves: Split, tmp_path_factory: pytest.TempPathFactory) -> float:
    began = time.perf_counter()
    assert finish(start(train, halves, tmp_path_factory.mktemp("timed") / "run", 0, False)) == 0
    return time.perf_counter() - began


def test_the_run_is_worth_resuming(uninterrupted: dict[str, Any]) -> None:
    assert 0 < uninterrupted["record"]["best_step"] <= 40
    assert [line["step"] for line in uninterrupted["log"] if "score" in line] == [10, 20, 30, 40]
    assert uninterrupted["files"] == [
        ".lock",
        "best.ckpt",
        "last.ckpt",
        "metrics.jsonl",
        "model",
        "recipe.toml",
        "record.json",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_killed_at_random_moments(
    workers: int, halves: Split, uninterrupted: dict[str, Any], seconds: float, tmp_path: Path
) -> None:
    draw, kills = random.Random(workers), 0
    longest = 0.4 * seconds
    while True:
        process = start(train, halves, tmp_path / "run", workers, True)
        process.join(draw.uniform(0.0, longest))
        if process.exitcode is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not got so far as to have a group
                os.kill(process.pid, signal.SIGKILL)
        if finish(process) == 0:
            break
        kills += 1
        longest *= 1.15  # so that a slow machine gets to its next checkpoint sooner or later
    assert kills >= 2
    assert result(tmp_path / "run") == uninterrupted


def train_and_die(at: int, half: bool, *arguments: Any) -> None:
    """Train in a process that kills itself at its write number `at`: in the midst of it, or before it counts."""
    writes = iter(range(1, 1000))
    save, replace = checkpoint.save_file, os.replace

    def save_half(tensors: Any, path: Path, metadata: Any) -> None:
        save(tensors, path, metadata=metadata)
        if half and next(writes) == at:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    def replace_not(source: Any, target: Any) -> None:
        if not half and next(writes) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    checkpoint.save_file, os.replace = save_half, replace_not
    train(*arguments)


def train_and_tell(place: Path, *arguments: Any) -> None:
    """Train; what it says when it is stopped goes to a file."""
    try:
        train(*arguments)
    except VicinalError as error:
        place.write_text(str(error))
        sys.exit(7)


@pytest.mark.slow
@pytest.mark.parametrize("half", [True, False], ids=["half-written", "not-yet-named"])
def test_killed_while_writing_a_checkpoint(
    half: bool, halves: Split, uninterrupted: dict[str, Any], tmp_path: Path
) -> None:
    for at in (1, 2, 3, 4, 5, 6):
        process = start(train_and_die, at, half, halves, tmp_path / "run", 0, True)
        if finish(process) == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert finish(start(train, halves, tmp_path / "run", 0, True)) == 0
    assert result(tmp_path / "run") == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 1), (signal.SIGTERM, 0)])
def test_asked_to_stop(number: int, workers: int, halves: Split, uninterrupted: dict[str, Any], tmp_path: Path) -> None:
    process = start(train_and_tell, tmp_path / "said", halves, tmp_path / "run", workers, False)
    log = tmp_path / "run" / "metrics.jsonl"
    while not (log.exists() and log.read_text().count("\n") >= 2) and process.is_alive():
        time.sleep(0.002)
    # a terminal's Ctrl-C goes to the workers too
    os.killpg(process.pid, number) if number == signal.SIGINT else os.kill(process.pid, number)
    assert finish(process) == 7
    said = (tmp_path / "said").read_text()
    assert said.endswith(f"It is saved in {tmp_path / 'run'}; continue with --resume (resume=True).")
    assert f"Stopped at step {load_checkpoint(tmp_path / 'run' / 'last.ckpt')['progress']['step']} of 40." in said
    assert finish(start(train, halves, tmp_path / "run", workers, True)) == 0
    assert result(tmp_path / "run") == uninterrupted
