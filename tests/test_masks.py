"""Masks, sets and second views in the place of labels: each equals what labels say, and plain loops."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vicinal import sampling
from vicinal.criterion import Criterion, Learned
from vicinal.errors import InputError
from vicinal.mining import MINERS
from vicinal.objectives import OBJECTIVES, traits_of
from vicinal.pairs import masks
from vicinal.references import Batch, Memory, Proxies

ON_BATCH = sorted(name for name, loss in OBJECTIVES.items() if "batch" in traits_of(loss).references)
LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])


def drawn(rows: int = 8, seed: int = 0) -> Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))


def one_hot(labels: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(labels).bool()


@pytest.mark.parametrize("name", ON_BATCH)
@pytest.mark.parametrize("mining", [None, "hard", "semi_hard", "valid_triplets"])
def test_masks_and_sets_equal_labels(name: str, mining: str | None) -> None:
    criterion = Criterion(name, references=Batch(), mining=mining)
    embeddings, together = drawn(), LABELS[:, None] == LABELS
    by_labels = criterion(embeddings, LABELS)
    assert criterion(embeddings, positive=together) == by_labels
    assert criterion(embeddings, positive=together, negative=~together) == by_labels
    assert criterion(embeddings, one_hot(LABELS)) == by_labels


@pytest.mark.parametrize("name", ON_BATCH)
def test_a_second_view_equals_the_function_of_its_matrix(name: str) -> None:
    criterion, keys, key_labels = (
        Criterion(name, references=Batch(), regularisers={}),
        drawn(6, seed=1),
        torch.tensor([0, 1, 2, 3, 0, 1]),
    )
    embeddings = drawn().requires_grad_()
    loss = criterion(embeddings, LABELS, keys, key_labels)
    unit = criterion._normalised
    matrix = criterion.geometry.compare(unit(embeddings), unit(keys))
    together = LABELS[:, None] == key_labels
    expected = OBJECTIVES[name](matrix, together, ~together)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(criterion(embeddings, references=keys, positive=together), expected)


def test_a_second_view_learns_on_both_sides() -> None:
    queries, keys = drawn().requires_grad_(), drawn(seed=1).requires_grad_()
    Criterion("nt_xent")(queries, LABELS, keys, LABELS).backward()
    assert queries.grad is not None
    assert queries.grad.any()
    assert keys.grad is not None
    assert keys.grad.any()


@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.5, 0.9])
def test_sets_against_plain_loops(overlap: float) -> None:
    sets = torch.rand(9, 6, generator=torch.Generator().manual_seed(3)) < 0.4
    sets[0] = False
    positive, negative = masks(sets, sets, overlap=overlap)
    for i, mine in enumerate(sets.tolist()):
        for j, theirs in enumerate(sets.tolist()):
            common = sum(a and b for a, b in zip(mine, theirs, strict=True))
            either = sum(a or b for a, b in zip(mine, theirs, strict=True))
            together = common > 0 if overlap == 0 else either > 0 and common / either > overlap
            assert bool(positive[i, j]) == together
            assert bool(negative[i, j]) != together


def test_sets_meet_every_proxy_of_theirs() -> None:
    sets = torch.tensor([[True, True, False], [False, False, True]])
    proxies = Proxies(3, 5, per_class=2)
    seen: list[Tensor] = []

    def watched(matrix: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        seen.extend([positive, negative])
        return matrix.sum()

    Criterion(watched, references=proxies)(drawn(2), sets)
    assert seen[0].int().tolist() == [[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]
    assert torch.equal(seen[1], ~seen[0])


def test_pairs_in_neither_mask_and_items_with_themselves_do_not_count() -> None:
    positive = torch.zeros(4, 4, dtype=torch.bool)
    positive[0, 1] = True
    criterion, embeddings = Criterion("contrastive"), drawn(4).requires_grad_()
    criterion(embeddings, positive=positive | torch.eye(4).bool(), negative=torch.zeros_like(positive)).backward()
    assert embeddings.grad is not None
    assert embeddings.grad[:2].any(1).all()
    assert not embeddings.grad[2:].any()


@pytest.mark.parametrize("miner", sorted(set(MINERS) - {"distance_weighted"}))
def test_every_miner_takes_masks(miner: str) -> None:
    loss = Criterion("triplet", mining=miner)(drawn(), positive=LABELS[:, None] == LABELS)
    assert loss.isfinite()


@pytest.mark.parametrize("labels", [LABELS.tolist(), LABELS.numpy(), LABELS.int(), LABELS.numpy().astype(np.uint8)])
def test_lists_and_arrays_are_labels(labels: Any) -> None:
    criterion = Criterion("triplet")
    assert criterion(drawn(), labels) == criterion(drawn(), LABELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs labels, or the masks"),
        ({"labels": ["a"] * 8}, "Encode names first"),
        ({"labels": LABELS.float()}, "1-D tensor of integers"),
        ({"labels": LABELS, "positive": torch.eye(8).bool()}, "Masks replace labels"),
        ({"positive": torch.eye(7).bool()}, r"boolean mask of the matrix's shape \[8, 8\]"),
        ({"positive": torch.ones(8, 8)}, "boolean mask"),
        ({"positive": torch.ones(8, 8).bool(), "negative": torch.ones(8, 8).bool()}, "positive and negative overlap"),
        ({"labels": LABELS, "references": drawn(), "reference_labels": LABELS[:3]}, "8 embeddings but 3 labels"),
        ({"labels": LABELS, "references": drawn()[:, :3], "reference_labels": LABELS}, "5 dimensions and .* 3"),
        ({"labels": LABELS, "references": drawn(), "reference_labels": LABELS, "ids": LABELS}, "ids need labels"),
    ],
)
def test_what_does_not_fit_is_told(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Criterion("triplet")(drawn(), **arguments)


def test_masks_and_sets_go_where_they_make_sense() -> None:
    together = LABELS[:, None] == LABELS
    with pytest.raises(InputError, match="compares items with Proxies"):
        Criterion("proxy_anchor", classes=4, dim=5)(drawn(), positive=together)
    with pytest.raises(InputError, match="Sets of labels need a batch"):
        Criterion("contrastive", references=Memory(16, 5))(drawn(), one_hot(LABELS))
    with pytest.raises(InputError, match="no options learned per class"):
        Criterion("margin", boundary=Learned(1.2, classes=4))(drawn(), one_hot(LABELS))
    with pytest.raises(InputError, match=r"\[items, 4 classes\]; got \[8, 3\]"):
        Criterion("proxy_anchor", classes=4, dim=5)(drawn(), one_hot(LABELS)[:, :3])
    with pytest.raises(InputError, match="overlap is a share"):
        Criterion("triplet", overlap=1.0)


def test_a_learned_option_is_used_with_masks() -> None:
    criterion = Criterion("margin", boundary=Learned(0.7))
    together = LABELS[:, None] == LABELS
    assert criterion(drawn(), positive=together) == criterion(drawn(), LABELS)


def test_a_batch_of_one_class_says_so() -> None:
    with pytest.warns(UserWarning, match="All 8 items of a batch are of one class") as told:
        assert Criterion("triplet")(drawn(), torch.zeros(8).long()) == 0
    [name] = re.findall(r"vicinal\.sampling\.(\w+)", str(told[0].message))
    assert name in sampling.__all__


def test_the_loss_is_named_in_its_repr() -> None:
    criterion = Criterion("margin", mining="hard", boundary=Learned(1.2), margin=0.1)
    assert repr(criterion) == (
        "Criterion('margin', mining='hard', geometry='euclidean', references=Batch, margin=0.1, boundary=learned)"
    )


COMPILED = """
import torch
from vicinal.criterion import Criterion
from vicinal.objectives import OBJECTIVES
from vicinal.references import Proxies
embeddings, labels = torch.randn(8, 6), torch.arange(4).repeat(2)
wrong = []
for name in sorted(OBJECTIVES):
    torch._dynamo.reset()
    criterion = Criterion(name, classes=6, dim=6)
    rows = embeddings.softmax(1) if criterion.references[0].kind == "one_hot" else embeddings
    plain = criterion(rows, labels)
    try:
        graph = torch.compile(criterion, fullgraph=True, backend="aot_eager")(rows, labels)
        torch.testing.assert_close(graph, plain)
    except Exception as error:
        wrong.append(f"{name}: {type(error).__name__} {str(error)[:300]}")
torch._dynamo.reset()
centres = Criterion("soft_triple", references=Proxies(6, 6, per_class=3))
plain = centres(embeddings, labels)
expected = torch.autograd.grad(plain, tuple(centres.parameters()))
graph = torch.compile(centres, fullgraph=True, backend="aot_eager")(embeddings, labels)
torch.testing.assert_close(graph, plain)
torch.testing.assert_close(torch.autograd.grad(graph, tuple(centres.parameters())), expected)
together = labels[:, None] == labels
masked = torch.compile(Criterion("triplet", mining="semi_hard"), fullgraph=True, backend="aot_eager")
plain = Criterion("triplet", mining="semi_hard")(embeddings, labels)
torch.testing.assert_close(masked(embeddings, positive=together), plain)
print("\\n".join(wrong) or "all")
"""


@pytest.mark.slow
def test_every_criterion_is_one_graph() -> None:
    """In a process of its own, since here all functions are wrapped to check their shapes."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "all", done.stdout + done.stderr[-2000:]
