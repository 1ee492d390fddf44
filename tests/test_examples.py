"""Every example and benchmark still finds the names that it uses."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    flags = ["--recipe", str(tmp_path / "tiny.toml"), "--losses", "c2", "--folds", "1", "-o", "ccp.patience=1"]
    monkeypatch.setattr(sys, "argv", ["ccp_trunk.py", *flags, "--out", str(tmp_path / "runs")])
    trunk.main()
    told = capsys.readouterr().out
    assert "| c2 | alone | 0 | 8 |" in told
    assert "c2: CCP" in told
    assert "of 1 folds won" in told

    (tmp_path / "ccp.toml").write_text(TINY)
    picture = imported(ROOT / "examples" / "ccp_picture.py", monkeypatch)
    flags = ["--only", "instances", "--recipe", str(tmp_path / "ccp.toml"), "--runs", str(tmp_path / "pictures")]
    monkeypatch.setattr(sys, "argv", ["ccp_picture.py", *flags, "--out", str(tmp_path)])
    picture.main()
    assert (tmp_path / "ccp-instances.png").stat().st_size > 1000
