"""Each loss climbs a ladder of learning rates before it is compared."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from vicinal.comparing import compare
from vicinal.comparing.contestants import drafts
from vicinal.comparing.grid import (
    Execution,
    RunContestant,
    TuneContestant,
    chosen_rates,
    run_grid,
    rungs_of,
    search_settings,
)
from vicinal.data import arrays
from vicinal.errors import InputError, Interrupted
from vicinal.leaderboard import leaderboards
from vicinal.runs import Journal, Record, read_searches
from vicinal.runs.recipe import Recipe
from vicinal.tuning.ladder import climb, ladder

pytestmark = pytest.mark.recipe


def vectors(classes=24, per_class=8, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    items = rng.normal(size=(len(labels), 12)) * np.r_[np.full(4, 0.4), np.full(8, 1.5)]
    items[:, :4] += rng.normal(size=(classes, 4))[labels]
    return arrays(items.astype(np.float32), labels)


def contestants(*parts):
    return [draft.contestant() for draft in drafts(*parts)]


SETTINGS = {
    "backbone": "linear", "dim": 4, "steps": 12, "evaluate_every": 4, "validation": 0.3, "batch": "4x4",
    "protocol": "fixed-validation", "jobs": 1, "progress": False,
}  # fmt: skip


def test_rungs_are_half_an_order_of_magnitude_apart_and_the_given_rate_is_one():
    assert 0.0012345 in ladder(0.0012345)  # to the last digit: the recipe as it is given is one of them
    for rungs in (1, 2, 3, 4, 5):
        rates = ladder(3e-4, rungs)
        assert len(rates) == rungs
        assert 3e-4 in rates
        np.testing.assert_allclose(np.diff(np.log10(rates)), 0.5, atol=2e-3)


def record(contestant, score, images=80):
    recipe = contestant.recipe.model_dump(mode="json")
    scores = {} if score is None else {"MAP@R": score}
    status = "failed" if score is None else "done"
    return Record(
        key="", name=contestant.name, status=status, recipe=recipe, validation=scores, images=images, steps=5,
        curve=[(16, 0.1), (80, score or 0.0)],
    )  # fmt: skip


def test_every_loss_gets_its_own_rate_on_all_seeds_and_the_cost_is_counted():
    grid = [
        *contestants(["triplet", "proxy_anchor"], {"learning_rate": 1e-3}),
        *contestants(["triplet", "proxy_anchor"], {"learning_rate": 1e-3, "seed": 1}),
    ]
    rungs = rungs_of(grid, 3)
    assert len(rungs) == 6
    assert {rung.recipe.training.seed for rung in rungs} == {0}
    scores = [0.1, 0.2, 0.3, 0.6, 0.5, None]  # triplet is best at the highest rate, proxy_anchor at the lowest
    chosen = chosen_rates(grid, [(rung, record(rung, score)) for rung, score in zip(rungs, scores, strict=True)])
    assert [one.recipe.training.learning_rate for one in chosen] == [3.16e-3, 3.16e-4, 3.16e-3, 3.16e-4]
    assert [one.recipe.training.seed for one in chosen] == [0, 0, 1, 1]
    assert chosen[1].rates == {3.16e-4: 0.6, 1e-3: 0.5, 3.16e-3: None}
    assert [(one.tuning_trials, one.tuning_images) for one in chosen[:2]] == [(3, 160), (3, 160)]
    assert chosen[0].curve == {1: 0.1, 5: 0.3}


def test_a_loss_none_of_whose_rungs_ended_keeps_its_rate_and_has_had_its_trials():
    grid = contestants(["triplet"])
    (chosen,) = chosen_rates(grid, [(rung, record(rung, None)) for rung in rungs_of(grid, 3)])
    assert (chosen.recipe, chosen.curve) == (grid[0].recipe, {})
    assert (chosen.tuning_trials, list(chosen.rates.values())) == (3, [None, None, None])


def test_settings_are_searched_for_with_each_network_apart_and_by_who_has_trials_left(tmp_path, monkeypatch):
    searched = []

    def search_for_rate(self, contestant):
        """Find another rate for every length of embeddings, in ten steps; fail for one loss."""
        searched.append((contestant.name, contestant.recipe.dim))
        if contestant.name == "circle":
            return "it failed"
        return SimpleNamespace(recipe=contestant.recipe.changed(learning_rate=contestant.recipe.dim / 100), steps=10)

    monkeypatch.setattr(TuneContestant, "__call__", search_for_rate)
    settings = {"classes_per_batch": 4, "samples_per_class": 4, "accumulate": 3}
    entries = contestants(["triplet", "contrastive", "circle"], settings)
    grid = [
        replace(entry, recipe=entry.recipe.changed(dim=dim, seed=seed), tuning_trials=5 * (entry.name == "contrastive"))
        for seed in (0, 1)
        for dim in (2, 8)
        for entry in entries
    ]
    search = TuneContestant(data=vectors(), out=tmp_path, trials=5, sampler="random")
    ready, broken = search_settings(grid, search, Execution(1, 1, None, False, False))
    assert searched == [("triplet", 2), ("circle", 2), ("triplet", 8), ("circle", 8)]
    found = {(one.name, one.recipe.dim, one.recipe.training.seed): one for one in ready}
    for seed in (0, 1):
        for dim in (2, 8):
            tuned = found["triplet", dim, seed]
            assert tuned.recipe.training.learning_rate == dim / 100
            assert (tuned.tuning_trials, tuned.tuning_images) == (5, 10 * 4 * 4 * 3)
            assert found["contrastive", dim, seed] in grid
    assert len(ready) == 8
    assert [(one.name, one.recipe.dim) for one, _ in broken] == [("circle", 2), ("circle", 8)] * 2


def test_proxies_keep_their_rate_on_every_rung_unless_a_recipe_gives_their_multiplier():
    base = {"learning_rate": 1e-4}
    proxies, pairs = (rungs_of(contestants([loss], base), 3) for loss in ("proxy_anchor", "triplet"))
    rates = [rung.recipe.proxy_multiplier * rung.recipe.training.learning_rate for rung in proxies]
    np.testing.assert_allclose(rates, Recipe().proxy_multiplier * 1e-4, rtol=1e-5)
    assert {rung.recipe.proxy_multiplier for rung in pairs} == {Recipe().proxy_multiplier}
    stated = rungs_of(contestants(["proxy_anchor"], base, {"proxy_multiplier": 5.0}), 3)
    assert {rung.recipe.proxy_multiplier for rung in stated} == {5.0}


def test_of_level_rungs_the_given_rate_is_chosen_and_then_the_lowest():
    recipe = Recipe.of({"learning_rate": 1e-3})
    rates = ladder(1e-3, 3)
    for scores, best in (([0.5, 0.5, 0.5], 1e-3), ([0.5, 0.4, 0.5], rates[0]), ([None, None, 0.1], rates[2])):
        tried = dict(zip(rates, scores, strict=True))
        climbed = climb(recipe, rates, lambda rungs, tried=tried: {rate: tried[rate] for rate in reversed(list(rungs))})
        assert (climbed.best, climbed.recipe.training.learning_rate) == (best, best)
        assert list(climbed.scores) == rates
    nothing = climb(recipe, rates, lambda rungs: dict.fromkeys(rungs))
    assert (nothing.best, nothing.recipe) == (None, recipe)


def test_rungs_stay_out_of_the_table_and_the_chosen_one_is_not_trained_again(tmp_path):
    board = compare(vectors(), ["triplet", "contrastive"], out=tmp_path, seeds=2, **SETTINGS)
    lines = [json.loads(line) for line in Journal(tmp_path).path.read_text().splitlines()]
    lines = [line for line in lines if line["role"] != "baseline"]
    assert [line["role"] for line in lines].count("rung") == 6
    assert len(board.records) == 4
    assert len(lines) == 6 + 4
    assert len({line["key"] for line in lines}) == 6 + 4 - 2  # the best rungs are the runs of seed 0
    for entry in board.entries:
        first, second = entry.records
        rates = first.rates
        assert len(rates) == 3
        assert first.recipe["training"]["learning_rate"] == max(rates, key=rates.get)
        assert second.recipe["training"]["learning_rate"] == max(rates, key=rates.get)
        assert first.validation["MAP@R"] == max(rates.values())
        assert (first.images, first.tuning_images) == (12 * 16, 2 * 12 * 16)
    assert len(leaderboards([tmp_path])[0].records) == 4
    before = Journal(tmp_path).path.read_text()
    again = compare(vectors(), ["triplet", "contrastive"], out=tmp_path, seeds=2, **SETTINGS)
    assert Journal(tmp_path).path.read_text() == before
    assert [one.key for one in again.records] == [one.key for one in board.records]
    assert "Learning rates selected on validation classes: " in " ".join(str(board).split())


def test_no_test_class_is_looked_at_before_a_rate_is_chosen_and_no_step_is_taken_twice(tmp_path):
    board = compare(vectors(), ["triplet"], out=tmp_path / "climbed", **SETTINGS)
    (chosen,) = (run for run in board.runs if run.record.role == "run")
    lines = [json.loads(line) for line in Journal(tmp_path / "climbed").path.read_text().splitlines()]
    rungs = [line for line in lines if line["role"] == "rung"]
    assert len(rungs) == 3
    assert not any(line["test"] or line["per_class"] for line in rungs)
    assert not [*tmp_path.glob("climbed/trials/*/*.ckpt")]
    scored = [json.loads(line) for line in (chosen.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in scored if "score" in line] == [4, 8, 12]
    rate = chosen.record.recipe["training"]["learning_rate"]
    alone = compare(vectors(), ["triplet"], out=tmp_path / "alone", learning_rate=rate, **SETTINGS).records[0]
    assert not alone.rates
    for fact in ("test", "validation", "per_class", "curve", "images", "best_step"):
        assert getattr(chosen.record, fact) == getattr(alone, fact)


@pytest.mark.parametrize("gone", [False, True])
def test_a_comparison_that_was_killed_between_the_ladder_and_the_runs_goes_on(tmp_path, monkeypatch, gone):
    whole = compare(vectors(), ["triplet"], out=tmp_path / "whole", **SETTINGS)

    def killed(what, *arguments, **options):
        if what == "runs":
            raise KeyboardInterrupt
        return run_grid(what, *arguments, **options)

    monkeypatch.setattr("vicinal.comparing._compare.run_grid", killed)
    with pytest.raises(Interrupted):
        compare(vectors(), ["triplet"], out=tmp_path / "killed", **SETTINGS)
    monkeypatch.undo()
    kept = [*tmp_path.glob("killed/trials/*/last.ckpt")]
    assert len(kept) == 1  # of the rate that was chosen
    if gone:
        kept[0].unlink()
    board = compare(vectors(), ["triplet"], out=tmp_path / "killed", **SETTINGS)
    assert [record.test for record in board.records] == [record.test for record in whole.records]
    assert not [*tmp_path.glob("killed/trials/*/*.ckpt")]


def test_what_was_noted_of_a_rung_is_told_of_the_run_that_it_becomes(tmp_path):
    data, (contestant,) = vectors(), contestants(["triplet"])
    run = RunContestant(data=data, data_hash=data.hash(), out=tmp_path, notes=("batches shrank",))
    rung = record(contestant, 0.5).model_copy(update={"role": "rung", "notes": ("batches shrank", "a tiny budget")})
    again = run.again(contestant, rung)
    assert (again.role, again.notes) == ("run", ("batches shrank", "a tiny budget"))


def test_rates_are_taken_as_given_where_that_is_asked_for_or_nothing_can_choose(tmp_path):
    for number, changes in enumerate(({"rates": 1}, {"learning_rate": 0.01}, {"protocol": "default"})):
        board = compare(vectors(), ["triplet"], out=tmp_path / str(number), **{**SETTINGS, **changes})
        assert not board.records[0].rates
        roles = [record.role for record in Journal(tmp_path / str(number)).records()]
        assert (roles.count("run"), roles.count("rung")) == (1, 0)
        assert "Learning rates" not in str(board)
    with pytest.raises(InputError, match="rates must be at least 1"):
        compare(vectors(), ["triplet"], out=tmp_path / "wrong", rates=0, **SETTINGS)


def test_a_search_takes_the_ladder_first_and_searches_the_rest_near_it(tmp_path):
    board = compare(vectors(), ["triplet", "contrastive"], out=tmp_path, tune=5, sampler="random", **SETTINGS)
    for found in board.records:
        assert found.tuning_trials == 5
        best = max(found.rates, key=found.rates.get)
        assert best / 2.01 <= found.recipe["training"]["learning_rate"] <= best * 2.01
        assert found.recipe["classes_per_batch"] * found.recipe["samples_per_class"] == 16
        # Three rungs, one of which may be the run, and two trials more.
        assert found.tuning_images == (2 + 2) * 12 * 16


def test_searches_of_two_networks_are_kept_apart(tmp_path):
    settings = {**SETTINGS, "steps": 4, "evaluate_every": 2, "rates": 2}
    board = compare(vectors(), ["triplet"], out=tmp_path, tune=5, sampler="random", dims=[2, 4], **settings)
    searches = read_searches([tmp_path])
    assert {(search.name, search.backbone, search.dim) for search in searches} == {
        ("triplet", "linear", 2),
        ("triplet", "linear", 4),
    }
    for record in board.records:
        best = max(record.rates, key=record.rates.get)
        assert best / 2.01 <= record.recipe["training"]["learning_rate"] <= best * 2.01
    (own,) = [search for search in searches if search.is_of(("linear", 2))]
    assert own.dim == 2
    assert len(own.scores) <= 5 - 2 + 1
