"""Classes that are taken for each other, against a double loop."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from vicinal.collection.confusions import find_confused_classes

pytestmark = pytest.mark.unit


def by_hand(vectors: np.ndarray, labels: list[str | None], distance: str) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for i, label in enumerate(labels):
        best, nearest = -np.inf, -1
        for j, other in enumerate(labels):
            if i == j or label is None or other is None:
                continue
            a, b = vectors[i].astype(float), vectors[j].astype(float)
            value = a @ b / np.linalg.norm(a) / np.linalg.norm(b) if distance == "cosine" else -np.linalg.norm(a - b)
            if value > best:
                best, nearest = value, j
        if nearest >= 0 and labels[nearest] != label:
            counts[label, labels[nearest]] += 1
    return counts


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_counts_are_those_of_a_double_loop(distance: str) -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, 3)).astype(np.float32)
    labels = [None if place % 13 == 0 else "abcd"[rng.integers(4)] for place in range(60)]
    found = find_confused_classes(vectors, labels, distance=distance)
    counts = Counter()
    for two in found:
        counts[two.first, two.second] += two.first_as_second
        counts[two.second, two.first] += two.second_as_first
        assert two.first_as_second >= two.second_as_first
        assert two.items == sum(label in (two.first, two.second) for label in labels)
    assert +counts == by_hand(vectors, labels, distance)
    sizes = [two.first_as_second + two.second_as_first for two in found]
    assert sizes == sorted(sizes, reverse=True)


def test_examples_are_pairs_of_the_two_classes_nearest_first() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(200, 2)).astype(np.float32)
    labels = [("a", "b")[place % 2] for place in range(200)]
    (two,) = find_confused_classes(vectors, labels)
    assert len(two.examples) == 12
    assert [pair.similarity for pair in two.examples] == sorted(
        (pair.similarity for pair in two.examples), reverse=True
    )
    assert all({labels[pair.item], labels[pair.nearest]} == {"a", "b"} for pair in two.examples)
    assert len({frozenset((pair.item, pair.nearest)) for pair in two.examples}) == 12
    assert 0 < two.share <= 1


def test_a_draw_asks_some_items_and_finds_the_same_neighbours() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(80, 3)).astype(np.float32)
    labels = ["abc"[place % 3] for place in range(80)]
    every = {pair for two in find_confused_classes(vectors, labels) for pair in two.examples}
    some = [pair for two in find_confused_classes(vectors, labels, most=20) for pair in two.examples]
    assert 0 < len(some) <= 20
    # Of an item and its nearest, either may have been asked when all are.
    ends = {frozenset((pair.item, pair.nearest)) for pair in every}
    assert sum(frozenset((pair.item, pair.nearest)) in ends for pair in some) >= len(some) - 2


@pytest.mark.parametrize("labels", [[], ["a"], [None, None], ["a", None]])
def test_nothing_to_confuse(labels: list[str | None]) -> None:
    assert find_confused_classes(np.ones((len(labels), 2), np.float32), labels) == []


def test_duplicates_of_another_class_are_found_though_three_vectors_are_equal() -> None:
    found = find_confused_classes(np.ones((3, 2), np.float32), ["a", "b", "b"])
    assert sum(two.first_as_second + two.second_as_first for two in found) >= 1
