"""The search: what it may see, where it starts, what it finds, and what it does when trials fail."""

from __future__ import annotations

import dataclasses
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest

from vicinal.data import Split
from vicinal.errors import InputError, Interrupted, NotFinite, UnknownName
from vicinal.runs._train import fit
from vicinal.runs.recipe import Recipe
from vicinal.training.processes import stop_requested
from vicinal.tuning import Choice, Range, SearchOptions, search_space, tune

Plant = Callable[[Callable[[Recipe], float]], list[Recipe]]
MARGIN = {"loss_options.margin": Range(0.0, 1.0, step=0.1)}
QUIET: dict[str, Any] = {"progress": False}


def margin(recipe: Recipe) -> float:
    return float(recipe.value("loss_options.margin"))


def peak(recipe: Recipe) -> float:
    return 1.0 - (margin(recipe) - 0.7) ** 2


def test_test_classes_cannot_be_seen(blobs: Split, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Split] = []

    def watched(view: Split, *arguments: Any, **options: Any) -> Any:
        seen.append(view)
        return fit(view, *arguments, **options)

    monkeypatch.setattr(sys.modules["vicinal.tuning.study"], "fit", watched)
    assert blobs.test is not None
    other_test = dataclasses.replace(blobs.test, items=np.full_like(blobs.test.items, np.nan))
    spoilt = dataclasses.replace(blobs, test=other_test)
    on_good, on_spoilt = (tune(view, recipe, trials=3, sampler="random", **QUIET) for view in (blobs, spoilt))
    assert len(seen) == 6
    assert all(view.test is None for view in seen)
    assert [trial.score for trial in on_good.trials] == [trial.score for trial in on_spoilt.trials]
    assert on_good.study_name == on_spoilt.study_name


def test_the_recipe_that_comes_out_trains_to_the_score_it_promises(blobs: Split, recipe: Recipe) -> None:
    tuned = tune(blobs, recipe, trials=4, sampler="random", **QUIET)
    assert tuned.value == max(trial.score for trial in tuned.trials if trial.state == "complete")
    scores: list[float] = []
    fit(blobs, tuned.recipe, progress=False, on_score=lambda step, found: scores.append(found["MAP@R"]))
    assert max(scores) == tuned.value


def test_the_first_trial_is_the_recipe_as_given(blobs: Split, recipe: Recipe, planted: Plant) -> None:
    for sampler in ("tpe", "gp", "random", "grid"):
        tried = planted(peak)
        tuned = tune(blobs, recipe, trials=3, sampler=sampler, space=MARGIN, **QUIET)
        assert margin(tried[0]) == tuned.trials[0].values["loss_options.margin"] == 0.1
        given = recipe.changed({"loss_options": {"margin": 1.25}})  # beyond the range, which is widened
        tune(blobs, given, trials=2, sampler=sampler, space=MARGIN, **QUIET)
        assert margin(tried[3]) == 1.25


@pytest.mark.parametrize(("sampler", "within"), [("tpe", 0.05), ("gp", 0.02), ("random", 0.1), ("grid", 1e-9)])
def test_samplers_find_a_planted_optimum(
    sampler: str, within: float, blobs: Split, recipe: Recipe, planted: Plant
) -> None:
    planted(peak)
    tuned = tune(blobs, recipe, trials=25, sampler=sampler, space=MARGIN, **QUIET)
    assert margin(tuned.recipe) == pytest.approx(0.7, abs=within)
    assert tuned.value == pytest.approx(1.0, abs=within)


def test_the_grid_finds_the_optimum_of_a_separable_score(blobs: Split, recipe: Recipe, planted: Plant) -> None:
    space = {
        **MARGIN,
        "loss_options.which": Choice(("all", "semi_hard", "hard")),
        "learning_rate": Range(1e-5, 1e-3, log=True),
        "dim": Range(2, 6),
    }

    def score(recipe: Recipe) -> float:
        rate = np.log10(recipe.training.learning_rate) + 3.5
        kind = recipe.value("loss_options.which") == "semi_hard"
        return 0.5 * peak(recipe) + 0.2 * kind - 0.01 * rate**2 - 0.001 * (recipe.dim - 5) ** 2

    tried = planted(score)
    tuned = tune(blobs, recipe, trials=100, sampler="grid", space=space, options=SearchOptions(prune=False), **QUIET)
    assert len(tried) == len(tuned.trials) == 1 + 10 + 2 + 8 + 4  # levels but the given one, of each setting in turn
    assert tuned.recipe.loss_options == {"margin": 0.7, "which": "semi_hard"}
    assert tuned.recipe.training.learning_rate == pytest.approx(10**-3.5)
    assert tuned.recipe.dim == 5


def test_failed_trials_are_recorded_and_the_rest_go_on(blobs: Split, recipe: Recipe, planted: Plant) -> None:
    def score(recipe: Recipe) -> float:
        if margin(recipe) > 0.5:
            raise NotFinite("The loss is nan.")
        return margin(recipe)

    planted(score)
    tuned = tune(blobs, recipe, trials=11, sampler="grid", space=MARGIN, options=SearchOptions(prune=False), **QUIET)
    assert [trial.state for trial in tuned.trials] == ["complete"] * 6 + ["failed"] * 5
    assert {trial.error for trial in tuned.trials[6:]} == {"NotFinite: The loss is nan."}
    assert margin(tuned.recipe) == 0.5
    assert "6 complete, 5 failed" in str(tuned)
    assert "Note: trial 6 failed: NotFinite: The loss is nan." in str(tuned)


def test_where_every_trial_fails_the_first_error_is_told(blobs: Split, recipe: Recipe) -> None:
    with pytest.raises(InputError, match=r"None of 3 trials finished. The first error: InputError: .*use backbone="):
        tune(blobs, recipe.changed({"backbone": "convnet"}), trials=3, **QUIET)


def test_hopeless_trials_are_given_up(blobs: Split, recipe: Recipe, planted: Plant) -> None:
    planted(lambda recipe: 1.0 - margin(recipe))
    pruned = tune(blobs, recipe, trials=11, sampler="grid", space=MARGIN, **QUIET)
    assert [trial.state for trial in pruned.trials] == ["complete"] * 5 + ["pruned"] * 6
    assert all(list(trial.curve) == [2] for trial in pruned.trials[5:])  # at the first score, half-way
    kept = tune(blobs, recipe, trials=11, sampler="grid", space=MARGIN, options=SearchOptions(prune=False), **QUIET)
    assert {trial.state for trial in kept.trials} == {"complete"}


def test_a_search_is_stopped_by_ctrl_c(blobs: Split, recipe: Recipe, planted: Plant, tmp_path: Any) -> None:
    asked = [False]

    def score(recipe: Recipe) -> float:
        if margin(recipe) == 0.3 and not asked[0]:
            asked[0] = True
            raise Interrupted("Stopped at step 1.")
        return peak(recipe)

    tried = planted(score)
    search: dict[str, Any] = {"trials": 6, "sampler": "grid", "space": MARGIN, "storage": tmp_path / "search.db"}
    space = {"loss_options.margin": Range(0.0, 0.5, step=0.1)}
    with pytest.raises(Interrupted, match=r"saved in .*search.db: start the same search to resume"):
        tune(blobs, recipe, **{**search, "space": space}, **QUIET)
    tuned = tune(blobs, recipe, **{**search, "space": space}, **QUIET)
    assert [round(margin(recipe), 1) for recipe in tried] == [0.1, 0.0, 0.2, 0.3, 0.3, 0.4, 0.5]
    assert len(tuned.trials) == 6
    assert margin(tuned.recipe) == 0.5
    asked[0] = False
    with pytest.raises(Interrupted, match="are lost"):
        tune(blobs, recipe, trials=6, sampler="grid", space=space, **QUIET)


def test_a_second_ctrl_c_stops_a_search_in_words_and_loses_nothing(
    blobs: Split, recipe: Recipe, planted: Plant, tmp_path: Any
) -> None:
    asked = [False]

    def score(recipe: Recipe) -> float:
        if margin(recipe) == 0.2 and not asked[0]:
            asked[0] = True
            with stop_requested() as asked_once:  # as training does: the first one is a question, the second acts
                first = signal.getsignal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
                while signal.getsignal(signal.SIGINT) is first:  # two that wait would be merged into one
                    pass
                assert asked_once()
                signal.raise_signal(signal.SIGINT)
                pytest.fail("the second Ctrl-C did nothing")
        return peak(recipe)

    tried = planted(score)
    space = {"loss_options.margin": Range(0.0, 0.4, step=0.1)}
    search: dict[str, Any] = {"trials": 5, "sampler": "grid", "space": space, "storage": tmp_path / "search.db"}
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker of pytest-xdist ignores it
    try:
        with pytest.raises(Interrupted, match="start the same search to resume") as stopped:
            tune(blobs, recipe, **search, **QUIET)
    finally:
        signal.signal(signal.SIGINT, former)
    assert stopped.value.__suppress_context__  # no traceback of what was under way
    tuned = tune(blobs, recipe, **search, **QUIET)
    assert sorted(round(margin(recipe), 1) for recipe in tried) == [0.0, 0.1, 0.2, 0.2, 0.3, 0.4]
    assert [trial.state for trial in tuned.trials] == ["complete"] * 5


def test_what_comes_out_prints_as_a_table_and_reads_as_a_recipe(
    blobs: Split, recipe: Recipe, planted: Plant, tmp_path: Any
) -> None:
    planted(peak)
    tuned = tune(
        blobs, recipe, trials=12, sampler="grid", space=MARGIN, score="P@1", options=SearchOptions(prune=False), **QUIET
    )
    head, row, *_ = str(tuned).splitlines()
    assert head.split() == ["setting", "given", "best", "importance", "searched"]
    assert row.split() == ["loss_options.margin", "0.1", "0.7", "1.00", "0", "to", "1"]
    assert "triplet: P@1 1.0000 on the validation classes in trial 7; as given 0.6400" in str(tuned)
    (tmp_path / "tuned.toml").write_text(tuned.to_toml())
    read = Recipe.read(tmp_path / "tuned.toml")
    assert read == tuned.recipe
    assert (read.training.score, read.loss_options) == ("P@1", {"margin": 0.7})


def test_bad_input(blobs: Split, recipe: Recipe) -> None:
    def search(view: Split = blobs, **options: Any) -> None:
        tune(view, recipe, **{"trials": 2, **QUIET, **options})

    with pytest.raises(
        InputError, match="needs at least three validation classes to choose by, and the split has none"
    ):
        search(dataclasses.replace(blobs, validation=None))
    with pytest.raises(InputError, match="and the split has 2"):
        search(dataclasses.replace(blobs, validation=blobs.validation.of_classes([0, 1])))
    with pytest.raises(InputError, match="at least 1; got 0 and 3"):
        search(trials=0)
    with pytest.raises(UnknownName, match="Unknown sampler 'tpx'; did you mean 'tpe'"):
        search(sampler="tpx")
    with pytest.raises(InputError, match="Unknown score 'R@1'"):
        search(score="R@1")
    with pytest.raises(InputError) as caught:
        search(space={"loss_options.margn": MARGIN["loss_options.margin"], "weights": Range(0, 1), "dimm": Range(0, 1)})
    assert "Unknown setting in loss_options 'margn'; did you mean 'margin'" in str(caught.value)
    assert "weights is None in the recipe" in str(caught.value)
    assert "Unknown setting 'dimm'; did you mean 'dim'" in str(caught.value)


def test_optuna_is_as_talkative_after_a_search_as_before(
    blobs: Split,
    recipe: Recipe,
    planted: Plant,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    planted(peak)
    before = optuna.logging.get_verbosity()
    tune(blobs, recipe, trials=2, **QUIET)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")
    tune(blobs, recipe, trials=2)
    assert "2/2" in capfd.readouterr().err


def test_the_space_of_a_recipe(recipe: Recipe) -> None:
    assert list(search_space(recipe)) == ["learning_rate", "loss_options.margin", "loss_options.which"]
    rate = search_space(recipe)["learning_rate"]
    assert (rate.low, rate.high) == pytest.approx((1e-5, 1e-3))
    mined = recipe.changed({"loss": "raw", "mining": "valid_triplets"})
    assert "mining_options.margin" in search_space(mined)
    several = search_space(recipe.changed({"loss": "soft_triple"}))
    assert {"proxy_multiplier", "proxies_per_class"} <= set(several)


def rate_and_margin(recipe: Recipe) -> float:
    """Best at a rate of 3.16e-4, the highest of the three that are tried first, and at a margin of 0.7."""
    return 0.5 * peak(recipe) - 0.1 * (np.log10(recipe.training.learning_rate) + 3.5) ** 2


def test_the_rate_is_tried_first_and_the_rest_searched_near_the_best(
    blobs: Split, recipe: Recipe, planted: Plant
) -> None:
    tried = planted(rate_and_margin)
    tuned = tune(blobs, recipe, trials=9, sampler="random", options=SearchOptions(prune=False), **QUIET)
    rates = [one.training.learning_rate for one in tried]
    assert rates[:3] == [1e-4, 3.16e-5, 3.16e-4]  # as given, and half an order of magnitude below and above
    assert {margin(one) for one in tried[:3]} == {0.1}  # and nothing else is varied
    assert len(tried) == len(tuned.trials) == 9  # rungs are trials, and the best one is not run again
    assert all(3.16e-4 / 2.01 < rate < 3.16e-4 * 2.01 for rate in rates[3:])
    assert [trial.number for trial in tuned.trials] == list(range(9))
    assert [trial.values["learning_rate"] for trial in tuned.trials] == rates
    assert tuned.recipe == tried[tuned.best.number]
    assert tuned.value == tuned.best.score == max(trial.score or 0.0 for trial in tuned.trials)
    assert tuned.rates == {rate: rate_and_margin(one) for rate, one in sorted(zip(rates[:3], tried[:3], strict=True))}
    assert "Learning rates were tried first: 3.16e-05 (" in str(tuned)
    assert "the rest was searched around 0.000316." in str(tuned)
    assert list(tuned.to_dict()["rates"]) == ["3.16e-05", "0.0001", "0.000316"]


def test_a_search_with_a_ladder_goes_on_from_its_storage(
    blobs: Split, recipe: Recipe, planted: Plant, tmp_path: Any
) -> None:
    tried = planted(rate_and_margin)
    search: dict[str, Any] = {
        "sampler": "random",
        "storage": tmp_path / "search.db",
        "options": SearchOptions(prune=False),
        **QUIET,
    }
    short = tune(blobs, recipe, trials=3, **search)
    assert (short.best.values["learning_rate"], short.best.number, len(tried)) == (3.16e-4, 2, 3)
    longer = tune(blobs, recipe, trials=6, **search)
    assert [trial.values for trial in longer.trials[:3]] == [trial.values for trial in short.trials]
    assert len(tried) == 6
    again = tune(blobs, recipe, trials=6, **search)
    assert len(tried) == 6
    assert again.to_dict()["trials"] == longer.to_dict()["trials"]


def test_no_ladder_where_the_rate_is_fixed_or_searched_with_the_rest(
    blobs: Split, recipe: Recipe, planted: Plant
) -> None:
    alone, fixed = SearchOptions(rates=1), SearchOptions(fix=["learning_rate"])
    for options in ({"options": alone}, {"options": fixed}, {"space": MARGIN}, {"trials": 1}):
        planted(rate_and_margin)
        tuned = tune(blobs, recipe, **{"trials": 4, "sampler": "random", **options}, **QUIET)
        assert not tuned.rates
        assert "Learning rates" not in str(tuned)


def test_rates_that_fail_are_told_and_count(blobs: Split, recipe: Recipe, planted: Plant) -> None:
    def score(recipe: Recipe) -> float:
        if recipe.training.learning_rate > highest:
            raise NotFinite("The loss is nan.")
        return peak(recipe)

    highest = 2e-4
    planted(score)
    tuned = tune(blobs, recipe, trials=4, sampler="random", **QUIET)
    assert "0.000316 (failed); the rest was searched around 0.0001." in str(tuned)
    assert [trial.state for trial in tuned.trials] == ["complete", "complete", "failed", "complete"]

    highest = 2e-5  # below every rung; random draws from a tenth of the given rate on find something
    tried = planted(score)
    found = tune(blobs, recipe, trials=20, sampler="random", **QUIET)
    assert len(tried) == len(found.trials) == 20
    assert found.recipe.training.learning_rate <= highest
    assert "the rest was searched far around the given one." in str(found)


def test_proxies_keep_their_rate_on_the_ladder(blobs: Split, recipe: Recipe, planted: Plant) -> None:
    proxies = recipe.changed(loss="proxy_anchor", proxy_multiplier=100.0)
    tried = planted(lambda one: one.training.learning_rate)
    tuned = tune(blobs, proxies, trials=3, **QUIET)
    kept = [one.proxy_multiplier * one.training.learning_rate for one in tried]
    assert kept == pytest.approx([0.01] * 3)
    assert [trial.values["proxy_multiplier"] for trial in tuned.trials] == [one.proxy_multiplier for one in tried]
    tune(blobs, proxies, trials=3, proxy_multiplier=50.0, **QUIET)
    assert {one.proxy_multiplier for one in tried[3:]} == {50.0}
