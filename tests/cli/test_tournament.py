from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.comparing import compare
from vicinal.data import arrays, split
from vicinal.errors import DataError, InputError
from vicinal.leaderboard import leaderboards
from vicinal.runs import Run
from vicinal.runs._train import fit, train
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.unit
run = CliRunner().invoke


def test_without_a_table_it_is_that_of_the_thesis():
    result = run(app, ["tournament"])
    assert result.exit_code == 0
    assert result.stdout.startswith("R@1 on CUB of 10 losses x 3 networks x 4 sizes (Psomas 2020, Tables 6-8)")
    assert "triplet             103   8.58   0.51" in result.stdout
    assert "proxy_anchor comes first: by mean rank over 12 experiments" in result.stdout


def test_json_pairs_and_a_diagram(tmp_path: Path):
    result = run(app, ["tournament", "--json", "--pairs", "--plot", str(tmp_path / "ranks.png"), "--theme", "dark"])
    record = json.loads(result.stdout)
    assert [row["total"] for row in record["standings"]] == [12, 38, 51, 52, 54, 70, 79, 81, 103, 120]
    assert len(record["pairs"]) == 45
    assert record["verdict"]["winner"] == "proxy_anchor"
    assert record["friedman"]["chi_square"] == pytest.approx(81.45, abs=0.01)
    assert (tmp_path / "ranks.png").stat().st_size > 10_000


def test_a_table_of_ones_own(tmp_path: Path):
    table = tmp_path / "scores.csv"
    table.write_text("dataset,a,b\n" + "".join(f"d{at},0.{at + 1}5,0.{at + 1}\n" for at in range(8)) + "broken,0.1,\n")
    refused = run(app, ["tournament", str(table)])
    assert isinstance(refused.exception, InputError)
    assert "1 scores are missing: b in broken" in str(refused.exception)
    result = run(app, ["tournament", str(table), "--drop", "experiments", "--pairs"])
    assert "a wins: by mean rank over 8 experiments it is significantly better than b." in result.stdout
    assert "a - b: +0.0500" in result.stdout


def test_comparisons_are_ranked_as_their_leaderboard_is(tmp_path: Path):
    rng = np.random.default_rng(0)
    data = arrays(rng.normal(size=(48, 5)).astype(np.float32), np.repeat(np.arange(12), 4))
    settings = {"backbone": "linear", "dim": 3, "steps": 2, "classes_per_batch": 3, "evaluate_every": 2}
    board = compare(data, ["triplet", "contrastive"], out=tmp_path, seeds=2, jobs=1, progress=False, **settings)
    said = run(app, ["tournament", str(tmp_path)]).stdout
    assert said.startswith(f"{board.title}\n\n{board.ranks}\n")
    assert str(board.verdict()) in said
    record = json.loads(run(app, ["tournament", str(tmp_path), "--json"]).stdout)
    assert [row["mean"] for row in record["standings"]] == list(board.ranks.mean_ranks.values())
    refused = run(app, ["tournament", str(tmp_path), "--level", "0.1"])
    assert "--level and --drop are for tables" in str(refused.exception)


def test_runs_that_were_trained_one_by_one_are_ranked(tmp_path: Path):
    rng = np.random.default_rng(0)
    data = arrays(rng.normal(size=(48, 5)).astype(np.float32), np.repeat(np.arange(12), 4))

    def trained(name: str, **changes: Any) -> str:
        settings = {"backbone": "linear", "dim": 3, "classes_per_batch": 3, "data": "mine", "steps": 2, **changes}
        train(Recipe().changed(settings), data=data, folder=tmp_path / name, progress=False)
        return str(tmp_path / name)

    def refused(*folders: str) -> str:
        return str(run(app, ["tournament", *folders]).exception)

    runs = [trained(f"{loss}-{seed}", loss=loss, seed=seed) for loss in ("triplet", "contrastive") for seed in range(2)]
    result = run(app, ["tournament", *runs])
    board = leaderboards([], runs=[Run.open(folder) for folder in runs])[0]
    assert result.stdout.startswith(f"{board.title}\n\n{board.ranks}\n")
    assert "2 methods in 2 experiments" in result.stdout
    assert str(board.verdict()) in result.stdout
    assert result.stderr == ""
    assert "needs two methods that share at least two experiments" in refused(runs[0], runs[2])
    again = trained("again", loss="triplet", seed=0, learning_rate=0.1)
    assert f"{runs[0]} and {again} are both triplet in the same experiment" in refused(*runs, again)
    other = trained("other", loss="triplet", seed=0, protocol="default")
    assert f"These differ: {runs[0]} (mine, fixed-validation); {other} (mine, default)" in refused(*runs, other)
    longer = trained("longer", loss="contrastive", seed=1, steps=4)
    assert "Note: Budgets differ: runs saw" in run(app, ["tournament", *runs[:3], longer]).stderr
    fit(split(data), loss="triplet", steps=2, dim=3, folder=tmp_path / "fitted", progress=False)
    assert "has no test scores" in refused(*runs, str(tmp_path / "fitted"))
    (tmp_path / "fitted" / "record.json").unlink()
    unfinished = run(app, ["tournament", str(tmp_path / "fitted")]).exception
    assert isinstance(unfinished, DataError)
    assert "holds no finished run" in str(unfinished)
