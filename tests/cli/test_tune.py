"""`vicinal tune`: flags, spaces, refusals, and what it leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from vicinal.cli.options import VerbCommand
from vicinal.cli.tune import tune
from vicinal.data import arrays
from vicinal.errors import InputError, UnknownName, VicinalError
from vicinal.runs.recipe import Recipe
from vicinal.tuning import tune as search

pytestmark = pytest.mark.recipe

FLAGS = ["--steps", "4", "--dim", "4", "-o", "classes_per_batch=2", "-o", "validation=0.6"]
FLAGS += ["-o", 'backbone_options={"widths": [4], "size": 8}']


def run(*arguments: str | Path) -> Any:
    """Run the verb as the command line does; errors come as they are."""
    app = typer.Typer()
    app.command(cls=VerbCommand)(tune)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, VicinalError):
        raise done.exception
    return done


def test_a_search_leaves_a_recipe_a_figure_and_a_storage(tmp_path: Path) -> None:
    flags = ["--loss", "triplet", "--trials", "3", "--storage", tmp_path / "search.db", "--out", tmp_path / "best.toml"]
    done = run("digits", *FLAGS, *flags, "--plot", tmp_path / "search.png", "--fix", "learning_rate")
    assert done.exit_code == 0, done.output
    assert re.search(r"^loss_options\.margin +0\.1 ", done.output, re.MULTILINE)
    assert "learning_rate" not in done.output
    assert "3 trials by tpe: 3 complete" in done.output
    recipe = Recipe.read(tmp_path / "best.toml")
    assert (recipe.loss, recipe.dim, recipe.training.learning_rate) == ("triplet", 4, 3e-3)
    assert set(recipe.loss_options) == {"margin", "which"}
    assert (tmp_path / "search.png").exists()
    again = run("digits", *FLAGS, *flags, "--fix", "learning_rate")
    tables = [re.findall(r"^loss_options.*", one.output, re.MULTILINE) for one in (again, done)]
    assert tables[0] == tables[1]


def test_json_is_all_of_the_standard_output(tmp_path: Path) -> None:
    done = run("digits", *FLAGS, "--loss", "triplet", "--trials", "2", "--out", tmp_path / "best.toml", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert len(told["trials"]) == 2
    assert told["value"] == max(trial["score"] for trial in told["trials"])
    assert Recipe.of(told["recipe"]) == Recipe.read(told["out"])


def test_the_command_searches_what_python_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(80), 4)
    data = arrays(rng.normal(size=(len(labels), 4)).astype(np.float32), labels)
    np.savez(tmp_path / "data.npz", X=data.items, y=labels)
    flags = ["--loss", "proxy_anchor", "--steps", "2", "--dim", "4", "--trials", "1", "--out", tmp_path / "best.toml"]
    done = run(tmp_path / "data.npz", *flags)
    assert done.exit_code == 0, done.output
    split = Recipe.read(tmp_path / "best.toml").split(data)
    same = search(split, trials=1, loss="proxy_anchor", steps=2, dim=4, progress=False)
    assert "batch" in same.space
    table = 1 + len(same.space)
    assert done.stdout.splitlines()[:table] == str(same).splitlines()[:table]
    assert Recipe.read(tmp_path / "best.toml").batch == same.recipe.batch == "32x2"  # of 36 classes


@pytest.mark.parametrize(("batch", "steps"), [("4x4", 20), ("10x4", 8)])
def test_a_budget_in_images_is_that_of_every_trial(batch: str, steps: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), 4)
    np.savez(tmp_path / "data.npz", X=rng.normal(size=(len(labels), 4)).astype(np.float32), y=labels)
    flags = ["--loss", "triplet", "--dim", "4", "--trials", "2", "--sampler", "random", "-o", f"batch={batch}"]
    done = run(tmp_path / "data.npz", *flags, "--budget", "330images", "--out", tmp_path / "best.toml")
    assert done.exit_code == 0, done.output
    best = Recipe.read(tmp_path / "best.toml")
    assert best.training.steps == steps
    assert best.classes_per_batch * best.samples_per_class * steps == 320


def test_a_space_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text("dim = [4, 8]\n[loss_options]\nmargin = {low = 0.0, high = 0.2, step = 0.1}\n")
    flags = ["--space", tmp_path / "space.toml", "--sampler", "grid", "--trials", "9", "--no-prune"]
    done = run("digits", *FLAGS, "--loss", "triplet", *flags, "--out", tmp_path / "best.toml")
    assert done.exit_code == 0, done.output
    assert "4 trials by grid: 4 complete" in done.output
    assert Recipe.read(tmp_path / "best.toml").dim in (4, 8)


@pytest.mark.parametrize(
    ("flags", "kind", "said"),
    [
        (["--sampler", "gird"], UnknownName, "did you mean 'grid'"),
        (["--fix", "learning_rat"], UnknownName, "did you mean 'learning_rate'"),
        (["--protocol", "default"], InputError, "needs at least three validation classes"),
        (["--space", "gone.toml"], InputError, "Unknown search space 'gone.toml'"),
        (["--storage", "nowhere/at/all.db"], VicinalError, "unable to open database file"),
    ],
)
def test_mistakes_are_one_message(flags: list[str], kind: type[VicinalError], said: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=re.escape(said)):
        run("digits", *FLAGS, "--trials", "2", "--out", tmp_path / "best.toml", *flags)
    assert not (tmp_path / "best.toml").exists()


def test_the_rungs_are_said_and_their_number_is_a_flag(tmp_path: Path) -> None:
    flags = ["--loss", "triplet", "--trials", "2", "--out", tmp_path / "best.toml"]
    done = run("digits", *FLAGS, *flags)
    assert "Learning rates were tried first: 0.000949 (" in done.output
    rate = Recipe.read(tmp_path / "best.toml").training.learning_rate
    assert rate in (0.000949, 0.003)
    assert f"the rest was searched around {rate:g}." in done.output
    assert "Learning rates" not in run("digits", *FLAGS, *flags, "--rates", "1").output
