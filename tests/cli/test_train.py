"""`vicinal train`: flags, recipes, refusals, and the run it leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from vicinal.cli.options import VerbCommand, loss_settings, parse_pairs
from vicinal.cli.train import train
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError, UnknownName, VicinalError
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.recipe

FLAGS = ["--steps", "6", "--dim", "4", "-o", "classes_per_batch=3", "-o", 'backbone_options={"widths": [4], "size": 8}']


def run(*arguments: str | Path) -> Any:
    """Run the verb as the command line does; errors come as they are."""
    app = typer.Typer()
    app.command(cls=VerbCommand)(train)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, VicinalError):
        raise done.exception
    return done


def recipe_of(folder: Path) -> Recipe:
    return Recipe.read(folder / "recipe.toml")


def test_a_run_from_flags(tmp_path: Path) -> None:
    done = run("digits", "--out", tmp_path / "run", *FLAGS, "--loss", "triplet", "-o", "margin=0.3")
    assert done.exit_code == 0, done.output
    assert re.search(r"^MAP@R +0\.\d{4}", done.output, re.MULTILINE)
    assert f"Next: vicinal embed {tmp_path / 'run' / 'model'} PHOTOS" in done.output
    recipe = recipe_of(tmp_path / "run")
    assert (recipe.loss, recipe.loss_options, recipe.dim, recipe.training.steps) == ("triplet", {"margin": 0.3}, 4, 6)
    assert Embedder.load(tmp_path / "run" / "model").dim == 4
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert f"{record['test']['MAP@R']:.4f}" in done.output

    again = run("--out", tmp_path / "run", "--resume")  # the run knows its own recipe, data included
    assert again.exit_code == 0, again.output
    assert again.stdout == done.stdout
    with pytest.raises(InputError, match="already holds a run"):
        run("digits", "--out", tmp_path / "run", *FLAGS)


def test_flags_override_a_recipe_and_leave_the_rest(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(
        """
        loss = "triplet"
        dim = 5
        classes_per_batch = 3
        backbone_options = {widths = [4], size = 8}
        loss_options = {margin = 0.2, which = "semi_hard"}

        [training]
        steps = 4
        seed = 3
        learning_rate = 0.01
        """
    )
    flags = ["--recipe", tmp_path / "recipe.toml", "--steps", "3", "-o", "margin=0.4"]
    done = run("digits", "--out", tmp_path / "run", *flags)
    assert done.exit_code == 0, done.output
    recipe = recipe_of(tmp_path / "run")
    assert (recipe.training.steps, recipe.training.seed, recipe.training.learning_rate) == (3, 3, 0.01)
    assert (recipe.dim, recipe.loss_options) == (5, {"margin": 0.4, "which": "semi_hard"})
    assert json.loads((tmp_path / "run" / "record.json").read_text())["recipe"]["training"]["seed"] == 3


def test_frozen_features_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VICINAL_CACHE", str(tmp_path / "cache"))
    done = run("digits", "--out", tmp_path / "run", *FLAGS, "--freeze", "-o", "copies=1")
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "cache" / "features").iterdir())
    assert "Note: The network is frozen with random weights" in done.stderr  # before anything is trained
    assert "Note: The network is frozen with random weights" in done.stderr


@pytest.mark.parametrize(
    ("flags", "kind", "said"),
    [
        (["--loss", "tripplet"], InputError, "did you mean 'triplet'"),
        (["-o", "stesp=3"], InputError, "Unknown setting 'stesp'; did you mean 'steps'"),
        (["-o", "steps"], InputError, "--option must be name=value, such as margin=0.2; got 'steps'"),
        (["-o", "learning_rate=fast"], InputError, "valid number"),
        (["-o", "=3"], InputError, "--option must be name=value"),
        (["--loss", "triplet", "-o", "margn=3"], InputError, "did you mean 'margin'"),
        (["--protocol", "kfold"], InputError, "did you mean 'k-fold'"),
        (["--protocol", "reality-check"], InputError, "needs fold in 0..3"),
        (["--recipe", "gone.toml"], InputError, "Unknown recipe 'gone.toml'"),
        (["-o", "score=R@1000"], InputError, "Unknown score"),
        (["--backbone", "linear"], InputError, "holds images"),
        (["--weights", "gone.pth"], VicinalError, "gone.pth"),
    ],
)
def test_mistakes_are_one_message_and_leave_no_run(
    flags: list[str], kind: type[VicinalError], said: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=re.escape(said)):
        run("digits", "--out", tmp_path / "run", *FLAGS, *flags)
    assert not (tmp_path / "run").exists()


def test_digits_alone_are_enough_and_what_shrank_is_said(tmp_path: Path) -> None:
    done = run("digits", "--out", tmp_path / "run", "--steps", "1", "--no-progress", "-o", "dim=4")
    assert done.exit_code == 0, done.output
    assert "Note: Batches are 5 classes x 4 items instead of 16 x 4" in done.output
    assert "Note: No validation, because 5 training classes are too few" in done.output
    assert "Note: The budget is less than one epoch: 20 images" in done.output
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "(test)" in card
    assert "(validation)" not in card


def small_vectors(path: Path, classes: int = 40) -> Path:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 4)
    np.savez(path, X=rng.normal(size=(len(labels), 4)).astype(np.float32), y=labels)
    return path


def test_a_loss_trains_in_its_own_terms_and_foreign_ones_are_said(tmp_path: Path) -> None:
    data = small_vectors(tmp_path / "data.npz")
    flags = [data, "--loss", "proxy_anchor", "--steps", "2", "--dim", "4", "--no-progress"]
    done = run(*flags, "--out", tmp_path / "own")
    assert done.exit_code == 0, done.output
    own = recipe_of(tmp_path / "own")
    assert own.batch == "14x4"  # as near as 14 classes allow
    assert own.proxy_multiplier * own.training.learning_rate == pytest.approx(0.01)
    assert "its paper has" not in done.stderr
    said = run(*flags, "-o", "batch=4x4", "--out", tmp_path / "said")
    assert recipe_of(tmp_path / "said").batch == "4x4"
    assert "Note: proxy_anchor ran with batches of 4 classes x 4 items. Its paper uses 1 item per class" in said.stderr
    again = run("--out", tmp_path / "own", "--resume", "--no-progress")
    assert again.exit_code == 0, again.output
    assert recipe_of(tmp_path / "own") == own


def test_notes_are_no_results_and_not_said_under_quiet(tmp_path: Path) -> None:
    flags = ["digits", *FLAGS, "--loss", "triplet", "--no-progress"]
    loud = run(*flags, "--out", tmp_path / "loud")
    assert "Note: triplet uses all pairs" in loud.stderr
    assert "Note" not in loud.stdout
    app = typer.Typer()
    app.command(cls=VerbCommand)(train)
    quiet = CliRunner().invoke(app, [*flags, "--quiet", "--out", str(tmp_path / "quiet")])
    assert quiet.exit_code == 0, quiet.output
    assert quiet.stderr == ""
    assert quiet.stdout.replace("/quiet/", "/loud/") == loud.stdout


def test_several_mistakes_are_told_together(tmp_path: Path) -> None:
    flags = ["--loss", "tripplet", "--dim", "0", "--steps", "0", "-o", "sampler=clases", "-o", "stesp=3"]
    with pytest.raises(InputError) as caught:
        run("digits", "--out", tmp_path / "run", *flags)
    assert len(str(caught.value).splitlines()) == 1 + 5


def test_data_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No dataset given"):
        run("--out", tmp_path / "run")
    with pytest.raises(UnknownName, match="did you mean 'digits'"):
        run("digts", "--out", tmp_path / "run")
    with pytest.raises(DataError, match="does not exist"):
        run("photos/birds", "--out", tmp_path / "run")


@pytest.mark.parametrize(
    "arguments", [["digits", "--out", "x", "--steps", "many"], ["digits", "--what"], ["digits", "cub"]]
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert "Usage:" in done.output


def test_pairs() -> None:
    assert parse_pairs(["a=1", "b=0.5", "c=true", "d=null", "e=x=y", "f=", 'g=["h"]'], "-o") == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": None,
        "e": "x=y",
        "f": "",
        "g": ["h"],
    }


@pytest.mark.parametrize(("batch", "seen"), [("4x4", (20, 320)), ("5x4", (16, 320)), ("3x4", (27, 324))])
def test_a_budget_in_images_is_the_same_for_batches_of_every_size(
    batch: str, seen: tuple[int, int], tmp_path: Path
) -> None:
    data = small_vectors(tmp_path / "data.npz")
    flags = [data, "--loss", "triplet", "--dim", "4", "-o", f"batch={batch}", "--no-progress"]
    done = run(*flags, "--budget", "330images", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert (record["steps"], record["images"]) == seen


def test_images_of_a_budget_are_counted_in_the_batches_that_the_data_can_fill(tmp_path: Path) -> None:
    flags = ["--dim", "4", "-o", 'backbone_options={"widths": [4], "size": 8}', "--no-progress"]
    done = run("digits", *flags, "--budget", "200images", "--out", tmp_path / "run")  # five classes instead of 16
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert (record["steps"], record["images"], len(record["curve"])) == (10, 200, 0)
    again = run("--resume", "--budget", "200images", "--out", tmp_path / "run", "--no-progress")
    assert again.stdout == done.stdout  # the same budget is the same run
    with pytest.raises(InputError, match="started with another recipe"):
        run("--resume", "--budget", "300images", "--out", tmp_path / "run", "--no-progress")


def test_a_budget_of_a_recipe_is_replaced_whole_and_evaluations_are_as_it_says(tmp_path: Path) -> None:
    data = small_vectors(tmp_path / "data.npz")
    (tmp_path / "timed.toml").write_text('backbone = "linear"\nbatch = "4x4"\ndim = 4\nseconds = 60\n')
    flags = [data, "--recipe", tmp_path / "timed.toml", "--no-progress"]
    done = run(*flags, "--budget", "0.1kimages", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    training = recipe_of(tmp_path / "run").training
    assert (training.steps, training.seconds, training.evaluate_every) == (6, None, Recipe().training.evaluate_every)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--steps", "3", "--budget", "5"], "give only one of them"),
        (["-o", "seconds=3", "--budget", "64images"], "give only one of them"),
        (["--budget", "64k"], "use 64kimages or 64ksteps"),
        (["--budget", "7images"], "A budget of 7 images is less than one batch of 20: increase it."),
    ],
)
def test_budgets_that_cannot_be(flags: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        run("digits", "--out", tmp_path / "run", *flags)
    assert not (tmp_path / "run").exists()


def test_a_loss_brings_its_miner_as_tables_write_it() -> None:
    assert loss_settings("triplet + semi_hard", None) == {"loss": "triplet", "mining": "semi_hard"}
    assert loss_settings("triplet", "hard") == {"loss": "triplet", "mining": "hard"}
    with pytest.raises(InputError, match="already names a miner; drop it there, or drop --mining hard"):
        loss_settings("triplet+semi_hard", "hard")
    with pytest.raises(UnknownName, match="did you mean 'semi_hard'"):
        loss_settings("triplet+semihard", None)
