"""Duplicates: every pair beyond the threshold by a double loop, groups, and what comes first."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.collection import find_duplicates, group_links
from vicinal.collection.duplicates import Link, near_links
from vicinal.errors import InputError


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("threshold", [0.2, 0.8, 0.95])
def test_every_pair_beyond_the_threshold_is_found(distance: str, threshold: float) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3))
    rows[40:55] = rows[7] + 1e-3 * rng.normal(size=(15, 3))  # more duplicates than a first look sees
    bar = threshold if distance == "cosine" else threshold - 1
    expected = set()
    for one in range(60):
        for other in range(one + 1, 60):
            cosine = rows[one] @ rows[other] / np.linalg.norm(rows[one]) / np.linalg.norm(rows[other])
            likeness = cosine if distance == "cosine" else -np.linalg.norm(rows[one] - rows[other])
            if likeness >= bar:
                expected.add((one, other))
    links = near_links(rows, bar, distance)
    assert {(link.first, link.second) for link in links} == expected
    assert all(link.similarity >= bar for link in links)


def test_items_linked_through_others_are_one_group() -> None:
    links = [Link(0, 1, "bytes"), Link(1, 4, "looks", 0.99), Link(2, 3, "looks")]
    groups = group_links(links, labels=np.array(["a", "a", "b", "b", "a"]))
    assert [group.indices for group in groups] == [(2, 3), (0, 1, 4)]
    assert groups[1].kinds == ("bytes", "looks")
    assert groups[1].similarity == 0.99


def test_series_are_no_copies_and_may_leak_at_most() -> None:
    links = [Link(0, 1, "bytes"), Link(0, 1, "embedding", 0.99, False), Link(1, 4, "alike", copy=False)]
    copies, series = group_links(links, roles=np.array(["train", "train", "train", "train", "test"]))
    assert (copies.indices, copies.copies, copies.leaks, copies.may_leak) == ((0, 1), True, False, False)
    assert (series.indices, series.copies, series.leaks, series.may_leak) == ((0, 1, 4), False, False, True)
    assert series.kinds == ("alike", "embedding")
    (near,) = find_duplicates([[1.0, 0.0], [1.0, 0.01]])
    assert not near.copies
    assert group_links(links[:2])[0].kinds == ("bytes",)
    assert len(group_links(links[:2])) == 1


def test_leaks_come_first_then_contradictions() -> None:
    rows = np.repeat(np.eye(3), 2, axis=0)
    roles = np.array(["train", "train", "train", "train", "train", "gallery"])
    found = find_duplicates(rows, labels=np.array([0, 0, 1, 2, 3, 3]), roles=roles)
    assert [group.indices for group in found] == [(4, 5), (2, 3), (0, 1)]
    assert found[0].leaks
    assert found[0].sides == ("test", "train")
    assert found[1].labels == (1, 2)
    assert found[0].as_dict()["leaks"] is True


def test_query_and_gallery_are_one_side() -> None:
    (group,) = find_duplicates([[1.0, 0.0], [1.0, 0.0]], roles=np.array(["query", "gallery"]))
    assert not group.leaks


@pytest.mark.parametrize("rows", [[[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
def test_nothing_twice(rows: list[list[float]]) -> None:
    assert find_duplicates(rows) == []


def test_distances_need_a_threshold() -> None:
    with pytest.raises(InputError, match="a cosine, between -1 and 1; got 2"):
        find_duplicates(np.eye(3), threshold=2.0)
    with pytest.raises(InputError, match=r"minus a Euclidean distance.*at most 0; got 2"):
        find_duplicates(np.eye(3), threshold=2.0, distance="euclidean")
    with pytest.raises(InputError, match="no default threshold"):
        find_duplicates([[1.0, 0.0], [1.0, 0.0]], distance="euclidean")


def test_a_threshold_that_links_nearly_everything_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    assert len(near_links(rows, -1.0)) == 40 * 39 / 2
    monkeypatch.setattr("vicinal.collection.duplicates.MOST_LINKS", 779)
    with pytest.raises(InputError, match="More than 779 pairs of items reach a similarity of -1; raise the threshold"):
        find_duplicates(rows, threshold=-1.0)


def test_items_without_a_label_contradict_nobody() -> None:
    (group,) = find_duplicates(np.ones((3, 2)), labels=np.array(["a", None, "a"], dtype=object))
    assert group.labels == ("a",)
