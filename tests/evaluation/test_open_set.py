"""Who is it, or nobody; and new classes by a few examples: against loops."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.evaluation import Bootstrap, GroundTruth, Neighbourhood, evaluate, few_shot_accuracy, identify
from vicinal.stats.intervals import class_interval, class_sums, percentile_tail

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_identification_against_every_threshold(distance):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 6)
    points = rng.standard_normal((30, 5))[labels] + 0.7 * rng.standard_normal((180, 5))
    gallery = (np.arange(180) % 6 < 2) & (labels < 20)
    query = np.arange(180) % 6 >= 2
    found = identify(points[query], labels[query], gallery=(points[gallery], labels[gallery]), distance=distance)
    best, right = [], []
    for row, label in zip(points[query], labels[query], strict=True):
        if distance == "cosine":
            near = points[gallery] @ row / np.linalg.norm(points[gallery], axis=1) / np.linalg.norm(row)
        else:
            near = -np.linalg.norm(points[gallery] - row, axis=1)
        best.append(near.max())
        right.append(labels[gallery][near.argmax()] == label)
    best, right, known = np.array(best), np.array(right), labels[query] < 20
    assert (found.known, found.strangers) == (known.sum(), (~known).sum()) == (80, 40)
    assert found["rank-1"] == pytest.approx(right[known].mean())
    assert "DIR@FAR=0.01" not in found.overall  # of 40 strangers
    allowed = [t for t in [*best, np.inf] if np.mean(best[~known] >= t) <= 0.1]
    expected = max(np.mean(right[known] & (best[known] >= t)) for t in allowed)
    assert found["DIR@FAR=0.1"] == pytest.approx(expected)
    threshold = found.thresholds["DIR@FAR=0.1"] + 1e-9
    assert np.mean(best[~known] >= threshold) <= 0.1
    assert "40 strangers" in str(found)
    with pytest.raises(InputError, match="nothing to identify"):
        identify(points[:3], [100, 101, 102], gallery=(points[gallery], labels[gallery]))


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_identification_without_a_gallery_asks_for_every_item_twice(distance):
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(26), 5)[:-4]  # the last class has one item: it can be a stranger only
    points = rng.standard_normal((26, 4))[labels] + 0.6 * rng.standard_normal((len(labels), 4))
    found = identify(points, labels, distance=distance, rates=(0.05, 0.001))
    best, right, strange = [], [], []
    for item, label in enumerate(labels):
        if distance == "cosine":
            near = points @ points[item] / np.linalg.norm(points, axis=1) / np.linalg.norm(points[item])
        else:
            near = -np.linalg.norm(points - points[item], axis=1)
        near[item] = -np.inf
        best.append(near.max())
        right.append(labels[near.argmax()] == label)
        strange.append(near[labels != label].max())
    best, right, strange = np.array(best[:-1]), np.array(right[:-1]), np.array(strange)
    assert (found.known, found.strangers) == (125, 126)
    assert found["rank-1"] == pytest.approx(right.mean())
    allowed = [t for t in [*best, *strange, np.inf] if np.mean(strange >= t) <= 0.05]
    expected = max(np.mean(right & (best >= t)) for t in allowed)
    assert found["DIR@FAR=0.05"] == pytest.approx(expected)
    assert "DIR@FAR=0.001" not in found.overall
    assert "126 strangers: DIR at a FAR of 0.001 needs at least 1,000" in str(found)
    assert "every item is a query twice" in str(found)


@pytest.mark.parametrize("with_gallery", [True, False])
def test_intervals_are_those_of_classes_drawn_by_hand(with_gallery):
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(15), 4)
    points = rng.standard_normal((15, 3))[labels] + 0.3 * rng.standard_normal((60, 3))
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    if with_gallery:
        gallery = (np.arange(60) % 4 == 0) & (labels < 9)
        asked, among = np.flatnonzero(~gallery), np.flatnonzero(gallery)
        found = identify(
            points[asked],
            labels[asked],
            gallery=(points[among], labels[among]),
            rates=(0.1,),
            intervals=Bootstrap(draws=40),
        )
        kinds = [np.arange(9), np.arange(9, 15)]
        known, strangers = asked[labels[asked] < 9], asked[labels[asked] >= 9]
        strange = {query: cosines[query, among].max() for query in strangers}
    else:
        asked = among = known = strangers = np.arange(60)
        found = identify(points, labels, rates=(0.1,), intervals=Bootstrap(draws=40))
        kinds = [np.arange(15)]
        strange = {query: cosines[query, labels != labels[query]].max() for query in strangers}
    best = {query: cosines[query, among].max() for query in known}
    right = {query: labels[among[cosines[query, among].argmax()]] == labels[query] for query in known}
    generator, scores = np.random.default_rng(0), []
    for _ in range(40):
        drawn = np.concatenate([kind[generator.integers(0, len(kind), (1, len(kind)))[0]] for kind in kinds])
        queries = [query for code in drawn for query in known if labels[query] == code]
        others = np.array([strange[query] for code in drawn for query in strangers if labels[query] == code])
        bars = [bar for bar in [-np.inf, *others] if np.mean(others > bar) <= 0.1]
        detected = np.mean([right[query] and best[query] > min(bars) for query in queries])
        scores.append(detected)
    tail = percentile_tail(0.95, len(kinds[0]))
    ends = np.quantile(scores, [tail, 1 - tail])
    assert found.intervals["DIR@FAR=0.1"] == pytest.approx(ends)
    assert 0 < ends[0] <= found["DIR@FAR=0.1"] <= ends[1]
    sums, counts = class_sums(np.array([float(right[query]) for query in known]), labels[known], 15)
    assert [found.intervals["rank-1"]] == class_interval(sums[:, None], counts)
    assert "95 % interval over classes" in str(found)


def test_evaluate_has_the_same_scores_and_says_what_it_cannot():
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(12), 6)
    points = rng.standard_normal((12, 5))[labels] + 0.8 * rng.standard_normal((72, 5))
    sure = Bootstrap(confidence=0.9)
    scores = evaluate(points, labels, also=["identification", "5-way 1-shot", "3-way 4-shot"], intervals=sure)
    expected = identify(points, labels)
    assert {name: scores[name] for name in expected.overall} == dict(expected.overall)
    assert scores["rank-1"] == pytest.approx(scores["P@1"])
    assert scores.intervals["rank-1"] == pytest.approx(scores.intervals["P@1"])  # the same score
    assert scores.intervals["DIR@FAR=0.1"] == identify(points, labels, intervals=sure).intervals["DIR@FAR=0.1"]
    shots = few_shot_accuracy(points, labels, ways=3, shots=4, confidence=0.9)
    assert scores["3-way 4-shot"] == pytest.approx(shots.accuracy)
    assert scores.intervals["3-way 4-shot"] == pytest.approx(shots.interval)
    wider = few_shot_accuracy(points, labels, ways=3, shots=4).interval
    assert wider.high - wider.low == pytest.approx((shots.interval.high - shots.interval.low) * 1.959964 / 1.644854)
    assert any("5-way 1-shot is over 600 episodes" in note for note in scores.notes)
    assert not evaluate(points, labels, also=["5-way 1-shot"], intervals=None).intervals
    with pytest.raises(InputError, match="combined with re-ranking"):
        evaluate(points, labels, also=["identification"], neighbours=Neighbourhood(rerank=True))
    with pytest.raises(InputError, match="with sequences needs a gallery"):
        evaluate(points, GroundTruth(labels, np.arange(72) % 2), also=["identification"])
    with pytest.raises(InputError, match="one label per item"):
        evaluate(points, np.eye(12, dtype=bool)[labels], also=["5-way 1-shot"])


def test_who_may_not_find_its_own_class_is_a_stranger():
    points, labels = np.eye(3)[[0, 1, 2]] + 0.1, ["a", "b", "z"]
    scores = evaluate(
        points,
        GroundTruth(labels, sequences=[0, 1, 2]),
        gallery=(points[:2], GroundTruth(labels[:2], sequences=[0, 9])),
        also=["identification"],
        intervals=None,
    )
    assert "Identification: 1 query of known classes, 2 strangers." in scores.notes  # "a" sees its own sequence alone


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_few_shots_by_hand(distance):
    # Two classes, one example each: (1, 0) twice, and (0, 1) with (0.9, 0.2), which is nearer to the other class.
    points = np.array([[1, 0], [1, 0], [0, 1], [0.9, 0.2]], dtype=float)
    found = few_shot_accuracy(points, [0, 0, 1, 1], ways=2, shots=1, episodes=400, distance=distance)
    # The example is (0, 1): the query (1, 0) is right, (0.9, 0.2) wrong. It is (0.9, 0.2): (1, 0) right, (0, 1) right.
    assert found.accuracy == pytest.approx(0.75, abs=0.05)
    assert found.interval.low < 0.75 < found.interval.high


def test_few_shots_of_separate_classes_are_right_and_of_noise_are_chance():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 10)
    apart = np.eye(20)[labels] + 0.01 * rng.standard_normal((200, 20))
    assert few_shot_accuracy(apart, labels, episodes=50).accuracy == 1
    noise = few_shot_accuracy(rng.standard_normal((200, 20)), labels, ways=4, shots=2, episodes=300)
    assert noise.accuracy == pytest.approx(0.25, abs=0.04)
    assert noise.episodes == 300
    with pytest.raises(InputError, match="need 21 classes"):
        few_shot_accuracy(apart, labels, ways=21)
    with pytest.raises(InputError, match="at least"):
        few_shot_accuracy(apart, labels, ways=1)
