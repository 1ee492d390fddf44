"""The whole of a comparison, on vectors that train in a second."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from vicinal.comparing import _compare as best_folder
from vicinal.comparing import compare
from vicinal.comparing.executor import Processes
from vicinal.data import arrays, load
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError, Interrupted
from vicinal.evaluation import evaluate
from vicinal.leaderboard import leaderboards
from vicinal.runs import Journal
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.recipe


def clusters(classes=12, per_class=8, noise=1.0):
    """Classes that differ in 3 of 10 directions."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), per_class)
    vectors = rng.normal(size=(len(labels), 10)) * np.r_[np.full(3, 0.3), np.full(7, noise)]
    vectors[:, :3] += rng.normal(size=(classes, 3))[labels]
    return arrays(vectors.astype(np.float32), labels)


def run(out, losses=("triplet", "contrastive"), **changes):
    settings = {
        "backbone": "linear",
        "dim": 4,
        "steps": 6,
        "evaluate_every": 3,
        "classes_per_batch": 3,
        "learning_rate": 0.05,
        "protocol": "fixed-validation",
        "jobs": 1,
        "progress": False,
    }
    return compare(clusters(), list(losses), out=out, **{**settings, **changes})


def trained(folder):
    """The records of runs, without those of baselines."""
    return [record for record in Journal(folder).records() if record.role == "run"]


def test_plain_linear_maps_are_compared_by_distance_and_joined_as_they_are(tmp_path):
    found = run(tmp_path, ["nca", "lmnn", "proxy_anchor"], protocol="reality-check", folds=2, normalisation="none")
    assert {record.status for record in found.records} == {"done"}
    for record in found.records:
        with np.load(tmp_path / "trials" / record.key / "test.npz") as kept:
            lengths = np.linalg.norm(kept["embeddings"], axis=1)
            scores = evaluate(kept["embeddings"], kept["labels"], distance="euclidean", intervals=None)
        assert lengths.std() > 0.01
        assert record.test["MAP@R"] == pytest.approx(scores["MAP@R"])
    joined = [entry.joined for entry in found.entries]
    assert len(joined) == 3
    assert all(entry is not None and entry.mean("MAP@R") > 0.2 for entry in joined)


def test_every_loss_seed_and_fold_is_a_line_of_the_journal(tmp_path):
    found = run(tmp_path, protocol="reality-check", folds=2, seeds=2, dims=[3, 4])
    assert len(found.records) == len(trained(tmp_path)) == 16
    one = found.records[0]
    assert (one.protocol, one.selected_on, one.steps) == ("reality-check", "validation", 6)
    assert len(one.classes) == len(one.per_class["MAP@R"]) == len(one.queries) == 6
    assert set(one.validation) == {"P@1", "P@R", "MAP@R"}
    mean = np.average(one.per_class["MAP@R"], weights=one.queries)
    assert one.test["MAP@R"] == pytest.approx(mean)
    folder = tmp_path / "trials" / one.key
    assert {path.name for path in folder.iterdir()} >= {"recipe.toml", "metrics.jsonl", "test.npz", "model"}
    assert not (folder / "last.ckpt").exists()
    with np.load(folder / "test.npz") as kept:
        assert kept["embeddings"].dtype == np.float32
        assert kept["labels"].dtype == np.int64


def test_folds_of_the_reality_check_are_joined(tmp_path):
    found = run(tmp_path, protocol="reality-check", seeds=2)
    assert [len(entry.joined.records) for entry in found.entries] == [2, 2]
    first = found.entries[0]
    assert {one.test["MAP@R"] for one in first.joined.records} != {one.test["MAP@R"] for one in first.records}
    (again,) = leaderboards([tmp_path])
    assert [e.joined.by_seed("MAP@R") for e in again.entries] == [e.joined.by_seed("MAP@R") for e in found.entries]
    assert "joined" in str(found)


def test_the_same_call_runs_only_what_is_missing(tmp_path):
    first = run(tmp_path)
    second = run(tmp_path, losses=("triplet", "contrastive", "proxy_anchor"), seeds=2)
    assert len(second.records) == 6
    assert {one.key: one.finished for one in second.records}.items() >= {
        one.key: one.finished for one in first.records
    }.items()


def test_other_conditions_need_another_folder(tmp_path):
    run(tmp_path)
    with pytest.raises(InputError, match="steps was 6 and is now 7"):
        run(tmp_path, steps=7)


def test_a_trial_that_fails_is_recorded_and_the_rest_go_on(tmp_path, monkeypatch):
    tasks = importlib.import_module("vicinal.comparing.grid")
    true = tasks.train

    def breaking(recipe, **options):
        if recipe.loss == "triplet":
            raise RuntimeError("It broke.")
        return true(recipe, **options)

    monkeypatch.setattr(tasks, "train", breaking)
    found = run(tmp_path)
    assert {one.name: one.status for one in trained(tmp_path)} == {"triplet": "failed", "contrastive": "done"}
    assert "It broke." in (found.failed[0].error or "")
    assert "RuntimeError" in (tmp_path / "trials" / found.failed[0].key / "error.txt").read_text()
    assert "Failed: triplet" in str(found)
    monkeypatch.undo()
    assert len(run(tmp_path).failed) == 1
    assert not run(tmp_path, retry_failed=True).failed


def test_selection_on_test_is_labelled_and_only_for_the_default_protocol(tmp_path):
    found = run(tmp_path, protocol="default", select_on_test=True)
    assert {one.selected_on for one in found.records} == {"test"}
    assert "SELECTED ON TEST" in str(found)
    with pytest.raises(InputError, match="validation classes"):
        run(tmp_path / "b", protocol="k-fold", folds=2, select_on_test=True)


def test_protocols_never_share_a_table(tmp_path):
    run(tmp_path / "a")
    run(tmp_path / "b", protocol="default")
    merged = leaderboards([tmp_path / "a", tmp_path / "b"])
    assert [board.records[0].protocol for board in merged] == ["fixed-validation", "default"]


def test_folders_of_two_machines_merge(tmp_path):
    run(tmp_path / "a", losses=["triplet"])
    run(tmp_path / "b", losses=["contrastive"])
    run(tmp_path / "both")
    (merged,), (whole,) = leaderboards([tmp_path / "a", tmp_path / "b"]), leaderboards([tmp_path / "both"])
    scores = [{entry.name: entry.mean("MAP@R") for entry in board.entries} for board in (merged, whole)]
    assert scores[0] == scores[1]
    assert merged.verdict() == whole.verdict()


def test_a_better_loss_wins_and_the_verdict_says_so(tmp_path):
    settings = {"backbone": "linear", "dim": 3, "classes_per_batch": 8, "learning_rate": 0.02, "steps": 60}
    weak = tmp_path / "weak.toml"
    weak.write_text('loss = "triplet"\nlearning_rate = 1e-9\n')  # as drawn
    found = compare(
        clusters(classes=60, per_class=6, noise=2.0),
        ["multi_similarity", weak],
        out=tmp_path / "out",
        recipe=Recipe.of(settings),
        seeds=3,
        jobs=1,
        progress=False,
    )
    verdict = found.verdict()
    assert verdict.winner == "multi_similarity"
    assert verdict.significant
    (demands,) = {one.demands for one in found.records if one.name == "weak"}
    assert "learning_rate 1e-09 instead of 0.02" in demands


def test_mistakes_of_all_losses_are_reported_before_anything_runs(tmp_path):
    for name, text in {
        "one": 'loss = "triplet"\nloss_options = {margim = 1}',
        "two": 'loss = "margin"\nmemory = -2',
    }.items():
        (tmp_path / f"{name}.toml").write_text(text)
    with pytest.raises(InputError, match="two: memory"):
        run(tmp_path / "out", losses=[tmp_path / "one.toml", tmp_path / "two.toml"])
    with pytest.raises(InputError, match="one: Unknown option of triplet 'margim'"):
        run(tmp_path / "out", losses=[tmp_path / "one.toml"])
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_a_clear_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="Cannot write to the comparison's folder"):
        run(tmp_path / "out")


def test_a_path_that_is_no_folder_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Cannot write to the comparison's folder"):
        run(tmp_path / "file" / "out")


def test_the_search_for_settings_has_the_same_budget_for_every_loss(tmp_path):
    found = run(tmp_path, tune=2, sampler="random", seeds=2)
    assert {one.tuning_trials for one in found.records} == {2}
    assert {path.name for path in (tmp_path / "tuning").glob("*.toml")} == {
        "triplet-linear-4.toml",
        "contrastive-linear-4.toml",
    }
    again = run(tmp_path, tune=2, sampler="random", seeds=2)
    assert [one.key for one in again.records] == [one.key for one in found.records]


def test_what_a_loss_demanded_is_told_as_the_search_left_it(tmp_path):
    for record in run(tmp_path, ["proxy_anchor", "triplet"], tune=3, sampler="random").records:
        rate = record.recipe["proxy_multiplier"] * record.recipe["training"]["learning_rate"]
        told = [f"proxies, 1 per class, with learning rate {rate:.3g}"] if record.name == "proxy_anchor" else []
        assert [word for word in record.demands if word.startswith("proxies")] == told


PROGRAM = """
import sys
from vicinal.comparing import compare
from vicinal.data import load

if __name__ == "__main__":
    compare(load(sys.argv[1]), ["triplet", "contrastive"], out=sys.argv[2], jobs=2, {settings})
"""
SETTINGS = {
    "seeds": 2,
    "steps": 120,
    "backbone": "linear",
    "dim": 4,
    "evaluate_every": 20,
    "classes_per_batch": 3,
    "learning_rate": 0.01,
    "progress": False,
}


def scores(folder):
    return sorted((one.name, one.seed, one.best_step, one.test["MAP@R"]) for one in trained(folder))


@pytest.mark.slow
def test_killed_and_started_again_it_comes_to_the_same(tmp_path):
    data = clusters()
    np.savez(tmp_path / "items.npz", X=data.items, y=data.labels)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(settings=", ".join(f"{name}={value!r}" for name, value in SETTINGS.items())))
    child = subprocess.Popen(
        [sys.executable, program, tmp_path / "items.npz", tmp_path / "killed"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("trials/*/last.ckpt")):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = trained(tmp_path / "killed")
    assert len(before) < 4
    whole = load(tmp_path / "items.npz")
    for out in ("killed", "whole"):
        compare(whole, ["triplet", "contrastive"], out=tmp_path / out, jobs=1, **SETTINGS)
    assert scores(tmp_path / "killed") == scores(tmp_path / "whole")
    assert len(scores(tmp_path / "killed")) == 4


def die_on_two(task):
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return task * 10


@pytest.mark.slow
def test_a_process_that_dies_takes_only_its_task_with_it():
    with Processes(jobs=1, threads=1) as processes:
        ended = {one.task: one for one in processes.run([1, 2, 3], die_on_two, lambda _: None)}
    assert {task: one.result for task, one in ended.items()} == {1: 10, 2: None, 3: 30}
    assert "exit code -9" in ended[2].error


def die_once(marker):
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


@pytest.mark.slow
def test_a_task_whose_process_was_killed_is_given_to_another(tmp_path):
    tasks = [tmp_path / "first", tmp_path / "second"]
    with Processes(jobs=1, threads=1) as processes:
        ended = list(processes.run(tasks, die_once, lambda _: None))
    assert [(one.task, one.result) for one in ended] == [(task, "done") for task in tasks]


def who_works(task):
    return task, os.getpid()


def who_works_otherwise(task):
    return -task, os.getpid()


class Readied:
    def __init__(self, marker):
        self.marker = marker

    def get_ready(self):
        self.marker.write_text(str(os.getpid()))

    def __call__(self, task):
        return task, self.marker.read_text() == str(os.getpid())


@pytest.mark.slow
def test_processes_that_are_started_early_get_ready_and_do_the_work(tmp_path):
    work = Readied(tmp_path / "ready")
    with Processes(jobs=1, threads=1) as processes:
        processes.start(work, 2)
        assert [one.result for one in processes.run([1, 2], work, lambda _: None)] == [(1, True), (2, True)]
    with Processes(jobs=1, threads=1) as processes:
        processes.start(work, 1)  # and is not needed after all


@pytest.mark.slow
def test_fabric_in_processes_of_ours_leaves_torchmetrics_alone():
    script = (
        "import sys; from vicinal.training.processes import import_fabric; import_fabric();"
        "print('lightning_fabric' in sys.modules, 'torchmetrics' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["True", "False"]


@pytest.mark.slow
def test_processes_stay_for_what_comes_next_and_do_what_they_are_told_then():
    with Processes(jobs=1, threads=1) as processes:
        ended = [
            one.result
            for work in (who_works, who_works, who_works_otherwise)
            for one in processes.run([1, 2], work, lambda _: None)
        ]
        (worker,) = {process for _, process in ended}
        assert [answer for answer, _ in ended] == [1, 2, 1, 2, -1, -2]
        assert worker != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_conditions_are_written_down(tmp_path):
    run(tmp_path)
    stated = json.loads((tmp_path / "conditions.json").read_text())
    assert (stated["protocol"], stated["steps"]) == ("fixed-validation", 6)
    assert "loss" not in stated


def test_the_best_model_is_kept_and_found_by_the_comparison_s_folder(tmp_path):
    board = run(tmp_path, seeds=2)
    best = board.best
    of_name = [
        one for entry in (*board.entries, *board.baselines) if entry.name == best.record.name for one in entry.records
    ]
    assert best.record.validation["MAP@R"] == max(one.validation["MAP@R"] for one in of_name)
    vectors = clusters().items
    expected = best.embedder().encode(vectors)
    for place in (tmp_path, tmp_path / "best"):
        assert np.array_equal(Embedder.load(place).encode(vectors), expected)
    assert not list(tmp_path.glob(".best*"))
    run(tmp_path / "none", keep_models=False)
    assert not (tmp_path / "none" / "best").exists()


def test_best_is_never_the_model_of_a_former_winner(tmp_path):
    run(tmp_path / "kept")
    run(tmp_path / "none", keep_models=False)
    shutil.copytree(tmp_path / "kept" / "best", tmp_path / "none" / "best")
    again = run(tmp_path / "none", keep_models=False)
    assert again.to_dict()["best"] is None
    assert not (tmp_path / "none" / "best").exists()


@pytest.mark.parametrize("dies_at", ["best", ".best.partial", ".best.former"])
def test_killed_while_the_best_model_is_put_in_its_place_there_is_one_at_every_moment(tmp_path, monkeypatch, dies_at):
    run(tmp_path)
    vectors = clusters().items
    expected = Embedder.load(tmp_path).encode(vectors)
    rename, remove = Path.rename, shutil.rmtree

    def renamed(self, target):
        if self.name == dies_at:
            raise KeyboardInterrupt
        return rename(self, target)

    def removed(path, **options):
        if Path(path).name == dies_at and Path(path).exists():
            raise KeyboardInterrupt
        remove(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", renamed)
        patch.setattr(best_folder.shutil, "rmtree", removed)
        with pytest.raises(Interrupted):
            run(tmp_path)
    assert np.array_equal(Embedder.load(tmp_path).encode(vectors), expected)
    run(tmp_path)
    assert np.array_equal(Embedder.load(tmp_path / "best").encode(vectors), expected)
    assert not list(tmp_path.glob(".best*"))


def test_the_same_batches_for_all_are_labelled_wherever_the_table_is(tmp_path):
    own, same = run(tmp_path / "own"), run(tmp_path / "same", same_batches=True)
    assert [board.first.same_batches for board in (own, same)] == [False, True]
    assert "THE SAME BATCHES FOR ALL" in same.title
    assert "SAME BATCHES" not in own.title
    assert (own.to_dict()["same_batches"], same.to_dict()["same_batches"]) == (False, True)
    together = leaderboards([tmp_path / "own", tmp_path / "same"])  # they answer different questions
    assert [[entry.name for entry in board.entries] for board in together] == [
        [entry.name for entry in board.entries] for board in (own, same)
    ]
    assert [len(board.baselines) for board in together] == [3, 3]
