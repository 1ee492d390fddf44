"""Same or different: every curve and rate against double loops, scikit-learn, and pairs counted in steps."""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import pytest

from vicinal.data import Dataset
from vicinal.errors import InputError, UnknownName
from vicinal.evaluation import Bootstrap, GroundTruth, evaluate, verify
from vicinal.stats.intervals import percentile_tail

pytestmark = pytest.mark.unit

COUNTS = SIMILARITIES = sys.modules["vicinal.evaluation.pairs"]


def world(seed=0, classes=9, items=6, dim=5, noise=0.6, copies=True):
    """Classes of different sizes with some items twice, so that similarities tie."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), rng.integers(1, items, classes) + 1)
    points = rng.standard_normal((classes, dim))[labels] + noise * rng.standard_normal((len(labels), dim))
    if copies:
        points[1::7] = points[::7][: len(points[1::7])]
    order = rng.permutation(len(labels))
    return points[order].astype(np.float32), labels[order]


def similarity(a, b, distance):
    a, b = a.astype(np.longdouble), b.astype(np.longdouble)
    if distance == "euclidean":
        return -float(np.sqrt(np.sum((a - b) ** 2)))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def pairs_of(points, labels, distance="cosine", sequences=None, gallery=None):
    """Similarity and sameness of every pair that counts, one by one."""
    if gallery is None:
        every = itertools.combinations(range(len(points)), 2)
        points_2, labels_2, sequences_2 = points, labels, sequences
    else:
        points_2, labels_2, sequences_2 = gallery
        every = itertools.product(range(len(points)), range(len(points_2)))
    return [
        (similarity(points[i], points_2[j], distance), labels[i] == labels_2[j])
        for i, j in every
        if sequences is None or sequences[i] != sequences_2[j]
    ]


def oracle(pairs):
    """AUC, EER, accuracy and TAR at FARs, by counting at every threshold."""
    positive = [value for value, same in pairs if same]
    negative = [value for value, same in pairs if not same]
    won = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    points = [(0.0, 0.0)]
    for threshold in sorted({value for value, _ in pairs}, reverse=True):
        false = sum(n >= threshold for n in negative) / len(negative)
        points.append((false, sum(p >= threshold for p in positive) / len(positive)))
    scores = {
        "AUC": won / len(positive) / len(negative),
        "accuracy": max((true + 1 - false) / 2 for false, true in points),
    }
    for (f0, t0), (f1, t1) in itertools.pairwise(points):
        if f1 >= 1 - t1:
            way = (1 - t0 - f0) / ((1 - t0 - f0) + (f1 - 1 + t1))
            scores["EER"] = f0 + way * (f1 - f0)
            break
    for name, rate in (("TAR@FAR=1e-2", 0.01), ("TAR@FAR=1e-3", 0.001)):
        if rate * len(negative) >= 1:
            scores[name] = max(true for false, true in points if false <= rate)
    return scores, points


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_every_score_against_double_loops(seed, distance):
    points, labels = world(seed)
    found = verify(points, labels, distance=distance, intervals=None)
    pairs = pairs_of(points, labels, distance)
    expected, curve = oracle(pairs)
    assert found.to_dict() == pytest.approx(expected, abs=1e-12)
    assert found.pairs == (sum(same for _, same in pairs), sum(not same for _, same in pairs))
    ours = set(zip(found.curve.false_accepts.round(12), found.curve.true_accepts.round(12), strict=True))
    assert ours <= {(round(f, 12), round(t, 12)) for f, t in curve}
    for false, true in curve:  # those that are left out lie on the straight pieces between the others
        at = np.flatnonzero(np.isclose(found.curve.false_accepts, false))
        if len(at):
            assert found.curve.true_accepts[at].min() - 1e-12 <= true <= found.curve.true_accepts[at].max() + 1e-12
        else:
            assert np.interp(false, found.curve.false_accepts, found.curve.true_accepts) == pytest.approx(true)
    false, rejected = found.det
    assert (false == found.curve.false_accepts).all()
    assert rejected == pytest.approx(1 - found.curve.true_accepts)


def fnmr_at_fmr(positive, negative, rate):
    """FNMR@FMR of distances as open-metric-learning defines it (its documentation of `calc_fnmr_at_fmr`).

    The threshold is the quantile of the distances of different classes, between two of them in a straight line, and a
    pair of one class is missed where its distance is not below it.
    """
    distances = np.sort(negative)
    place = rate * (len(distances) - 1)
    below = int(place)
    threshold = distances[below] + (place - below) * (distances[min(below + 1, len(distances) - 1)] - distances[below])
    return np.mean(positive >= threshold), threshold


def test_the_definition_of_fnmr_at_fmr_is_that_of_its_example():
    positive, negative = np.array([0, 0, 1, 1, 2, 2, 5, 5, 9, 9]), np.array([3, 3, 4, 4, 6, 6, 7, 7, 8, 8])
    assert [fnmr_at_fmr(positive, negative, rate)[0] for rate in (0.1, 0.5)] == [0.4, 0.2]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_rates_agree_with_fnmr_at_fmr_of_open_metric_learning(seed, distance):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(41), 10)  # 82,000 pairs of two classes: a hundredth and a thousandth are whole numbers
    points = rng.standard_normal((41, 6))[labels] + 0.4 * rng.standard_normal((410, 6))
    one, two = np.triu_indices(410, 1)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    apart = 1 - (unit[one] * unit[two]).sum(axis=1)
    distances = apart if distance == "cosine" else np.linalg.norm(points[one] - points[two], axis=1)
    same = labels[one] == labels[two]
    positive, negative = distances[same], distances[~same]
    found = verify(points, labels, distance=distance, intervals=None)
    for name, rate in (("TAR@FAR=1e-2", 0.01), ("TAR@FAR=1e-3", 0.001)):
        missed, threshold = fnmr_at_fmr(positive, negative, rate)
        assert np.mean(negative < threshold) == rate  # the same false matches
        # Theirs stops between two false pairs, ours at the second; the true pairs in this gap are all that differs.
        following = negative[negative >= threshold].min()
        in_gap = np.mean((positive >= threshold) & (positive < following))
        assert in_gap < 0.002
        assert 1 - found[name] == pytest.approx(missed - in_gap, abs=1e-12)


@pytest.mark.parametrize("name", ["EER", "accuracy", "TAR@FAR=1e-2"])
def test_thresholds_do_what_they_say(name):
    points, labels = world(1, classes=20)
    found = verify(points, labels, intervals=None)
    pairs = pairs_of(points, labels)
    near = found.thresholds[name] - 1e-9
    true = np.mean([value >= near for value, same in pairs if same])
    false = np.mean([value >= near for value, same in pairs if not same])
    if name == "accuracy":
        assert (true + 1 - false) / 2 == pytest.approx(found[name])
    elif name == "EER":
        assert false >= found["EER"] >= 1 - true
    else:
        assert false <= 0.01
        assert true == pytest.approx(found[name])


def test_queries_and_a_gallery():
    points, labels = world(2, classes=12)
    half = np.arange(len(points)) % 2 == 0
    found = verify(points[half], labels[half], gallery=(points[~half], labels[~half]), intervals=Bootstrap(draws=5))
    expected, _ = oracle(pairs_of(points[half], labels[half], gallery=(points[~half], labels[~half], None)))
    assert found.to_dict() == pytest.approx(expected, abs=1e-12)
    roles = np.where(half, "query", "gallery")
    data = Dataset(points, labels, tuple(f"class {code}" for code in range(12)), roles)
    assert verify(points, data, intervals=Bootstrap(draws=5)).to_dict() == found.to_dict()


@pytest.mark.parametrize("with_gallery", [False, True])
def test_pairs_of_one_sequence_do_not_count(with_gallery):
    points, labels = world(3, classes=12)
    sequences = np.random.default_rng(0).integers(0, 6, len(points))
    if with_gallery:
        half = np.arange(len(points)) % 2 == 0
        others = points[~half], labels[~half], sequences[~half]
        points, labels, sequences = points[half], labels[half], sequences[half]
        found = verify(
            points,
            GroundTruth(labels, sequences),
            gallery=(others[0], GroundTruth(others[1], others[2])),
            intervals=None,
        )
    else:
        others = None
        found = verify(points, GroundTruth(labels, sequences), intervals=None)
    pairs = pairs_of(points, labels, sequences=sequences, gallery=others)
    assert found.to_dict() == pytest.approx(oracle(pairs)[0], abs=1e-12)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("with_gallery", [False, True])
def test_counted_in_steps_it_is_the_same_to_within_a_step(monkeypatch, distance, with_gallery):
    points, labels = world(4, classes=60, dim=16, copies=False)
    points += np.random.default_rng(0).normal(0, 0.01, points.shape).astype(np.float32)
    settings = {"distance": distance, "intervals": Bootstrap(draws=50)}
    if with_gallery:
        settings["gallery"] = (points[::2] + 0.01, labels[::2])
    monkeypatch.setattr(SIMILARITIES, "GROUPS", 8)
    exact = verify(points, labels, **settings)
    monkeypatch.setattr(COUNTS, "FEW_PAIRS", 0)
    rounded = verify(points, labels, **settings)
    assert rounded.settings["step"] == 2.0**-18
    monkeypatch.undo()
    monkeypatch.setattr(SIMILARITIES, "GROUPS", 8)
    assert verify(points, labels, exact=False, **settings).to_json() == rounded.to_json()
    assert any("rounded to steps" in note for note in rounded.notes)
    assert rounded.pairs == exact.pairs
    assert rounded["AUC"] == pytest.approx(exact["AUC"], abs=1e-6)
    for name in exact.thresholds:
        assert rounded.thresholds[name] == pytest.approx(exact.thresholds[name], abs=2e-3)
        assert rounded[name] == pytest.approx(exact[name], abs=2e-3)
        assert rounded.intervals[name] == pytest.approx(exact.intervals[name], abs=0.02)
        assert rounded.per_class(name).keys() == exact.per_class(name).keys()


def test_in_steps_every_count_is_that_of_a_double_loop_over_rounded_similarities(monkeypatch):
    monkeypatch.setattr(COUNTS, "FEW_PAIRS", 0)
    monkeypatch.setattr(SIMILARITIES, "GROUPS", 4)
    points, labels = world(5, classes=12)
    counts, groups = COUNTS.count_pairs(sys.modules["vicinal.evaluation.items"].as_scored_items(points, labels))
    pairs = pairs_of(points, labels)
    steps = np.array([value for value, _ in pairs])
    same = np.array([same for _, same in pairs])
    for kind, chosen in (("positives", same), ("negatives", ~same)):
        ours = np.repeat(counts.values, getattr(counts, kind))
        assert len(ours) == chosen.sum()
        assert np.abs(ours - np.sort(steps[chosen])).max() <= 2**-18 + 1e-6
    assert groups.positives.sum() == same.sum()
    assert groups.negatives.sum() == (~same).sum()


def test_no_number_of_groups_or_threads_changes_a_score(monkeypatch):
    points, labels = world(6, classes=30)
    found = verify(points, labels, intervals=None).to_dict()
    for groups in (1, 2, 7, 100):
        monkeypatch.setattr(SIMILARITIES, "GROUPS", groups)
        assert verify(points, labels, intervals=None).to_dict() == found
    monkeypatch.setattr(COUNTS, "KEPT_POSITIVES", 0)
    without = verify(points, labels, intervals=None)
    assert without.to_dict() == found
    assert without.by_class == {}


def test_classes_one_by_one():
    points, labels = world(7, classes=15)
    found = verify(points, [f"c{label}" for label in labels], intervals=None)
    threshold = found.thresholds["EER"] - 1e-9
    shares = found.per_class("EER")
    assert list(shares.values()) == sorted(shares.values())
    for code in np.unique(labels):
        inside = [value for value, _ in pairs_of(points[labels == code], labels[labels == code])]
        if inside:
            assert shares[f"c{code}"] == pytest.approx(np.mean(np.array(inside) >= threshold))
        else:
            assert f"c{code}" not in shares
    with pytest.raises(UnknownName, match="score per class"):
        found.per_class("AUC")


def test_the_bootstrap_draws_whole_classes():
    points, labels = world(8, classes=20)
    found = verify(points, labels, intervals=Bootstrap(draws=400))
    pairs = {}
    for i, j in itertools.combinations(range(len(points)), 2):
        key = tuple(sorted((labels[i], labels[j])))
        pairs.setdefault(key, []).append(similarity(points[i], points[j], "cosine"))
    rng = np.random.default_rng(1)
    areas = []
    for _ in range(200):  # by hand: a pair of classes comes up as often as both are drawn
        times = np.bincount(rng.integers(0, 20, 20), minlength=20)
        positive = [v for (a, b), values in pairs.items() if a == b for v in values * int(times[a])]
        negative = [v for (a, b), values in pairs.items() if a != b for v in values * int(times[a] * times[b])]
        ranks = np.searchsorted(np.sort(negative), positive) + np.searchsorted(np.sort(negative), positive, "right")
        areas.append(ranks.sum() / 2 / len(positive) / len(negative))
    tail = percentile_tail(0.95, 20)
    assert found.intervals["AUC"] == pytest.approx(np.quantile(areas, [tail, 1 - tail]), abs=0.01)
    assert all(ends.low <= found[name] <= ends.high for name, ends in found.intervals.items())
    assert verify(points, labels, intervals=Bootstrap(draws=400)).intervals == found.intervals
    wide, narrow = (
        verify(*world(8, classes=many, copies=False), intervals=Bootstrap(draws=300)).intervals["AUC"]
        for many in (12, 150)
    )
    assert narrow.high - narrow.low < wide.high - wide.low


def test_what_the_data_cannot_support_is_said():
    found = verify(*world(0))
    assert "TAR@FAR=1e-6" not in found.overall
    assert any("or less needs at least" in note for note in found.notes)
    assert any("no more than a hint" in note for note in verify(*world(0, classes=60)).notes)
    assert any("Intervals over 9 classes" in note for note in found.notes)
    with pytest.raises(UnknownName, match=r"TAR@FAR=1e-6"):
        found["TAR@FAR=1e-6"]
    with pytest.raises(InputError, match="no pair of one class"):
        verify(np.eye(3), [0, 1, 2])
    with pytest.raises(InputError, match="no pair of two classes"):
        verify(np.eye(3), [0, 0, 0])
    with pytest.raises(InputError, match="draws"):
        verify(np.eye(4), [0, 0, 1, 1], intervals=Bootstrap(draws=-1))


def test_a_collapsed_space_is_chance():
    found = verify(np.ones((40, 3)), np.arange(40) % 8)
    assert found["AUC"] == 0.5
    assert found["EER"] == 0.5
    assert found["accuracy"] == 0.5


def test_in_evaluate_and_as_json(tmp_path):
    points, labels = world(9, classes=40)
    found = verify(points, labels)
    scores = evaluate(points, labels, also=["verification"])
    assert {name: scores[name] for name in found.overall} == found.to_dict()
    assert {name: scores.intervals[name] for name in found.overall} == found.intervals
    record = json.loads(found.to_json(tmp_path / "v.json"))
    assert json.loads((tmp_path / "v.json").read_text()) == record
    assert record["overall"]["AUC"] == found["AUC"]
    assert dict(found) == found.to_dict()
    assert "TAR@FAR=1e-2" in str(found)
    assert "pairs of one class" in str(found)
    assert repr(found).startswith("Verification(AUC=")
    found.plot(tmp_path / "det.png")
    assert (tmp_path / "det.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.peer
@pytest.mark.parametrize("seed", range(3))
def test_scikit_learn_agrees(seed):
    from sklearn.metrics import det_curve, roc_auc_score, roc_curve

    points, labels = world(seed, classes=30, dim=8)
    found = verify(points, labels, intervals=None)
    pairs = pairs_of(points, labels)
    values, same = np.array([value for value, _ in pairs]), np.array([same for _, same in pairs])
    false, true, thresholds = roc_curve(same, values)
    assert found["AUC"] == pytest.approx(roc_auc_score(same, values), abs=1e-12)
    assert found.curve.false_accepts == pytest.approx(false, abs=1e-12)
    assert found.curve.true_accepts == pytest.approx(true, abs=1e-12)
    assert found.curve.thresholds[1:] == pytest.approx(thresholds[1:], abs=1e-9)
    for name, rate in (("TAR@FAR=1e-2", 0.01), ("TAR@FAR=1e-3", 0.001)):
        assert found[name] == pytest.approx(true[false <= rate].max(), abs=1e-12)
    false_2, rejected, _ = det_curve(same, values)
    ours = found.det
    for f, r in zip(false_2, rejected, strict=True):
        at = np.flatnonzero(np.isclose(ours[0], f, atol=1e-12))
        low, high = (ours[1][at].min(), ours[1][at].max()) if len(at) else [np.interp(f, *ours)] * 2
        assert low - 1e-12 <= r <= high + 1e-12
