"""Storages: searches that are killed, shared, continued, and refused."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import sqlalchemy
from optuna.exceptions import StorageInternalError

from vicinal.data import Split
from vicinal.errors import DataError
from vicinal.runs.recipe import Recipe
from vicinal.tuning import Range, SearchOptions, Tuned, tune
from vicinal.tuning.storage import explained

WORKER = Path(__file__).parent / "worker.py"
SPACE = {"loss_options.margin": Range(0.0, 1.0, step=0.1), "learning_rate": Range(1e-5, 1e-2, log=True)}
SPACE_TOML = """
learning_rate = {low = 1e-5, high = 1e-2, log = true}
loss_options.margin = {low = 0.0, high = 1.0, step = 0.1}
"""
TRIALS = 14


@pytest.fixture
def folder(blobs: Split, recipe: Recipe, tmp_path: Path) -> Path:
    views = [view for view in (blobs.train, blobs.validation, blobs.test) if view is not None]
    names = np.concatenate([np.array(view.class_names)[view.labels] for view in views]).astype(int)
    order = np.argsort(names, kind="stable")
    np.savez(tmp_path / "blobs.npz", X=np.concatenate([view.items for view in views])[order], y=names[order])
    (tmp_path / "recipe.toml").write_text(recipe.toml())
    (tmp_path / "space.toml").write_text(SPACE_TOML)
    return tmp_path


@pytest.fixture
def toy_fit(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The workers' stand-in for training, here; what it was asked to train."""
    inner = runpy.run_path(str(WORKER))["toy_fit"]
    tried: list[Recipe] = []

    def fit(view: Split, recipe: Recipe, **options: Any) -> None:
        tried.append(recipe)
        inner(view, recipe, **options)

    monkeypatch.setattr(sys.modules["vicinal.tuning.study"], "fit", fit)
    return tried


def search(blobs: Split, recipe: Recipe, sampler: str, storage: Path | str | None, trials: int = TRIALS) -> Tuned:
    space = dict(sorted(SPACE.items()))  # as in the file
    return tune(blobs, recipe, trials=trials, sampler=sampler, space=space, storage=storage, progress=False)


def found(tuned: Tuned) -> list[tuple[Any, ...]]:
    return [(trial.number, trial.state, dict(trial.values), dict(trial.curve)) for trial in tuned.trials]


@pytest.mark.slow
@pytest.mark.recipe
def test_a_search_that_was_killed_ends_as_if_it_had_not_been(
    blobs: Split, recipe: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = subprocess.Popen([sys.executable, str(WORKER), str(folder), str(TRIALS), "stuck"])
    names = ("tpe", "gp", "random", "grid", "real")
    try:
        patience = time.monotonic() + 300
        while not all((folder / f"{name}.pid").exists() for name in names):
            assert time.monotonic() < patience
            assert workers.poll() is None
            time.sleep(0.1)
    finally:
        for file in folder.glob("*.pid"):
            os.kill(int(file.read_text()), signal.SIGKILL)
        workers.wait(30)
    running = optuna.load_study(study_name=None, storage=f"sqlite:///{folder / 'tpe.db'}").trials[-1]
    assert running.state == optuna.trial.TrialState.RUNNING

    killed, whole = search(blobs, recipe, "random", folder / "real.db"), search(blobs, recipe, "random", None)
    assert found(killed) == found(whole)
    assert killed.recipe == whole.recipe
    toy = runpy.run_path(str(WORKER))["toy_fit"]
    monkeypatch.setattr(sys.modules["vicinal.tuning.study"], "fit", toy)
    for sampler in names[:4]:
        killed, whole = search(blobs, recipe, sampler, folder / f"{sampler}.db"), search(blobs, recipe, sampler, None)
        assert found(killed) == found(whole), sampler
        assert killed.recipe == whole.recipe


@pytest.mark.slow
@pytest.mark.recipe
def test_workers_share_a_storage(blobs: Split, recipe: Recipe, folder: Path, toy_fit: list[Recipe]) -> None:
    subprocess.run([sys.executable, str(WORKER), str(folder), str(TRIALS), "together"], check=True, timeout=300)
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{folder / 'shared.db'}")
    assert len({trial.user_attrs["worker"] for trial in study.trials}) == 3
    tuned = search(blobs, recipe, "random", folder / "shared.db")
    assert toy_fit == []  # nothing was left to do
    assert [trial.number for trial in tuned.trials] == list(range(TRIALS))
    alone = search(blobs, recipe, "random", None)
    assert [trial.values for trial in tuned.trials] == [trial.values for trial in alone.trials]


def test_a_search_goes_on_with_more_trials(blobs: Split, recipe: Recipe, tmp_path: Path, toy_fit: list[Recipe]) -> None:
    search(blobs, recipe, "tpe", tmp_path / "search.db", trials=9)
    longer = search(blobs, recipe, "tpe", tmp_path / "search.db", trials=12)
    assert len(toy_fit) == 12
    assert found(longer) == found(search(blobs, recipe, "tpe", None, trials=12))
    shorter = search(blobs, recipe, "tpe", tmp_path / "search.db", trials=5)
    assert len(shorter.trials) == 5


def test_different_searches_do_not_mix_in_one_storage(
    blobs: Split, recipe: Recipe, tmp_path: Path, toy_fit: list[Recipe]
) -> None:
    first = search(blobs, recipe, "random", tmp_path / "search.db", trials=3)
    other = tune(
        blobs,
        recipe,
        trials=3,
        sampler="random",
        options=SearchOptions(seed=1),
        storage=tmp_path / "search.db",
        progress=False,
    )
    assert first.study_name != other.study_name
    assert len(toy_fit) == 6


def test_a_storage_that_cannot_be_used(blobs: Split, recipe: Recipe, tmp_path: Path, toy_fit: list[Recipe]) -> None:
    with pytest.raises(DataError, match=r"(?s)unable to open database file.*Choose another path"):
        search(blobs, recipe, "random", tmp_path / "nowhere" / "search.db")
    (tmp_path / "notes.txt").write_text("not a database " * 100)
    with pytest.raises(DataError, match="file is not a database"):
        search(blobs, recipe, "random", tmp_path / "notes.txt")
    search(blobs, recipe, "random", tmp_path / "search.db", trials=1)
    read_only = f"sqlite:///file:{tmp_path / 'search.db'}?mode=ro&uri=true"
    with pytest.raises(DataError, match=r"(?s)readonly database.*read-only: make it writable"):
        search(blobs, recipe, "random", read_only)
    assert len(toy_fit) == 1
    with pytest.raises(DataError, match=r"(?s)me:\*\*\*@host/name: No module named.*Install the driver"):
        search(blobs, recipe, "random", "postgresql+psycopg2://me:secret@host/name")


def test_a_driver_may_quote_a_password_in_pieces() -> None:
    address = "postgresql://me:hu@sh/h@host/trials"
    with pytest.raises(DataError) as told, explained(address):
        raise StorageInternalError("no host named 'sh'\n\tIs it up?")
    assert str(told.value).startswith(
        "Cannot use the storage of trials postgresql://me:***@host/trials: no host named '***' Is it up."
    )


def test_a_full_disk_stops_the_search_and_loses_nothing(
    blobs: Split, recipe: Recipe, tmp_path: Path, toy_fit: list[Recipe]
) -> None:
    search(blobs, recipe, "random", tmp_path / "search.db", trials=2)
    pages = (tmp_path / "search.db").stat().st_size // 4096

    def fill(connection: Any, record: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")

    sqlalchemy.event.listen(sqlalchemy.engine.Engine, "connect", fill)
    try:
        with pytest.raises(DataError, match=r"(?s)database or disk is full.*finished trials are kept"):
            search(blobs, recipe, "random", tmp_path / "search.db", trials=200)
    finally:
        sqlalchemy.event.remove(sqlalchemy.engine.Engine, "connect", fill)
    assert 2 < len(toy_fit) < 200
    resumed = search(blobs, recipe, "random", tmp_path / "search.db", trials=60)
    assert found(resumed) == found(search(blobs, recipe, "random", None, trials=60))
