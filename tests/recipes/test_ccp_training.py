"""Chance-constrained proxies by recipe: presets, frozen features and full networks, one process and two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from vicinal.data import Split, digits, split
from vicinal.errors import InputError
from vicinal.runs._train import fit
from vicinal.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.recipe

SMALL: dict[str, Any] = {
    "loss": "contrastive_c2",
    "normalisation": "ball",
    "backbone_options": {"widths": [4, 8], "size": 16},
    "dim": 4,
    "classes_per_batch": 2,
    "steps": 24,
    "evaluate_every": 2,
    "learning_rate": 3e-3,
    "progress": False,
}
QUICK = {"preset": "code", "patience": 1, "proxies_per_class": 2, "pool": 3}


@pytest.fixture(scope="module")
def halves() -> Split:
    return split(digits(), "fixed-validation", validation=0.6)


@pytest.mark.parametrize("freeze", [False, True], ids=["network", "frozen"])
@pytest.mark.parametrize("images", ["augmented", "plain"])
def test_fit_alternates_and_records(freeze: bool, images: str, halves: Split, tmp_path: Path) -> None:
    options = {**SMALL, "freeze": freeze, "copies": 2, "cache": tmp_path / "cache", "learning_rate": 0.1}
    fit(halves, folder=tmp_path / "run", ccp={**QUICK, "pool_images": images}, **options)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    instances = [line for line in lines if "instance" in line]
    assert len(record["instances"]) == len(instances) >= 1
    assert [line["instance"] for line in instances] == list(range(1, len(instances) + 1))
    shown = {"MAP@R", "covering radius", "inter-class distance", "proxy spread", "next proxy radius"}
    assert shown < set(instances[0])
    state = load_checkpoint(tmp_path / "run" / "last.ckpt")["hooks"][0]
    assert all(name.startswith(("head.", "linear.")) for name in state["_anchor"]) == freeze


def test_a_cached_trunk_until_evaluations_bring_nothing(halves: Split, tmp_path: Path) -> None:
    trunk = {"freeze": "trunk", "train_stages": 1, "copies": 2, "cache": tmp_path / "cache", "head_bias": False}
    options = {**SMALL, **trunk, "steps": 2000, "patience": 6, "decay_before_clipping": True, "clip_norm": 10.0}
    embedder = fit(halves, folder=tmp_path / "run", ccp=QUICK, **options)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["steps"] < 2000
    assert record["steps"] == record["best_step"] + 6 * 2
    assert len(record["instances"]) > 1
    assert {"distance moved", "proximal pull", "proxy cosine"} < set(record["instances"][1])
    assert [note.split(";")[0] for note in record["notes"] if note.startswith("Chance")] == [
        f"Chance-constrained proxies completed {len(record['instances'])} instances"
    ]
    assert embedder.head.linear.bias is None
    state = load_checkpoint(tmp_path / "run" / "last.ckpt")["hooks"][0]
    assert {name.split(".")[0] for name in state["_anchor"]} == {"rest", "head"}


@pytest.mark.slow
def test_a_killed_run_ends_as_if_it_had_not_been(
    halves: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SMALL, "ccp": QUICK, "checkpoint_every": 1}
    fit(halves, folder=tmp_path / "whole", **options)
    replace, writes = os.replace, iter(range(1, 1000))

    def stop(source: Any, target: Any) -> None:
        if Path(target).name == "last.ckpt" and next(writes) == 15:
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("vicinal._util.files.os.replace", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(halves, folder=tmp_path / "run", **options)
    assert load_checkpoint(tmp_path / "run" / "last.ckpt")["progress"]["step"] == 14
    fit(halves, folder=tmp_path / "run", resume=True, **options)
    one, other = (load_checkpoint(tmp_path / run / "last.ckpt") for run in ("whole", "run"))
    for part in ("model", "criterion"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])
    assert one["hooks"][0]["history"] == other["hooks"][0]["history"]
    assert all(
        torch.equal(one["hooks"][0]["_anchor"][name], other["hooks"][0]["_anchor"][name])
        for name in one["hooks"][0]["_anchor"]
    )


def test_without_validation_classes_nothing_can_converge(tmp_path: Path) -> None:
    two = split(digits(), "k-fold", fold=0, folds=2)  # three and two of the five training classes
    for view, count in ((split(digits(), "default"), 0), (two, 2)):
        with pytest.raises(InputError, match=rf"need 3 of them \(in every fold.*; got {count}\. Choose a protocol"):
            fit(view, ccp="code", **SMALL)


FLAGS = [
    *("--loss", "contrastive_c2", "--ccp", "paper", "--dim", "4", "--steps", "16", "--learning-rate", "0.01"),
    *("-o", "normalisation=ball", "-o", "batch=2x4", "-o", "optimiser=sgd", "-o", "freeze_batch_norm=true"),
    *("-o", "validation=0.6", "-o", "min_improvement=0.01"),
    *("-o", 'backbone_options={"widths": [4, 8], "size": 16}', "-o", "evaluate_every=2", "-o", "accelerator=cpu"),
]
CHILD = "import torch; torch.set_num_threads(1); from vicinal.cli.main import main; main()"


@pytest.mark.slow
def test_two_processes_have_the_proxies_of_one(tmp_path: Path) -> None:
    from vicinal.cli.main import app

    (tmp_path / "child.py").write_text(CHILD)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--"]
    done = subprocess.run(
        [*launch, str(tmp_path / "child.py"), "train", "digits", "--out", str(tmp_path / "two"), *FLAGS],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    alone = CliRunner().invoke(app, ["train", "digits", "--out", str(tmp_path / "one"), *FLAGS])
    assert alone.exit_code == 0, alone.output
    records = [json.loads((tmp_path / run / "record.json").read_text())["instances"] for run in ("one", "two")]
    assert len(records[0]) == len(records[1]) >= 1
    for one, two in zip(*records, strict=True):
        assert two == pytest.approx(one, abs=1e-3, nan_ok=True)  # one class has no other to be far from
    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-4)
    one, two = (load_checkpoint(tmp_path / run / "last.ckpt")["criterion"] for run in ("one", "two"))
    torch.testing.assert_close(two["references.0.vectors"], one["references.0.vectors"], rtol=0, atol=1e-3)
