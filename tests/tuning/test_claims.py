"""Claims: no kill leaves a trial that nobody answers for, and a number that was given out again fools nobody."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from vicinal._util.machine import this_process
from vicinal.data import Split
from vicinal.runs.recipe import Recipe
from vicinal.tuning import Range, SearchOptions, Tuned, tune
from vicinal.tuning import storage as claims

Plant = Callable[[Callable[[Recipe], float]], list[Recipe]]
MARGIN = {"loss_options.margin": Range(0.0, 1.0, step=0.1)}
MACHINE, NUMBER, START = this_process().split(" ")


def search(blobs: Split, recipe: Recipe, storage: Path | None) -> Tuned:
    return tune(
        blobs,
        recipe,
        trials=7,
        sampler="random",
        space=MARGIN,
        storage=storage,
        options=SearchOptions(prune=False),
        progress=False,
    )


def values(tuned: Tuned) -> list[tuple[int, str, object]]:
    return [(trial.number, trial.state, dict(trial.values)) for trial in tuned.trials]


@pytest.mark.parametrize(
    ("place", "worker"),
    [
        (0, f"{MACHINE} {2**22 + 7} 1"),
        (3, f"{MACHINE} {os.getppid()} 1"),
        (6, this_process()),
        (3, "elsewhere/boot/pid:[1] 5 5"),
        (3, ""),
    ],
    ids=["dead", "its number is in use again", "this process, at other work", "silent elsewhere", "never said who"],
)
def test_a_trial_whose_worker_is_gone_is_run_again_at_its_place(
    place: int,
    worker: str,
    blobs: Split,
    recipe: Recipe,
    planted: Plant,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claims, "GRACE", 0.2)
    planted(lambda recipe: 1.0 - (float(recipe.value("loss_options.margin")) - 0.7) ** 2)
    whole = search(blobs, recipe, None)
    if place:
        tune(
            blobs,
            recipe,
            trials=place,
            sampler="random",
            space=MARGIN,
            storage=tmp_path / "s.db",
            options=SearchOptions(prune=False),
            progress=False,
        )
        study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 's.db'}")
    else:
        study = optuna.create_study(
            study_name=whole.study_name, storage=f"sqlite:///{tmp_path / 's.db'}", direction="maximize"
        )
    study.add_trial(optuna.create_trial(state=TrialState.RUNNING, user_attrs={"worker": worker, "claim": "x"}))
    assert values(search(blobs, recipe, tmp_path / "s.db")) == values(whole)


def test_a_worker_that_gives_signs_of_life_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "GRACE", 0.0)
    study, lost = optuna.create_study(), claims.LostTrials()
    study.add_trial(optuna.create_trial(state=TrialState.RUNNING, user_attrs={"worker": "elsewhere 1 1"}))
    trial = optuna.Trial(study, study.trials[0]._trial_id)
    for count in range(4):
        trial.set_user_attr("alive", count)
        lost.give_up(study)
    assert study.trials[0].state == TrialState.RUNNING
    lost.give_up(study)
    assert study.trials[0].state == TrialState.FAIL


def test_a_claim_is_in_the_storage_with_its_worker_at_once() -> None:
    study = optuna.create_study()
    with claims.claim(study, claims.NEW) as trial:
        assert study.trials[0].user_attrs["worker"] == this_process()
        claims.LostTrials().give_up(study)
        assert study.trials[0].state == TrialState.RUNNING
        assert claims.unclaimed(study, 1) is None
        assert claims.running(study, 1)
    assert trial.number == 0
