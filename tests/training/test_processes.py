"""Two processes that torchrun starts train as one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from vicinal.training.processes import is_first_process, start_processes
from vicinal.training.settings import Settings

pytestmark = pytest.mark.recipe

CHILD = "import torch; torch.set_num_threads(1); from vicinal.cli.main import main; main()"
FLAGS = [
    *("--loss", "proxy_anchor", "--mining", "random", "--dim", "8", "--steps", "12", "--learning-rate", "0.01"),
    *("-o", "memory=40", "-o", "classes_per_batch=3", "-o", "optimiser=sgd", "-o", "freeze_batch_norm=true"),
    *("-o", 'backbone_options={"widths": [4, 8], "size": 16}', "-o", "evaluate_every=6", "-o", "log_every=1"),
    *("-o", "accelerator=cpu", "-o", "clip_norm=1.0"),
]


def torchrun(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "child.py").write_text(CHILD)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        # without the "--" torchrun takes --run for its own --run-path
        [*launch, "--", str(folder / "child.py"), "train", "digits", *flags],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "VICINAL_CACHE": str(folder / "cache")},
    )


def test_alone_without_torchrun() -> None:
    fabric = start_processes(Settings(accelerator="cpu"))
    assert (fabric.world_size, fabric.global_rank) == (1, 0)
    assert is_first_process()


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one(tmp_path: Path) -> None:
    from vicinal.cli.main import app

    done = torchrun(tmp_path, "--out", str(tmp_path / "two"), *FLAGS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Model: ") == 1
    alone = CliRunner().invoke(app, ["train", "digits", "--out", str(tmp_path / "one"), *FLAGS])
    assert alone.exit_code == 0, alone.output

    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    for name in one:
        torch.testing.assert_close(
            two[name], one[name], rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    scores = [json.loads((tmp_path / run / "record.json").read_text())["test"]["MAP@R"] for run in ("one", "two")]
    assert scores[1] == pytest.approx(scores[0], abs=1e-4)
    losses = {run: logged(tmp_path / run) for run in ("one", "two")}
    assert losses["two"] == pytest.approx(losses["one"], rel=1e-5)
    assert len(losses["one"]) == 12


def logged(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]
