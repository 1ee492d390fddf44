"""What costs no training is in every comparison, and the verdict knows whether training was worth it."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.decomposition import PCA

from vicinal.comparing import baselines, compare
from vicinal.comparing.contestants import drafts
from vicinal.comparing.grid import RunContestant
from vicinal.comparing.plan import Splits
from vicinal.data import arrays, digits
from vicinal.embedder import Embedder
from vicinal.evaluation import evaluate
from vicinal.leaderboard import leaderboards
from vicinal.report import write_report
from vicinal.runs import Journal
from vicinal.runs.journal import OpenJournal
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.recipe


def clusters(noise, classes=24, mislabelled=()):
    """Classes that differ in 3 of 10 directions; the labels of some of them are shuffled among their items."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 6)
    vectors = rng.normal(size=(len(labels), 10)) * np.r_[np.full(3, 0.2), np.full(7, noise)]
    vectors[:, :3] += rng.normal(size=(classes, 3))[labels]
    wrong = np.isin(labels, mislabelled)
    labels[wrong] = rng.permutation(labels[wrong])
    return arrays(vectors.astype(np.float32), labels, name="clusters")


def run(out, data, losses=("multi_similarity",), **changes):
    settings = {"backbone": "linear", "dim": 3, "steps": 1, "classes_per_batch": 6, "learning_rate": 0.02}
    settings |= {"protocol": "fixed-validation", "validation": 0.3, "evaluate_every": 20, "jobs": 1, "progress": False}
    return compare(data, list(losses), out=out, **{**settings, **changes})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A comparison of two seeds, whose runs hardly train."""
    out = tmp_path_factory.mktemp("made")
    return run(out, clusters(1.0), seeds=2, dims=[3, 20]), out


def test_every_network_seed_and_fold_has_its_baselines(made):
    board, _ = made
    found = [(entry.name, entry.network, entry.seeds) for entry in board.baselines]
    assert sorted(found) == [
        ("chance", ("linear", None), (0, 1)),
        ("untrained", ("linear", None), (0, 1)),
        ("untrained, PCA to 3", ("linear", 3), (0, 1)),  # and none to 20, of vectors that have 10 numbers
    ]
    assert {entry.name for entry in board.entries} == {"multi_similarity"}
    assert {record.steps for entry in board.baselines for record in entry.records} == {0}
    assert [entry.name for entry in board.baselines_of(("linear", 20))] == ["untrained", "chance"]


def test_untrained_runs_are_kept_as_trained_ones_are(made):
    board, _ = made
    for entry in board.baselines:
        if entry.name == "chance":
            assert not entry.runs[0].has_model
            continue
        for one in entry.runs:
            split = one.recipe.split(clusters(1.0))
            embedder = Embedder.load(one.files.model)
            assert embedder.encode(split.test) == pytest.approx(one.test_items().embeddings, abs=1e-5)
            raw = np.concatenate([split.validation.items, split.train.items])
            rows = PCA(3).fit(split.train.items).transform(raw) if entry.network[1] else raw
            labels = np.concatenate([split.validation.labels, split.train.labels + len(split.validation.class_names)])
            scores = evaluate(rows, labels, intervals=None).per_query["MAP@R"][: len(split.validation)]
            assert one.record.validation["MAP@R"] == pytest.approx(scores.mean(), abs=1e-6)


def test_what_the_journal_has_is_not_computed_again(made, monkeypatch):
    before, out = made
    monkeypatch.setattr(baselines, "assess", None)
    again = run(out, clusters(1.0), seeds=2, dims=[3, 20])
    assert [run.record.key for run in again.runs] == [run.record.key for run in before.runs]


def test_seeds_that_share_a_network_share_its_features(tmp_path, monkeypatch):
    items = []
    true = Embedder.encode

    def counted(self, data, **options):
        items.append(len(data))
        return true(self, data, **options)

    monkeypatch.setattr(Embedder, "encode", counted)
    data, settings = clusters(1.0), {"backbone": "linear", "protocol": "k-fold", "folds": 3}
    contestant = drafts(["triplet"], settings)[0].contestant()
    cells = [{"dim": dim, "seed": seed, "fold": fold} for seed in (0, 1) for fold in (0, 1) for dim in (2, 3)]
    grid = [replace(contestant, recipe=contestant.recipe.changed(cell)) for cell in cells]
    work = RunContestant(data=data, data_hash=data.hash(), out=tmp_path)
    networks, journal = baselines.UntrainedNetworks(data, tmp_path, 0), OpenJournal(tmp_path)
    keys = baselines.run_baselines(grid, work, networks, Splits(data), journal, retry_failed=False, progress=False)
    assert len(keys) == len(Journal(tmp_path).records()) == 2 * 2 * 4
    assert sum(items) == len(data)


def test_frozen_features_of_the_cache_are_used(tmp_path):
    small = {"backbone": "convnet", "backbone_options": {"widths": [8], "size": 8}, "dim": 4, "copies": 1}
    board = run(tmp_path / "out", digits(), freeze=True, cache=tmp_path / "cache", classes_per_batch=2, **small)
    assert len(board.baselines) == 3
    # Of the ten classes the plain features, and the augmented ones of those that were trained or chosen by.
    assert len(list((tmp_path / "cache" / "features").glob("*.npy"))) == 15


def test_queries_and_galleries_and_chosen_steps_are_those_of_the_runs(tmp_path):
    data = clusters(1.0)
    roles = np.where(data.labels < 12, "train", np.where(np.arange(len(data)) % 2, "query", "gallery"))
    official = arrays(data.items, data.labels, roles=roles)
    board = run(tmp_path, official, protocol="query-gallery")
    chance = next(entry for entry in board.baselines if entry.name == "chance").records[0]
    assert chance.gallery
    assert chance.test["P@1"] == pytest.approx(3 / 36)
    assert sum(chance.queries) == sum(board.records[0].queries) == 36


# Planted truths.


def test_where_training_helps_it_was_worth_it_and_best_is_trained(tmp_path):
    board = run(tmp_path, clusters(2.0, classes=40), steps=80, learning_rate=0.01)
    assert board.gain.answer == "yes"
    assert board.gain.test.difference > 0.1
    assert board.gain.baseline.name in ("untrained", "untrained, PCA to 3")
    assert board.best.record.role == "run"
    assert str(board.gain) in " ".join(str(board).split())
    assert str(board.gain) in (tmp_path / "best" / "README.md").read_text().replace("\\", "")  # as Markdown shows it


def test_where_training_labels_mean_nothing_training_was_not_worth_it(tmp_path):
    # All ten directions together tell classes apart better than any three of them that wrong labels lead to; the right
    # labels lead to the right three.
    right = clusters(1.0, classes=40)
    learnt = Recipe(validation=0.3).split(right).train
    names = [int(learnt.class_names[label]) for label in learnt.classes]
    answers = {}
    for out, data in {"right": right, "wrong": clusters(1.0, classes=40, mislabelled=names)}.items():
        assert Recipe(validation=0.3).split(data).train.class_names == learnt.class_names
        answers[out] = run(tmp_path / out, data, steps=40, learning_rate=0.01, protocol="cross-validation", seeds=1)
    assert (answers["right"].gain.answer, answers["wrong"].gain.answer) == ("yes", "no")
    assert answers["wrong"].gain.test.difference < 0
    assert answers["wrong"].best.record.role == "baseline"
    assert "No trained method beats the untrained network" in " ".join(str(answers["wrong"]).split())


def test_where_nothing_beats_the_untrained_network_it_is_the_best(tmp_path):
    board = run(tmp_path, clusters(0.1), dim=1)  # one number for what three say
    assert (board.best.record.role, board.best.record.name) == ("baseline", "untrained")
    assert board.gain.answer == "no"
    assert board.main_network == ("linear", 1)
    saved = Embedder.load(tmp_path / "best")
    assert saved.dim == 10
    said = " ".join(str(board).split())
    assert "Use this: untrained (linear, all features, seed 0)" in said
    assert "untrained (linear, all features, seed 0)" in (tmp_path / "best" / "README.md").read_text()
    page = write_report([tmp_path], progress=False).with_suffix(".md").read_text()
    assert page.startswith("# No loss beats the untrained network on clusters\n")
    assert f"`vicinal embed {tmp_path / 'best'} clusters --out embeddings.npz`" in page
    assert leaderboards([tmp_path])[0].ranks is None
