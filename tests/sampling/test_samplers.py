from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vicinal.sampling
from vicinal.errors import InputError
from vicinal.sampling import (
    SAMPLERS,
    class_batches,
    class_sampler,
    hard_class_sampler,
    nearest_class_order,
    random_sampler,
)

SIZES = st.lists(st.integers(1, 6), min_size=3, max_size=12)


def labels_of(sizes: list[int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


def test_public_names() -> None:
    assert all(hasattr(vicinal.sampling, name) for name in vicinal.sampling.__all__)
    assert set(SAMPLERS) == {"random", "classes", "hard-classes"}


def test_full_classes_make_exact_batches() -> None:
    labels = labels_of([5] * 12)
    batches = class_batches(labels, 4, 3, np.random.default_rng(0))
    assert len(batches) == 3
    for batch in batches:
        assert sorted(Counter(labels[batch].tolist()).values()) == [3, 3, 3, 3]
    assert sorted(label for batch in batches for label in set(labels[batch].tolist())) == list(range(12))


def test_the_last_batch_is_topped_up() -> None:
    labels = labels_of([4] * 10)
    batches = class_batches(labels, 4, 2, np.random.default_rng(0))
    assert [len(batch) for batch in batches] == [8, 8, 8]
    turns = Counter(label for batch in batches for label in set(labels[batch].tolist()))
    assert set(turns) == set(range(10))
    assert sorted(turns.values()) == [1] * 8 + [2] * 2


def test_short_classes_give_what_they_have_and_others_fill() -> None:
    labels = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4])
    for seed in range(20):
        for batch in class_batches(labels, 2, 3, np.random.default_rng(seed)):
            assert len(batch) == 6
            assert len(set(batch.tolist())) == 6
            assert max(Counter(labels[batch].tolist()).values()) <= 3


def test_short_classes_repeat_only_if_asked() -> None:
    labels = np.array([0, 1, 1, 2, 2, 2, 3, 3, 3])
    batches = class_batches(labels, 2, 3, np.random.default_rng(0), repeat_short=True)
    for batch in batches:
        assert sorted(Counter(labels[batch].tolist()).values()) == [3, 3]
        for label in set(labels[batch].tolist()):
            distinct = {item for item in batch.tolist() if labels[item] == label}
            assert len(distinct) == min(3, (labels == label).sum())


def test_all_items_of_a_class_come_before_any_again() -> None:
    labels = labels_of([6] * 4)
    batches = class_batches(labels, 2, 2, np.random.default_rng(1), rounds=3)
    assert len(batches) == 6
    assert sorted(np.concatenate(batches).tolist()) == list(range(24))


@given(SIZES, st.integers(1, 5), st.integers(1, 5), st.integers(1, 3), st.booleans(), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_any_pass(sizes: list[int], classes: int, samples: int, rounds: int, repeat: bool, seed: int) -> None:
    labels = labels_of(sizes, seed)
    size = classes * samples
    supply = samples * len(sizes) if repeat else sum(min(samples, n) for n in sizes)
    options = {"rounds": rounds, "repeat_short": repeat, "seed": seed}
    if supply < size:
        with pytest.raises(InputError, match="cannot fill a batch"):
            class_sampler(labels, classes, samples, **options)
        return
    batches = list(class_sampler(labels, classes, samples, **options))
    turns = Counter(label for batch in batches for label in set(labels[batch].tolist()))
    assert set(turns) == set(range(len(sizes)))
    assert min(turns.values()) >= rounds
    # Only the last batch gives a class a turn too many.
    assert sum(turns.values()) - rounds * len(sizes) < len(set(labels[batches[-1]].tolist()))
    for batch in batches:
        assert len(batch) == size
        of_class = Counter(labels[batch].tolist())
        assert max(of_class.values()) <= samples
        if repeat:
            assert set(of_class.values()) == {samples}
        else:
            assert len(set(batch.tolist())) == size


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_random_passes(count: int, batch_size: int, seed: int) -> None:
    if batch_size > count:
        with pytest.raises(InputError, match=f"number of items, {count}; got {batch_size}"):
            random_sampler(count, batch_size)
        return
    sampler = random_sampler(count, batch_size, seed=seed)
    items = np.concatenate(list(sampler))
    assert len(items) == count // batch_size * batch_size
    assert len(set(items.tolist())) == len(items)


def make(kind: str, **options):
    labels = labels_of([4, 5, 3, 6, 2, 4, 4, 5])
    if kind == "random":
        return random_sampler(len(labels), 6, **options)
    sampler = SAMPLERS[kind](labels, 3, 2, rounds=2, **options)
    if sampler.wants_embeddings:
        sampler.update(torch.from_numpy(np.random.default_rng(0).random((len(labels), 3))), torch.from_numpy(labels))
    return sampler


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("used", [0, 1, 3, 7, 13])
def test_resuming_anywhere_goes_on_exactly(kind: str, used: int) -> None:
    def draw(sampler, count: int) -> list[list[int]]:
        drawn = []
        for _ in range(count):
            drawn.append(sampler.remaining()[0].tolist())
            sampler.advance()
        return drawn

    whole = draw(make(kind, seed=4), 20)
    first = make(kind, seed=4)
    begun = draw(first, used)
    second = make(kind, seed=4)
    second.load_state_dict(first.state_dict())
    assert begun + draw(second, 20 - used) == whole
    assert len({tuple(batch) for batch in whole}) > 10


@pytest.mark.parametrize("kind", SAMPLERS)
def test_ranks_share_every_batch(kind: str) -> None:
    whole = [batch.tolist() for batch in make(kind)]
    parts = [list(make(kind, rank=rank, world_size=3)) for rank in range(3)]
    assert [np.concatenate(together).tolist() for together in zip(*parts, strict=True)] == whole
    assert all(len(batch) == 2 for part in parts for batch in part)


def test_a_state_resumes_with_another_number_of_processes() -> None:
    whole = make("classes", seed=2)
    whole.advance()
    halves = [make("classes", seed=2, rank=rank, world_size=2) for rank in range(2)]
    for half in halves:
        half.load_state_dict(whole.state_dict())
    together = np.concatenate([half.remaining()[0] for half in halves])
    assert together.tolist() == whole.remaining()[0].tolist()


def test_another_samplers_state_is_refused() -> None:
    state = make("classes", seed=0).state_dict()
    with pytest.raises(InputError, match="same data, seed and batch sizes"):
        make("classes", seed=1).load_state_dict(state)
    with pytest.raises(InputError, match="draws other batches"):
        make("random").load_state_dict(state)


def test_iterating_stops_at_the_end_of_the_pass_and_the_next_differs() -> None:
    sampler = make("classes")
    first = [batch.tolist() for batch in sampler]
    assert len(first) > 1
    assert (sampler.epoch, sampler.batch) == (1, 0)
    assert [batch.tolist() for batch in sampler] != first


def clusters() -> tuple[np.ndarray, torch.Tensor]:
    """Twelve classes in four clusters of three."""
    labels = np.repeat(np.arange(12), 4)
    centres = np.random.default_rng(0).permutation(np.repeat(np.arange(4) * 100.0, 3))
    return labels, torch.from_numpy(centres[labels][:, None] + np.random.default_rng(1).random((48, 1)))


def test_near_classes_come_together() -> None:
    labels, embeddings = clusters()
    sampler = hard_class_sampler(labels, 3, 2, seed=1)
    cluster_of = {label: round(embeddings[labels == label].mean().item() / 100) for label in range(12)}

    def mixed(batches) -> int:
        return sum(len({cluster_of[label] for label in labels[batch].tolist()}) > 1 for batch in batches)

    assert mixed(sampler) > 0
    sampler.update(embeddings, torch.from_numpy(labels))
    hard = list(sampler)
    assert mixed(hard) == 0
    assert sorted({label for batch in hard for label in labels[batch].tolist()}) == list(range(12))


def test_an_update_in_the_middle_of_a_pass_waits_for_the_next() -> None:
    labels, embeddings = clusters()
    plain, updated = (hard_class_sampler(labels, 3, 2) for _ in range(2))
    for sampler in (plain, updated):
        sampler.advance()
    updated.update(embeddings, torch.from_numpy(labels))
    resumed = hard_class_sampler(labels, 3, 2)
    resumed.load_state_dict(updated.state_dict())
    assert [b.tolist() for b in plain] == [b.tolist() for b in resumed] == [b.tolist() for b in updated]
    second = [[b.tolist() for b in sampler] for sampler in (plain, updated, resumed)]
    assert second[0] != second[1] == second[2]


def test_nearest_class_order_against_a_naive_search() -> None:
    centroids = np.random.default_rng(3).normal(size=(11, 4))
    order = nearest_class_order(centroids, 3, np.random.default_rng(5)).tolist()
    assert sorted(order) == list(range(11))
    left = set(range(11))
    for first in range(0, 11, 3):
        group = order[first : first + 3]
        left.remove(group[0])
        nearest = sorted(left, key=lambda c: ((centroids[c] - centroids[group[0]]) ** 2).sum())
        assert group[1:] == nearest[:2]
        left -= set(group)


def test_bad_arguments() -> None:
    labels = labels_of([3] * 5)
    with pytest.raises(InputError, match=r"rank 2 of 2"):
        class_sampler(labels, 2, 2, rank=2, world_size=2)
    with pytest.raises(InputError, match="a batch of 4 cannot be shared by 3 processes"):
        class_sampler(labels, 2, 2, world_size=3)
    with pytest.raises(InputError, match="at least 1"):
        class_sampler(labels, 0, 2)
    with pytest.raises(InputError, match=r"5 classes .* cannot fill a batch of 6 x 2; there are 10 such items"):
        class_sampler(labels, 6, 2)
    with pytest.raises(InputError, match="cannot fill a batch of 6 x 2"):
        class_batches(labels, 6, 2, np.random.default_rng(0), repeat_short=True)
    with pytest.raises(InputError, match="rounds must be at least 1"):
        class_sampler(labels, 2, 2, rounds=0)
    with pytest.raises(InputError, match="does not use embeddings"):
        class_sampler(labels, 2, 2).update(torch.zeros(15, 2), torch.from_numpy(labels))
    with pytest.raises(InputError, match=r"none for classes \[1\]"):
        hard_class_sampler(labels, 2, 2).update(torch.zeros(2, 2), torch.tensor([0, 2]))


def sets_of(items: int, labels: int, share: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((items, labels)) < share


def test_sets_of_one_label_are_drawn_as_labels_are() -> None:
    labels = labels_of([3, 5, 2, 6, 4])
    plain = class_batches(labels, 2, 3, np.random.default_rng(5), rounds=4)
    sets = class_batches(np.eye(5, dtype=bool)[labels], 2, 3, np.random.default_rng(5), rounds=4)
    assert [batch.tolist() for batch in plain] == [batch.tolist() for batch in sets]


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_a_batch_of_sets_has_enough_of_its_classes_and_no_item_twice(share: float) -> None:
    sets = sets_of(60, 8, share)
    seen: set[int] = set()
    for batch in class_batches(sets, 4, 3, np.random.default_rng(0), rounds=5):
        assert len(set(batch.tolist())) == len(batch) == 12
        assert sets[batch].any(axis=1).all()
        assert (sets[batch].sum(axis=0) >= 3).sum() >= 4
        seen |= set(batch.tolist())
    assert len(seen) > 30


def test_classes_that_share_their_items_give_further_ones() -> None:
    sets = np.zeros((9, 5), dtype=bool)
    sets[:2, :4] = True  # four classes of the same two items
    sets[2:, 4] = True
    for seed in range(10):
        for batch in class_batches(sets, 4, 2, np.random.default_rng(seed)):
            assert len(set(batch.tolist())) == 8


def test_sets_that_cannot_fill_a_batch_are_told_at_once() -> None:
    sets = np.zeros((9, 5), dtype=bool)
    sets[:3] = True
    with pytest.raises(InputError, match="3 items with labels cannot fill a batch of 2 x 2"):
        class_sampler(sets, 2, 2)
    for batch in class_sampler(sets, 2, 2, repeat_short=True):
        assert len(batch) == 4
    with pytest.raises(InputError, match="0 classes"):
        class_sampler(np.zeros((9, 5), dtype=bool), 2, 2)
    with pytest.raises(InputError, match="one per item, or sets of labels as booleans"):
        class_sampler(np.zeros((9, 5), dtype=int), 2, 2)


def test_the_nearest_classes_of_sets_come_together() -> None:
    sets = np.kron(np.eye(4, dtype=bool), np.ones((3, 1), dtype=bool))
    sets = np.column_stack([sets, np.zeros(12, dtype=bool)])  # and a label that nothing has
    embeddings = torch.tensor([[0.0], [10.0], [0.1], [10.1]]).repeat_interleave(3, dim=0)
    sampler = hard_class_sampler(sets, 2, 3)
    sampler.update(embeddings, torch.from_numpy(sets))
    assert [sorted(set((batch // 3).tolist())) for batch in sampler] in ([[0, 2], [1, 3]], [[1, 3], [0, 2]])
