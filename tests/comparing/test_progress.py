"""Who waits sees that it moves: trials of searches, losses and scores, and embedding that takes long."""

import json
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from vicinal._util import progress as live_bar
from vicinal.comparing import baselines, progress
from vicinal.comparing import grid as tasks
from vicinal.comparing import grid as trial_log
from vicinal.comparing.contestants import drafts
from vicinal.comparing.grid import RunContestant, TrialLog, TuneContestant
from vicinal.comparing.plan import Splits
from vicinal.comparing.progress import Shown, how_far, last_facts, scores_in_words, share_done
from vicinal.data import arrays, split
from vicinal.runs import Record
from vicinal.runs._train import fit
from vicinal.runs.journal import OpenJournal
from vicinal.runs.recipe import Recipe
from vicinal.training.log import TIME_USED
from vicinal.tuning import SearchOptions, tune

pytestmark = pytest.mark.recipe
SMALL = {"backbone": "linear", "dim": 4, "batch": "3x3", "steps": 4, "evaluate_every": 2, "learning_rate": 0.01}


def vectors(classes=20):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 6)
    return arrays((rng.normal(size=(len(labels), 6)) + labels[:, None] % 4).astype(np.float32), labels)


def test_while_rates_are_chosen_only_validation_scores_are_shown():
    recipe = Recipe(loss="triplet").model_dump(mode="json")
    scores = {"validation": {"MAP@R": 0.25}, "test": {"MAP@R": 0.75, "P@1": 0.875}}
    rung = Record(key="", name="triplet", status="done", recipe=recipe, role="rung", **scores)
    assert scores_in_words(rung) == "validation MAP@R 0.2500"
    assert scores_in_words(rung.model_copy(update={"role": "run"})) == "MAP@R 0.7500, P@1 0.8750"


def test_loss_and_score_are_both_told_though_their_lines_differ(tmp_path):
    log = tmp_path / "metrics.jsonl"
    assert last_facts(log) == {}
    lines = [{"step": 10, "loss": 0.5}, {"step": 20, "score": 0.25}, {"step": 30, "loss": 0.125}]
    log.write_text("cut off}\n" + "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 40, "lo')
    facts = last_facts(log)
    assert facts == {"step": 30, "loss": 0.125, "score": 0.25}
    assert how_far("triplet", facts) == "triplet (step 30, loss 0.1250, score 0.2500)"


def test_a_run_by_time_is_as_far_as_its_time():
    assert share_done({"step": 10**6, TIME_USED: 0.5}, None) == 0.5
    assert share_done({}, None) == 0.0
    assert share_done({"trial": 3, "trials": 4, TIME_USED: 0.5}, None) == 0.625


def test_a_trial_says_which_it_is_and_how_far(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_log, "EVERY", 0.0)
    path = tmp_path / "search.jsonl"
    fit(split(vectors(), "fixed-validation", validation=0.4), Recipe.of(SMALL), hooks=[TrialLog(path, 2, 5)],
        progress=False)  # fmt: skip
    facts = last_facts(path)
    assert (facts["trial"], facts["trials"], facts["step"]) == (3, 5, 4)
    assert np.isfinite([facts["loss"], facts["score"], facts["images_per_second"]]).all()
    assert share_done(facts, 4) == 0.6
    TrialLog(path, 3, 5)  # the next one begins at its beginning
    assert last_facts(path) == {"trial": 4, "trials": 5}
    TrialLog(tmp_path / "gone" / "search.jsonl", 0, 1)  # which costs nobody a search


def test_a_search_lets_every_trial_be_watched():
    seen = []

    def watch(finished, trials):
        seen.append((finished, trials))
        return trial_log.Hook()

    view = split(vectors(), "fixed-validation", validation=0.4)
    tune(view, Recipe.of(SMALL), trials=3, sampler="random", progress=False, options=SearchOptions(watch=watch))
    assert seen == [(0, 3), (1, 3), (2, 3)]


def test_every_search_has_a_log_while_it_runs_and_none_after(tmp_path, monkeypatch):
    contestant = drafts(["triplet"], SMALL)[0].contestant()
    search = TuneContestant(data=vectors(), out=tmp_path, trials=5, sampler="random")
    asked = {}

    def searched(split, recipe, space, trials, how, **options):
        asked["trials"] = trials.count
        how.watch(0, 5)
        assert last_facts(search.log_of(contestant)) == {"trial": 1, "trials": 5}
        raise ValueError("enough")

    monkeypatch.setattr(tasks, "run_study", searched)
    assert search(contestant) == "enough"
    assert not search.log_of(contestant).exists()
    assert asked["trials"] == 5


def test_rates_that_were_tried_count_as_trials_whether_they_ended_or_not(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(tasks, "run_study", lambda *parts, **rest: asked.append(parts[3].count) or 1 / 0)
    contestant = drafts(["triplet"], SMALL)[0].contestant()
    search = TuneContestant(data=vectors(), out=tmp_path, trials=7, sampler="random")
    climbed = replace(contestant, tuning_trials=3, rates={0.1: 0.5}, curve={4: 0.5})
    failed = replace(contestant, tuning_trials=3, rates={0.1: None})
    for one in (contestant, climbed, failed):
        search(one)
    # After a ladder the first trial is the rung that won, which is known; without a winner it has to be run.
    assert asked == [7, 7 - 3 + 1, 7 - 3]


def test_what_writes_no_log_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(live_bar, "FIRST", 0.0)
    monkeypatch.setattr(live_bar, "EVERY", 0.0)
    monkeypatch.setattr(baselines, "PART", 48)
    contestant = drafts(["triplet"], SMALL)[0].contestant()
    data = vectors()
    run = RunContestant(data=data, data_hash=data.hash(), out=tmp_path)
    networks = baselines.UntrainedNetworks(data, tmp_path, 0)
    journal = OpenJournal(tmp_path)
    baselines.run_baselines([contestant], run, networks, Splits(data), journal, retry_failed=False, progress=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "untrained (linear, seed 0), 48 of" in said
    assert "items embedded" in said


def test_lines_go_on_where_nothing_writes_a_log(monkeypatch):
    monkeypatch.setattr(progress, "LOOK", 0.001)
    looked = threading.Event()
    with Shown("tuning", 1, True) as shown:
        monkeypatch.setattr(Shown, "_show", partial(lambda event, *_: event.set(), looked))
        assert looked.wait(60)
    del shown
