"""Wrong labels: planted ones are found; leaving one out in closed form is leaving one out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from vicinal.collection import find_mislabelled
from vicinal.collection.mislabelled import (
    Candidates,
    _core,
    _log_odds,
    _noise,
    doubt_labels,
    fit_class_models,
    left_out_fits,
    left_out_log_likelihoods,
)
from vicinal.errors import InputError


def three_clouds(many: int = 20, spread: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), many)
    return np.eye(3)[labels] + spread * rng.normal(size=(3 * many, 3)), labels


def refitted(items: np.ndarray, codes: np.ndarray, weights: np.ndarray, shrinkage: float, left: int) -> np.ndarray:
    """The fits of one item to all classes, with everything estimated from the other items; by the formula."""
    rest = np.arange(len(items)) != left
    total, dim = weights.sum(), items.shape[1]
    means, sums = [], []
    for code in range(codes.max() + 1):
        own = rest & (codes == code)
        sums.append(weights[own].sum())
        means.append((weights[own, None] * items[own]).sum(axis=0) / sums[-1])
    within = np.zeros((dim, dim))
    for place in np.flatnonzero(rest):
        apart = items[place] - means[codes[place]]
        within += weights[place] * np.outer(apart, apart) / total
    # The share of the same in all directions, and what chance adds, are those of all items: constants of the fit.
    every = np.zeros((dim, dim))
    for code in range(codes.max() + 1):
        own = codes == code
        mean = (weights[own, None] * items[own]).sum(axis=0) / weights[own].sum()
        every += (weights[own, None] * (items[own] - mean)).T @ (items[own] - mean) / total
    round_part = shrinkage * np.trace(every) / dim * np.eye(dim)
    inverse = np.linalg.inv((1 - shrinkage) * within + round_part)
    chance = np.trace(np.linalg.inv((1 - shrinkage) * every + round_part) @ every)
    fits = []
    for mean, size in zip(means, sums, strict=True):
        apart = items[left] - mean
        fits.append(-0.5 * (apart @ inverse @ apart - chance / size))
    return np.array(fits)


def test_leaving_one_out_in_closed_form_is_leaving_one_out() -> None:
    rng = np.random.default_rng(1)
    items, codes = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    weights = rng.uniform(0.1, 1.0, 30)
    models = fit_class_models(items, codes, weights)
    fits = left_out_fits(models, codes, 0.2, np.arange(30))
    for left in range(30):
        np.testing.assert_allclose(fits[left], refitted(items, codes, weights, 0.2, left), rtol=1e-8)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_a_single_wrong_label_of_a_small_collection(distance: str) -> None:
    items, labels = three_clouds()
    labels[5] = 2
    (suspect,) = find_mislabelled(items, labels, distance=distance)
    assert (suspect.index, suspect.label, suspect.proposed) == (5, 2, 0)
    scores = doubt_labels(items, labels, distance=distance).scores
    assert scores[5] == suspect.score > 0.75  # a regression on sixty items is not surer, and it has a say
    assert np.delete(scores, 5).max() < 0.01
    assert set(labels[list(suspect.own)]) == {2}
    assert set(labels[list(suspect.other)]) == {0}
    assert 5 not in (*suspect.own, *suspect.other)
    nearest = np.argsort(np.linalg.norm(items - items[5], axis=1))
    if distance == "euclidean":
        assert suspect.other == tuple(place for place in nearest.tolist() if labels[place] == 0)[:5]


def test_right_labels_are_left_alone() -> None:
    assert find_mislabelled(*three_clouds()) == []


def test_most_planted_labels_of_digits_are_found() -> None:
    digits = load_digits()
    rng = np.random.default_rng(0)
    wrong = rng.choice(len(digits.target), 90, replace=False)
    labels = digits.target.copy()
    labels[wrong] = (labels[wrong] + rng.integers(1, 10, 90)) % 10
    doubts = doubt_labels(digits.data, labels, distance="euclidean")
    first = np.argsort(-doubts.ranks)[:90]
    assert np.isin(first, wrong).mean() > 0.95
    assert (doubts.proposed[wrong] == digits.target[wrong]).mean() > 0.95
    assert 0.04 < doubts.share < 0.06
    assert (doubts.scores >= 0.5).sum() > 80


def test_labels_may_be_names_and_scores_do_not_depend_on_them() -> None:
    items, labels = three_clouds()
    labels[5] = 2
    names = np.array(["wren", "auk", "tern"])[labels]
    (suspect,) = find_mislabelled(items, names)
    assert (suspect.label, suspect.proposed) == ("tern", "wren")
    assert suspect.as_dict()["proposed"] == "wren"
    # Sums over classes run in another order, in float32.
    assert suspect.score == pytest.approx(find_mislabelled(items, labels)[0].score, rel=1e-5)


def test_the_only_item_of_a_class_is_not_suspected() -> None:
    items, labels = three_clouds()
    labels[5] = 7
    assert doubt_labels(items, labels).scores[5] == 0
    assert find_mislabelled(items, labels) == []


def test_two_classes_of_the_same_vector() -> None:
    doubts = doubt_labels(np.ones((6, 2)), [0, 0, 0, 1, 1, 1])
    assert np.isfinite(doubts.scores).all()


def test_many_classes_of_few_items() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), 3)
    items = rng.normal(size=(60, 16))[labels] + 0.05 * rng.normal(size=(180, 16))
    labels[0] = 30
    suspect = find_mislabelled(items, labels)[0]
    assert (suspect.index, suspect.proposed) == (0, 0)


@pytest.mark.parametrize(("labels", "words"), [([1, 1, 1], "one label"), ([1, 2, 3], "a label of its own")])
def test_nothing_to_compare(labels: list[int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_mislabelled([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], labels)


def test_labels_that_are_confused_are_told_from_any_labels() -> None:
    """Where wrong labels are those of a twin class, an item that is just hard is doubted less than one of the twin."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 12))
    centres[1::2] = centres[::2] + 0.35 * rng.normal(size=(10, 12))  # ten pairs of twins
    labels = np.repeat(np.arange(20), 40)
    items = centres[labels] + 0.45 * rng.normal(size=(800, 12))
    shares = {}
    for how in ("twin", "any"):
        wrong = np.zeros(800, bool)
        wrong[rng.choice(800, 40, replace=False)] = True
        other = labels ^ 1 if how == "twin" else (labels + rng.integers(1, 20, 800)) % 20
        given = np.where(wrong, other, labels)
        doubts = doubt_labels(items, given, distance="euclidean")
        first = np.argsort(-doubts.ranks)[:40]
        shares[how] = wrong[first].mean()
        assert (doubts.proposed[first][wrong[first]] == labels[first][wrong[first]]).mean() > 0.8
    assert shares["twin"] > 0.55
    assert shares["any"] > 0.9


def test_regressions_never_see_the_item() -> None:
    """Labels drawn by lot cannot be told, which who had seen them could; classes that do not count are not expected."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), 10)
    items = rng.normal(size=(4, 6))[codes] + 0.3 * rng.normal(size=(40, 6))
    items -= items.mean(axis=0)
    likely = left_out_log_likelihoods(items, codes, np.ones(40))
    assert likely.argmax(axis=1).tolist() == codes.tolist()
    np.testing.assert_allclose(np.exp(likely).sum(axis=1), 1.0, rtol=1e-4)
    weights = np.where(codes == 2, 1e-6, 1.0)
    assert np.exp(left_out_log_likelihoods(items, codes, weights)[:, 2]).max() < 0.1
    lots, noise = rng.integers(0, 3, 90), rng.normal(size=(90, 60))
    likely = left_out_log_likelihoods(noise - noise.mean(axis=0), lots, np.ones(90))
    assert np.exp(likely[np.arange(90), lots]).mean() < 0.45


def test_the_share_of_wrong_labels_among_many_classes() -> None:
    """Classes that no neighbour has are many: together they are likelier than each."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(80), 15)
    items = 0.7 * rng.normal(size=(80, 24))[labels] + 0.6 * rng.normal(size=(1200, 24))
    wrong = rng.choice(1200, 120, replace=False)
    labels[wrong] = (labels[wrong] + rng.integers(1, 80, 120)) % 80
    doubts = doubt_labels(items, labels, distance="euclidean")
    assert 0.06 < doubts.share < 0.14
    listed = np.flatnonzero(doubts.scores >= 0.5)
    assert len(listed) > 60
    assert np.isin(listed, wrong).mean() > 0.9


def test_an_item_that_could_be_of_many_classes_is_hard_rather_than_wrong() -> None:
    candidates = Candidates(np.array([[0, 1, 2, 3]] * 2), np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool), 4)
    likely = np.array([[0.1, 0.3, 0.3, 0.3], [0.1, 0.04, 0.8, 0.06]])
    noise = np.array([[0.8, 0.2 / 3, 0.2 / 3, 0.2 / 3]] * 2)
    odds, proposed = _log_odds(candidates, np.log(likely), noise)
    np.testing.assert_allclose(np.exp(odds), [0.2 / 0.8 / 3 * 3, 0.2 / 0.8 / 3 * 8])
    assert proposed.tolist()[1] == 2


def twin_classes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Twelve pairs of similar classes with 30 items each, as sharp as a good embedding has them."""
    centres = rng.normal(size=(24, 32))
    centres[1::2] = centres[::2] + 0.5 * rng.normal(size=(12, 32))
    labels = np.repeat(np.arange(24), 30)
    return centres[labels] + 0.3 * rng.normal(size=(720, 32)), labels


@pytest.mark.parametrize(("share", "least", "error"), [(0.02, 0.8, 0.03), (0.05, 0.8, 0.03), (0.1, 0.6, 0.05)])
def test_swaps_between_similar_classes_are_listed_where_the_order_is_sharp(
    share: float, least: float, error: float
) -> None:
    rng = np.random.default_rng(0)
    items, labels = twin_classes(rng)
    wrong = np.zeros(720, bool)
    wrong[rng.choice(720, round(share * 720), replace=False)] = True
    doubts = doubt_labels(items, np.where(wrong, labels ^ 1, labels), distance="euclidean")
    first = np.argsort(-doubts.ranks)[: wrong.sum()]
    assert wrong[first].mean() > 0.9
    listed = doubts.scores >= 0.5
    assert (listed & wrong).sum() >= least * wrong.sum()
    assert (listed & ~wrong).sum() <= 0.01 * 720
    bins = np.minimum((doubts.scores * 15).astype(int), 14)
    assert np.abs(np.bincount(bins, doubts.scores - wrong)).sum() / 720 <= error  # expected calibration error


@pytest.mark.parametrize("spread", [0.3, 0.6, 0.9])
def test_clean_labels_of_similar_classes_raise_few_false_alarms_however_much_they_overlap(spread: float) -> None:
    rng = np.random.default_rng(1)
    items, labels = twin_classes(rng)
    items = items + spread * rng.normal(size=items.shape)
    assert (doubt_labels(items, labels, distance="euclidean").scores >= 0.5).mean() <= 0.01


def test_cores_are_the_third_of_each_predicted_class_that_is_most_sure() -> None:
    rivals = np.array([[0, 1], [0, 1], [0, 1], [1, 0], [1, 0], [1, 0]])
    likely = np.log([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4], [0.8, 0.2], [0.6, 0.4], [0.05, 0.95]])
    candidates = Candidates(rivals, rivals[:, 0], np.ones(6, dtype=bool), 2)
    core, predicted = _core(candidates, likely)
    assert predicted.tolist() == [0, 0, 0, 1, 1, 0]
    assert sorted(core.tolist()) == [0, 3, 5]  # item 5 is labelled 1 and surely predicted to be 0
    noise, share = _noise(candidates, likely, None)
    assert share > 0.01
    assert noise[5, 1] > noise[0, 1]  # class 0 is labelled 1 more often than class 1 is labelled 0
    assert noise[0, 0] < 1.0
