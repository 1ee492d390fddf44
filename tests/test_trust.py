"""Every door by which a name of code may come in: none of them imports it unless the user typed or allowed it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import vicinal as vc
from vicinal._util import code as named_code
from vicinal._util.code import Trust
from vicinal.cli.main import app
from vicinal.comparing.contestants import is_recipe
from vicinal.errors import InputError
from vicinal.leaderboard import leaderboards
from vicinal.report import write_report
from vicinal.runs import Journal
from vicinal.runs.recipe import Recipe
from vicinal.tuning.spaces import Choice

SOURCE = """\
from pathlib import Path
from torch import nn
from vicinal.data import digits

Path(__file__).with_suffix(".ran").touch()

def loss(matrix, positive, negative, *, width=0.3):
    return (1 - matrix)[positive].sum() + matrix[negative].clamp_min(width).sum()

def miner(matrix, positive, negative):
    return positive, negative

def reader():
    return digits()

class Network(nn.Linear):
    def __init__(self):
        super().__init__(10, 5)
"""
SMALL: dict[str, Any] = {
    "backbone": "linear", "dim": 4, "steps": 2, "classes_per_batch": 3, "validation": 0.5, "progress": False,
}  # fmt: skip


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the current folder that nobody has typed; it leaves a file behind when it runs."""
    monkeypatch.setattr(named_code, "_handed_over", {})
    name = f"evil_{abs(hash(str(tmp_path))) % 10**8}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    np.savez(tmp_path / "data.npz", X=vectors().items, y=vectors().labels)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


def vectors() -> vc.Dataset:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 6)
    return vc.data.arrays((rng.normal(size=(12, 10))[labels] + rng.normal(size=(72, 10))).astype("f4"), labels)


def command(*words: str) -> None:
    result = CliRunner().invoke(app, list(words))
    if isinstance(result.exception, Exception):
        raise result.exception


def refuses(evil: str, *doors: Callable[[], Any]) -> None:
    """Every door says what to allow, and has not run the code."""
    for door in doors:
        with pytest.raises(InputError, match=f"--allow-code [^ ]*{evil}"):
            door()
        assert not list(Path().rglob("*.ran"))
        assert evil not in sys.modules


@pytest.mark.parametrize(("setting", "name"), [("loss", "loss"), ("mining", "miner"), ("backbone", "Network")])
def test_recipes(evil: str, setting: str, name: str) -> None:
    Path("theirs.toml").write_text(f'{setting} = "{evil}:{name}"\nclasses_per_batch = 3\nsteps = 2\n')
    recipe = Recipe.read("theirs.toml")  # which is looking, and runs nothing
    network = {} if setting == "backbone" else {"backbone": "linear"}
    split = vc.split(vectors(), "fixed-validation", validation=0.5)
    refuses(
        evil,
        recipe.key,
        lambda: vc.train(recipe.changed(network), data=vectors(), progress=False),
        lambda: vc.fit(split, recipe, progress=False, **network),
        lambda: vc.tune(split, recipe, trials=1, progress=False, **network),
        lambda: vc.compare(vectors(), ["theirs.toml"], out="runs", progress=False, **network),
        lambda: command("train", "data.npz", "--recipe", "theirs.toml", *(["--backbone=linear"] if network else [])),
    )


def test_recipes_that_name_a_reader(evil: str) -> None:
    Path("theirs.toml").write_text(f'data = "{evil}:reader"\n')
    refuses(
        evil,
        lambda: vc.train(Recipe.read("theirs.toml"), progress=False),
        lambda: vc.compare(None, recipe="theirs.toml", out="runs", progress=False),
        lambda: command("train", "--recipe", "theirs.toml"),
        lambda: command("tune", "--recipe", "theirs.toml", "--trials", "1", "--out", "tuned.toml"),
    )


def test_an_option_of_a_loss_does_not_import_it(evil: str) -> None:
    Path("theirs.toml").write_text(f'loss = "{evil}:loss"\nwidth = 0.5\n')
    refuses(evil, lambda: Recipe.read("theirs.toml"), lambda: vc.load("theirs.toml"))
    assert Recipe.read("theirs.toml", trust=Trust.of([evil])).loss_options == {"width": 0.5}
    refuses_now = Recipe.read("theirs.toml", trust=Trust.of([evil]))
    assert refuses_now.changed(width=0.7).trust == Trust.of([evil])  # recipes made from it have the same


def test_a_file_cannot_give_trust(evil: str) -> None:
    Path("theirs.toml").write_text(f'trust = ["{evil}"]\n')
    with pytest.raises(InputError, match="Unknown setting 'trust'"):
        Recipe.read("theirs.toml")


def test_trust_is_no_part_of_a_recipe(evil: str) -> None:
    plain = Recipe(loss="triplet")
    trusting = plain.trusting(Trust.of([evil]))
    assert plain == trusting
    assert plain.toml() == trusting.toml()
    assert plain.key() == trusting.key()
    assert plain.trust == Trust.none()


@pytest.mark.parametrize("file", ["{}.py:loss.toml", "triplet+{}.py:loss.toml", "triplet+{}.py:miner.toml"])
def test_the_names_of_files_in_a_folder_of_recipes_are_not_typed(
    evil: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("study/losses")
    folder.mkdir(parents=True)
    (folder / f"{evil}.py").write_text(SOURCE)
    text = f'loss = "study/losses/{evil}.py:loss"\n'
    (folder / file.format(evil)).write_text(text)
    Path("study/data.toml").write_text('backbone = "linear"\nclasses_per_batch = 3\nsteps = 2\n')
    refuses(
        evil,
        lambda: command("compare", "data.npz", "--recipe", "study/data.toml", "--out", "runs"),
        lambda: command("compare", "data.npz", "--losses", "study/losses", "--out", "runs"),
        lambda: vc.compare(vectors(), ["study/losses"], out="runs", progress=False),
        lambda: vc.compare(vectors(), [Path("study/losses") / file.format(evil)], out="runs", progress=False),
        lambda: vc.compare(vectors(), [f"study/losses/{file.format(evil)}"], out="runs", progress=False),
    )
    monkeypatch.chdir(folder)
    Path(file.format(evil)).write_text(text.replace("study/losses/", ""))
    assert is_recipe(file.format(evil))
    refuses(
        evil,
        lambda: command("compare", "../../data.npz", "--losses", ".", "--out", "runs"),
        lambda: vc.compare(vectors(), ["."], out="runs", progress=False),
    )


def test_what_is_typed_once_is_not_trusted_for_good(evil: str) -> None:
    vc.fit(vc.split(vectors()), loss=f"{evil}:loss", **SMALL)
    Path(f"{evil}.ran").unlink()
    del sys.modules[evil]
    recipe = Recipe(loss=f"{evil}:loss")
    refuses(evil, lambda: vc.fit(vc.split(vectors()), recipe, **{**SMALL, "backbone": "linear"}))


def model_that_names(evil: str) -> Path:
    """A model's folder whose network is the module's."""
    embedder = vc.Embedder(f"{evil}:Network", dim=3, allow_code=[evil])
    embedder.save("model")
    Path(f"{evil}.ran").unlink()
    del sys.modules[evil]
    return Path("model")


def test_model_folders(evil: str) -> None:
    folder = model_that_names(evil)
    start = Recipe(start=str(folder), backbone="linear", dim=3, classes_per_batch=3)
    refuses(
        evil,
        lambda: vc.Embedder.load(folder),
        lambda: vc.load(folder),
        lambda: vc.Index.build("x.index", folder),
        lambda: vc.train(start, data=vectors(), progress=False),
        lambda: command("embed", str(folder), "data.npz"),
        lambda: command("index", str(folder), "data.npz", "--out", "x.index"),
    )
    assert vc.load(folder, allow_code=[evil]).dim == 3


def test_indexes(evil: str) -> None:
    data = vectors()
    embedder = vc.Embedder(f"{evil}:Network", dim=3, allow_code=[evil])
    vc.Index.build("x.index", embedder, data).close()
    Path(f"{evil}.ran").unlink()
    del sys.modules[evil]
    row = np.asarray(data.items)[0]
    refuses(
        evil,
        lambda: vc.Index.open("x.index").search(row),
        lambda: vc.load("x.index").search(row),
        lambda: vc.Index.open("x.index").refresh(f"{evil}:reader"),
    )
    with vc.Index.open("x.index", allow_code=[evil]) as index:
        assert index.search(row)[0].id == "arrays/0"


def test_journals_and_reports(evil: str) -> None:
    vc.compare(vectors(), [f"{evil}:loss"], rates=1, jobs=1, out="runs", **{**SMALL, "backbone": f"{evil}:Network"})
    Path(f"{evil}.ran").unlink()
    del sys.modules[evil]
    board = leaderboards(["runs"])[0]
    run = board.entries[0].runs[0]
    refuses(evil, run.embedder, lambda: run.recipe.traits, lambda: vc.load("runs").best.embedder())
    write_report(["runs"], progress=False)  # which does without what it may not run
    assert not list(Path().rglob("*.ran"))
    trusted = leaderboards(["runs"], allow_code=[evil])[0].best
    assert trusted.embedder().dim in (4, 5)
    assert trusted.recipe.traits.geometry == "cosine"


def test_a_journal_that_was_changed_runs_nothing(evil: str) -> None:
    vc.compare(vectors(), ["triplet"], rates=1, jobs=1, out="runs", **SMALL)
    record = Journal(Path("runs")).records()[-1]
    changed = record.model_copy(
        update={"recipe": {**record.recipe, "loss": f"{evil}:loss", "data": f"{evil}:reader"}, "key": "other"}
    )
    Journal(Path("runs")).append(changed)
    write_report(["runs"], progress=False)
    command("report", "runs", "--no-progress")
    assert not list(Path().rglob("*.ran"))


def test_searches_for_settings(evil: str) -> None:
    split = vc.split(vectors(), "fixed-validation", validation=0.5)
    space = {"mining": Choice((None, f"{evil}:miner"))}
    recipe = Recipe.of({name: value for name, value in SMALL.items() if name != "progress"})
    shared: dict[str, Any] = {"trials": 2, "sampler": "grid", "space": space, "storage": "study.db", "progress": False}
    tuned = vc.tune(split, recipe, **shared)
    assert [trial.state for trial in tuned.trials].count("failed") == 1
    assert any(f"--allow-code {evil}" in (trial.error or "") for trial in tuned.trials)
    again = vc.tune(split, recipe, **shared)  # which resumes the study, and trusts what is in it no more than before
    assert again.trials == tuned.trials
    assert not list(Path().rglob("*.ran"))
    allowed = vc.tune(split, recipe, **{**shared, "storage": None}, allow_code=[evil])
    assert {trial.state for trial in allowed.trials} == {"complete"}


def test_records_of_runs(evil: str) -> None:
    run = vc.train(
        Recipe.of({"loss": f"{evil}:loss", **{k: v for k, v in SMALL.items() if k != "progress"}}),
        data=vectors(), folder="run", progress=False, allow_code=[evil],
    )  # fmt: skip
    assert run.recipe.trust == Trust.of([evil])
    Path(f"{evil}.ran").unlink()
    del sys.modules[evil]
    assert json.loads(Path("run/record.json").read_text())["recipe"]["loss"] == f"{evil}:loss"
    refuses(evil, lambda: vc.runs.Run.open("run").recipe.traits)
    assert vc.runs.Run.open("run", allow_code=[evil]).recipe.traits.geometry == "cosine"


@pytest.mark.slow
def test_other_processes_get_trust_with_their_task(evil: str) -> None:
    Path("theirs.toml").write_text(f'loss = "{evil}:loss"\n')
    board = vc.compare(
        vectors(), ["theirs.toml", "triplet"], rates=1, jobs=2, out="runs", recipe="theirs.toml", allow_code=[evil],
        **SMALL,
    )  # fmt: skip
    assert {record.status for record in board.records} == {"done"}
