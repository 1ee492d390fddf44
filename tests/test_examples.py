"""Every example and benchmark still finds the names that it uses."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*(ROOT / "examples").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_script_can_be_imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(imported(path, monkeypatch).main)


def imported(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


TINY = """
data = "glyphs"
protocol = "reality-check"
backbone = "convnet"
dim = 8
normalisation = "ball"
freeze = "trunk"
train_stages = 1
copies = 1
backbone_options = {widths = [4, 8], size = 16}
ccp.patience = 1

[training]
steps = 8
learning_rate = 0.05
evaluate_every = 1
"""


def test_the_studies_of_proxies_have_the_random_one_and_start_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = imported(ROOT / "examples" / "ccp_runs.py", monkeypatch)
    pools = [cell for cell in runs.cells("pools", "cub") if cell.fold == 0]
    asked = {(cell.changes["ccp"]["proxies_per_class"], cell.changes["ccp"]["pool"]) for cell in pools}
    assert {(1, 1), (8, 12)} <= asked
    assert len({cell.key for cell in pools}) == len(pools)
    assert runs.DATA["cub"]["head_start"] == "random"
    assert {cell.changes["ccp"]["pool_order"] for cell in pools} == {"drawn"}


@pytest.mark.slow
def test_the_study_on_a_trunk_and_the_picture_of_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VICINAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny.toml").write_text(TINY.replace("ccp.patience = 1\n", ""))
    trunk = imported(ROOT / "examples" / "ccp_trunk.py", monkeypatch)
    assert trunk.pairs_apart(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1])) == 4.0
    flags = ["--recipe", str(tmp_path / "tiny.toml"), "--losses", "c2,ms", "--folds", "2", "-o", "ccp.patience=1"]
    monkeypatch.setattr(sys, "argv", ["ccp_trunk.py", *flags, "--out", str(tmp_path / "runs")])
    trunk.main()
    told = capsys.readouterr().out
    assert "| c2 | alone | 0 | 8 |" in told
    gap = r"[+-]\d\.\d{4} \([+-]\d\.\d{4} to [+-]\d\.\d{4}\)"
    assert re.search(rf"\| c2 \| 2 \| {gap} \| [012] of 2 \| \d\.\d{{4}}, \d\.\d{{4}} \| {gap} \| {gap} \|", told)
    assert re.search(rf"\| all \| 4 \| {gap} \| [0-4] of 4 \|  \|  \|", told)

    (tmp_path / "ccp.toml").write_text(TINY)
    picture = imported(ROOT / "examples" / "ccp_picture.py", monkeypatch)
    flags = ["--only", "instances", "--recipe", str(tmp_path / "ccp.toml"), "--runs", str(tmp_path / "pictures")]
    monkeypatch.setattr(sys, "argv", ["ccp_picture.py", *flags, "--out", str(tmp_path)])
    picture.main()
    assert (tmp_path / "ccp-instances.png").stat().st_size > 1000


def test_what_choosing_on_test_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = imported(ROOT / "examples" / "validation_choice.py", monkeypatch)
    assert study.chosen({"curve": [(1, 0.5, 0.1), (2, 0.6, 0.3), (3, 0.4, 0.4)]}) == (0.6, 0.3, 0.4)
    assert study.pearson([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 4.0, 3.0, 5.0]).startswith("+0.80 (-0.28 to +0.99)")

    tiny = TINY.replace("ccp.patience = 1\n", "").replace('freeze = "trunk"\ntrain_stages = 1\ncopies = 1\n', "")
    (tmp_path / "tiny.toml").write_text(tiny.replace("steps = 8", "steps = 3"))
    flags = ["--recipe", str(tmp_path / "tiny.toml"), "--losses", "proxy_anchor", "--rates", "0.01", "--shares", "0.3"]
    flags += ["--seeds", "1", "--folds", "2", "--out", str(tmp_path / "runs.jsonl")]
    monkeypatch.setattr(sys, "argv", ["validation_choice.py", *flags])
    study.main()
    first = capsys.readouterr().out
    assert "| proxy_anchor | 70/30 | 63 |" in first
    assert "| proxy_anchor | 2 |" in first
    runs = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [(one["share"], one["fold"], len(one["curve"])) for one in runs] == [
        (0.3, None, 3),
        (None, 0, 3),
        (None, 1, 3),
    ]
    monkeypatch.setattr(study, "run", None)  # all of it is there: nothing is trained again
    study.main()
    assert capsys.readouterr().out == first


def test_orderings_are_told_for_every_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = ",".join(f"pair-weighting/losses/{name}" for name in ("raw", "raw-vthm"))
    flags = [
        "--losses",
        losses,
        "--dims",
        "4,8",
        "--steps",
        "2",
        "--rates",
        "1",
        "--jobs",
        "1",
        "--no-report",
        "--quiet",
    ]
    done = CliRunner().invoke(app, ["compare", "digits", *flags, "--out", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    orderings = imported(ROOT / "examples" / "orderings.py", monkeypatch)
    monkeypatch.setattr(sys, "argv", ["orderings.py", str(tmp_path / "runs")])
    capsys.readouterr()
    orderings.main()
    told = capsys.readouterr().out
    for dim in (4, 8):
        of_network = told.split(f"convnet, {dim}-D\n\n")[1].split("verdict: ")[0]
        assert "| raw-vthm |" in of_network
        assert "- RAW + VTHM over RAW: raw" in of_network
        assert "raw-vthm is 1 of 2" in of_network or "raw-vthm is 2 of 2" in of_network
