"""A memory of past batches as references."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses
from torch import Tensor

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.pairs import masks
from vicinal.references import Memory, View


def held(view: View) -> list[tuple[float, int]]:
    return sorted((vector[0].item(), label.item()) for vector, label in zip(view.vectors, view.labels, strict=True))


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 7),
    start=st.integers(0, 2),
    batches=st.lists(st.integers(0, 10), max_size=6),
    with_ids=st.booleans(),
)
def test_is_a_queue_of_the_last_items(size: int, start: int, batches: list[int], with_ids: bool) -> None:
    """Against a deque, with batches of any size: larger than the queue, empty, wrapping around."""
    memory, queue, count = Memory(size, 1, start=start), deque[tuple[float, int]](maxlen=size), 0
    for step, n in enumerate(batches):
        numbers = torch.arange(count, count + n)
        count += n
        view = memory(numbers[:, None].float(), numbers * 2**40, numbers if with_ids else None)
        if step >= start:
            queue.extend((float(k), int(k) * 2**40) for k in numbers.tolist())
        assert held(view) == sorted(queue)
        # An item never meets itself: only the pair with its own copy is marked, and nothing else.
        assert view.itself is not None
        assert torch.equal(view.itself, numbers[:, None] * 2**40 == view.labels[None])
        assert memory.steps == step + 1


def test_ids_reveal_older_copies() -> None:
    memory = Memory(8, 2)
    ids = torch.tensor([5, 6])
    memory(torch.zeros(2, 2), torch.tensor([0, 1]), ids)
    view = memory(torch.ones(2, 2), torch.tensor([0, 1]), ids)
    assert view.itself.tolist() == [[True, False, True, False], [False, True, False, True]]
    without = memory(torch.ones(2, 2), torch.tensor([0, 1]))
    assert without.itself.sum() == 2


def test_a_label_that_changed_does_not_make_an_item_its_own_negative() -> None:
    memory = Memory(4, 2)
    ids = torch.tensor([5, 6])
    memory(torch.zeros(2, 2), torch.tensor([0, 1]), ids)
    labels = torch.tensor([1, 0])
    view = memory(torch.ones(2, 2), labels, ids)
    positive, negative = masks(labels, view.labels, view.itself)
    assert positive.tolist() == [[False, True, False, False], [True, False, False, False]]
    assert negative.tolist() == [[False, False, False, True], [False, False, True, False]]


def test_items_without_an_id_are_strangers() -> None:
    memory = Memory(4, 2)
    memory(torch.zeros(2, 2), torch.tensor([0, 0]))
    view = memory.eval()(torch.zeros(2, 2), torch.tensor([0, 0]), torch.tensor([-1, -1]))
    assert not view.itself.any()


def test_evaluation_stores_nothing() -> None:
    memory = Memory(4, 2)
    memory(torch.ones(2, 2), torch.tensor([0, 1]))
    before = copy.deepcopy(memory.state_dict())
    view = memory.eval()(torch.zeros(3, 2), torch.tensor([0, 1, 2]))
    assert view.vectors.shape == (2, 2)
    assert not view.itself.any()
    assert all(torch.equal(value, before[name]) for name, value in memory.state_dict().items())


def test_the_queue_holds_no_gradient_and_views_are_copies() -> None:
    memory = Memory(4, 2)
    embeddings = torch.ones(2, 2, requires_grad=True)
    view = memory(embeddings, torch.tensor([0, 1]))
    assert not view.vectors.requires_grad
    memory(torch.zeros(4, 2), torch.tensor([2, 3, 4, 5]))
    assert (view.vectors == 1).all()
    assert view.labels.tolist() == [0, 1]


def test_until_it_starts_the_loss_is_a_differentiable_zero() -> None:
    criterion = Criterion("contrastive", references=Memory(4, 2, start=2))
    for step in range(3):
        embeddings = torch.tensor([[1.0, 0.2], [0.5, 1.0]], requires_grad=True)
        loss = criterion(embeddings, torch.tensor([0, 0]))
        loss.backward()
        assert (loss != 0) == (step == 2)
        assert embeddings.grad.any() == (step == 2)


def batches(count: int, dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(6, 5, generator=generator, dtype=dtype),
            torch.randint(3, (6,), generator=generator),
            torch.randint(40, (6,), generator=generator),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("mining", [None, "random", "valid_triplets"])
def test_a_state_dict_resumes_exactly(mining: str | None) -> None:
    def fresh() -> Criterion:
        return Criterion("multi_similarity", references=Memory(16, 5, start=1), mining=mining)

    whole, first, resumed = fresh(), fresh(), fresh()
    expected = [whole(*batch[:2], ids=batch[2]).item() for batch in batches(8)]
    for batch in batches(8)[:4]:
        first(*batch[:2], ids=batch[2])
    resumed.load_state_dict(first.state_dict())
    assert [resumed(*batch[:2], ids=batch[2]).item() for batch in batches(8)[4:]] == expected[4:]
    assert len(set(expected)) > 4


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8])
def test_narrow_integer_labels(dtype: torch.dtype) -> None:
    narrow, wide = (Criterion("contrastive", references=Memory(9, 5)) for _ in range(2))
    for embeddings, labels, ids in batches(3, torch.float32):
        assert narrow(embeddings, labels.to(dtype), ids=ids.int()) == wide(embeddings, labels, ids=ids)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions_and_empty_batches(dtype: torch.dtype) -> None:
    criterion = Criterion("contrastive", references=Memory(9, 5))
    for n in (0, 3, 0, 12):
        loss = criterion(torch.randn(n, 5).to(dtype), torch.zeros(n, dtype=torch.long))
        assert loss.isfinite()


@pytest.mark.parametrize("memory", [Memory(4, 2), Memory(4, 2, start=5), Memory(4, 2).eval()])
def test_a_wrong_dimension_is_named(memory: Memory) -> None:
    with pytest.raises(InputError, match="Embeddings have 3 dimensions but the memory has 2"):
        memory(torch.zeros(2, 3), torch.tensor([0, 1]))


@pytest.mark.parametrize("arguments", [(0, 2), (3, 0)])
def test_sizes_of_at_least_one(arguments: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="Memory needs size and dim of 1 or more and start of 0 or more"):
        Memory(*arguments)
    with pytest.raises(InputError, match=r"got \(3, 2, -1\)"):
        Memory(3, 2, start=-1)


@pytest.mark.peer
@pytest.mark.parametrize(
    ("ours", "peer"),
    [
        ("multi_similarity", losses.MultiSimilarityLoss),
        ("nt_xent", losses.NTXentLoss),
        ("supervised_contrastive", losses.SupConLoss),
        ("circle", losses.CircleLoss),
        ("triplet", lambda: losses.TripletMarginLoss(margin=0.1)),
        ("contrastive_c2", lambda: losses.ContrastiveLoss(pos_margin=0, neg_margin=0.5)),
    ],
)
@pytest.mark.parametrize("size", [10, 64])
def test_peer(ours: str, peer: Any, size: int) -> None:
    """Several steps beside the peer's memory: batches wrap around at size 10 and never fill size 64.

    Circle and the mean over anchors with a positive start to differ where an anchor has none, so labels repeat.
    """
    criterion = Criterion(ours, references=Memory(size, 5)).double()
    memory = losses.CrossBatchMemory(peer(), 5, memory_size=size)
    for embeddings, _, _ in batches(5):
        labels = torch.tensor([0, 1, 2, 0, 1, 2])
        values, gradients = [], []
        for loss in (criterion, memory):
            leaf = embeddings.clone().requires_grad_()
            value = loss(leaf, labels)
            values.append(value.detach())
            gradients.append(torch.autograd.grad(value, leaf)[0])
        torch.testing.assert_close(*values, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
        assert gradients[0].any()
