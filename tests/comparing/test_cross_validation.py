"""Comparisons of heads choose by cross-validation over all training classes, and fit the models on all of them."""

import importlib

import numpy as np
import pytest

from vicinal.comparing import compare
from vicinal.comparing.networks import choose_network
from vicinal.comparing.plan import Splits
from vicinal.data import Dataset, arrays
from vicinal.errors import InputError, Interrupted
from vicinal.runs import Journal
from vicinal.runs.record import Record

pytestmark = pytest.mark.recipe


def clusters(classes=24, per_class=6, noise=1.0, seed=0):
    """Classes that differ in 3 of 10 directions."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    vectors = rng.normal(size=(len(labels), 10)) * np.r_[np.full(3, 0.3), np.full(7, noise)]
    vectors[:, :3] += rng.normal(size=(classes, 3))[labels]
    return arrays(vectors.astype(np.float32), labels)


def run(out, losses=("triplet", "contrastive"), **changes):
    settings = {"dim": 4, "steps": 6, "evaluate_every": 3, "classes_per_batch": 3, "jobs": 1, "progress": False}
    return compare(clusters(), list(losses), out=out, **{**settings, **changes})


def of_role(folder, role) -> list[Record]:
    return [record for record in Journal(folder).records() if record.role == role]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("made")
    return run(out), out


def test_every_training_class_chooses_and_every_model_is_fitted_on_all(made):
    board, out = made
    split = board.entries[0].runs[0].recipe.split(clusters())
    assert {record.protocol for record in board.records} == {"cross-validation"}
    assert len(board.records) == 2 * 3  # three seeds
    for entry in (*board.entries, *board.baselines[:2]):
        for record in entry.records:
            assert sorted(record.validation_classes) == sorted(split.train.class_names)
            assert record.selected_on == "validation"
            means = np.average(record.validation_per_class, weights=record.validation_queries)
            assert record.validation["MAP@R"] == pytest.approx(means)
    tried = of_role(out, "rung")
    rates, folds, longer = 3, 4, 1
    assert len(tried) == 2 * (rates + longer) * folds
    assert all(not record.test for record in tried)  # no test class is scored while settings are chosen
    assert {record.recipe["fold"] for record in tried} == set(range(folds))
    assert len(split.train.classes) == 12


def test_the_chosen_rate_is_that_of_all_folds(made):
    board, _ = made
    for entry in board.entries:
        record = entry.records[0]
        assert len(record.rates) == 3
        assert float(record.recipe["training"]["learning_rate"]) in record.rates
        assert record.twice_the_budget is not None
        assert {each.recipe["training"]["learning_rate"] for each in entry.records} == {
            record.recipe["training"]["learning_rate"]
        }


def test_the_same_call_adds_nothing_and_returns_the_same(made):
    board, out = made
    lines = Journal(out).path.read_bytes()
    again = run(out)
    assert Journal(out).path.read_bytes() == lines
    assert [record.key for record in again.records] == [record.key for record in board.records]
    assert again.choice.entry.name == board.choice.entry.name


def test_a_comparison_that_was_stopped_goes_on_with_the_same_result(made, tmp_path, monkeypatch):
    board, _ = made
    grid = importlib.import_module("vicinal.comparing.grid")
    true, count = grid.train, [0]

    def stopping(recipe, **options):
        count[0] += 1
        if count[0] == 11:
            raise Interrupted("stopped")
        return true(recipe, **options)

    monkeypatch.setattr(grid, "train", stopping)
    with pytest.raises(Interrupted):
        run(tmp_path)
    monkeypatch.undo()
    resumed = run(tmp_path)
    assert {record.key: record.test for record in resumed.records} == {
        record.key: record.test for record in board.records
    }
    assert {record.key: record.validation for record in resumed.records} == {
        record.key: record.validation for record in board.records
    }


def test_a_search_replaces_settings_only_if_all_folds_find_it_better(tmp_path):
    board = run(tmp_path, ["triplet"], tune=5, sampler="random", seeds=1)
    (record,) = board.records
    assert record.tuning_trials == 5
    assert sorted(record.validation_classes) == sorted(map(str, range(12)))
    assert len(record.rates) == 3


def test_where_nothing_is_learnt_the_untrained_network_is_recommended(tmp_path):
    """All methods are level with the untrained network: labels are random, and the simplest choice is free."""
    rng = np.random.default_rng(3)
    data = arrays(rng.normal(size=(160, 8)).astype(np.float32), np.repeat(np.arange(20), 8))
    board = compare(
        data, ["contrastive", "triplet"], out=tmp_path, dim=4, steps=6, rates=1, seeds=1, jobs=1, progress=False
    )
    assert board.best.record.role == "baseline"
    assert board.choice.classes == 10


def test_where_much_is_learnt_the_trained_model_is_recommended(tmp_path):
    settings = {"dim": 3, "steps": 80, "learning_rate": 0.01, "seeds": 1, "jobs": 1, "progress": False}
    board = compare(clusters(40, noise=2.0), ["multi_similarity"], out=tmp_path, **settings)
    assert board.best.record.role == "run"
    assert board.gain.answer == "yes"


def test_a_network_that_is_named_is_compared_in_the_same_way(tmp_path):
    boards = [
        run(tmp_path / "a", ["triplet"], backbone="linear"),
        run(tmp_path / "b", ["triplet"], backbones=["linear"]),
    ]
    assert {record.protocol for board in boards for record in board.records} == {"cross-validation"}
    assert [record.key for record in boards[0].records] == [record.key for record in boards[1].records]


def test_a_custom_protocol_has_its_own_default_of_seeds(tmp_path):
    board = run(tmp_path, ["triplet"], protocol="fixed-validation")
    assert len(board.records) == 1


def test_options_that_would_be_ignored_are_refused(tmp_path):
    with pytest.raises(InputError, match="give their number with seeds="):
        run(tmp_path, seed=1)
    with pytest.raises(InputError, match=r"tries several learning rates, and learning_rate = 0\.1 fixes one"):
        run(tmp_path, rates=7, learning_rate=0.1)
    with pytest.raises(InputError, match="need validation classes in every run"):
        run(tmp_path, ["contrastive+ccp"], protocol="cross-validation")


# Which network.


def pictures(classes=16, per_class=6, side=80, colour=True) -> Dataset:
    """Pictures larger than small networks take: a grey value for each class, or strokes on white."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), per_class)
    items = rng.integers(0, 30, (len(labels), side, side, 3)) + 13 * labels[:, None, None, None]
    if colour:
        return arrays(items.astype(np.uint8), labels)
    strokes = np.full((len(labels), side, side), 255, np.uint8)
    for item, label in zip(strokes, labels, strict=True):
        top = 4 + 4 * label + rng.integers(0, 3)
        item[top : top + 3, 10:70] = 0
    return arrays(strokes, labels)


class Untrained:
    """Networks whose features tell classes apart as well as the test wants."""

    def __init__(self, signal):
        self._signal = signal

    def __call__(self, data, cache, workers):
        return self

    def of(self, recipe):
        self._strength = self._signal[recipe.backbone]
        return self

    def features(self, data):
        rng = np.random.default_rng(0)
        centres = np.random.default_rng(1).normal(size=(len(data.class_names), 16))
        return (self._strength * centres[data.labels] + rng.normal(size=(len(data), 16))).astype(np.float32)


@pytest.fixture
def networks(monkeypatch):
    """The module, on a machine that has the weights of two networks."""
    module = importlib.import_module("vicinal.comparing.networks")
    monkeypatch.setattr(
        module, "kept_weights", lambda source: "here" if "lite0" in source or "mobilenet" in source else None
    )
    return module


@pytest.mark.parametrize(
    ("signal", "chosen"),
    [((0.3, 2.0), "mobilenet_v2"), ((2.0, 0.3), "efficientnet_lite0"), ((1.0, 1.0), "efficientnet_lite0")],
)
def test_losses_are_compared_on_the_network_that_is_best_on_training_classes(networks, monkeypatch, signal, chosen):
    strengths = dict(zip(("efficientnet_lite0", "mobilenet_v2"), signal, strict=True))
    monkeypatch.setattr(networks, "UntrainedNetworks", Untrained(strengths))
    data = pictures()
    choice = choose_network(data, Splits(data), {"backbone": "efficientnet_lite0"}, {}, cache=None, workers=0)
    assert choice.settings["backbone"] == chosen
    assert choice.others == tuple(name for name in strengths if name != chosen)
    assert f"Losses are compared on {chosen}." in choice.note
    assert choose_network(data, Splits(data), {}, {"backbone": "resnet18"}, cache=None, workers=0) is None


@pytest.mark.parametrize(("signal", "scratch"), [(0.1, True), (9.0, False)])
def test_drawings_are_those_on_which_a_small_network_learns_more(networks, monkeypatch, signal, scratch):
    monkeypatch.setattr(networks, "UntrainedNetworks", Untrained({"efficientnet_lite0": signal, "mobilenet_v2": 0.0}))
    monkeypatch.setattr(networks, "PROBE_STEPS", 30)
    data = pictures(colour=False)
    choice = choose_network(data, Splits(data), {"backbone": "convnet"}, {}, cache=None, workers=0)
    assert (choice.settings == {}) is scratch
    assert ("Losses are compared on convnet." in choice.note) is scratch


def test_vectors_and_named_networks_leave_no_choice():
    data = clusters()
    suited = {"backbone": "linear", "dim": 4}
    assert choose_network(data, Splits(data), suited, {}, cache=None, workers=0) is None
