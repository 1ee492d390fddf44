"""What holds for every objective in the table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.mining import MINERS
from vicinal.objectives import ALIASES, OBJECTIVES, options_of, traits_of
from vicinal.pairs import GEOMETRIES
from vicinal.references import Batch, Cover, Memory, Proxies
from vicinal.weights import pair_weights

EVERY = sorted(OBJECTIVES)
TRAITS = {name: traits_of(OBJECTIVES[name]) for name in EVERY}
CASES = [(name, kind) for name in EVERY for kind in ("batch", "proxies") if kind in TRAITS[name].references]
# These look at the matrix column by column: an anchor weighs against the other anchors.
BY_COLUMN = ("proxy_anchor", "proxy_gram", "proxy_repulsion")


def close(a: Tensor, b: Tensor | float, **tolerance: float) -> None:
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), **({"rtol": 1e-10, "atol": 1e-11} | tolerance))


def test_each_has_an_oracle_and_other_settings(oracles: Any) -> None:
    assert set(oracles.ORACLES) == set(OBJECTIVES) == set(oracles.OPTIONS)


def test_names_are_those_of_the_functions() -> None:
    assert all(function.__name__ == name for name, function in OBJECTIVES.items())
    assert set(ALIASES.values()) <= set(OBJECTIVES)
    assert not set(ALIASES) & set(OBJECTIVES)


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_equals_naive_loops(pairs: Any, naive: Any, oracles: Any, name: str, kind: str, seed: int) -> None:
    drawn = pairs(name, kind, seed)
    for options in ({}, oracles.OPTIONS[name]):
        close(drawn.loss(name, **options), naive(name, drawn, **options))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), levels=st.integers(1, 5), kept=st.floats(0, 1))
@pytest.mark.parametrize("name", EVERY)
def test_equals_naive_loops_on_any_masks_and_ties(
    pairs: Any, naive: Any, oracles: Any, name: str, seed: int, levels: int, kept: float
) -> None:
    """Mining may leave any part of the masks; entries take few values, so that many are tied."""
    drawn = pairs(name, "proxies")
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(levels, drawn.matrix.shape, generator=generator).double() / 4
    drawn.matrix = 0.75 - steps if GEOMETRIES[TRAITS[name].geometry].similarity else steps
    left = torch.rand(drawn.matrix.shape, generator=generator) < kept
    drawn.positive, drawn.negative = drawn.positive & left, drawn.negative & left
    for options in ({}, oracles.OPTIONS[name]):
        close(drawn.loss(name, **options), naive(name, drawn, **options))


# Circle holds two factors constant in the gradient, so that its gradient is not the derivative of its value; its own
# test file checks it against the closed form.
@pytest.mark.parametrize("name", [name for name in EVERY if name != "circle"])
def test_gradient_is_the_derivative(pairs: Any, oracles: Any, name: str) -> None:
    drawn = pairs(name, "proxies")

    def loss(matrix: Tensor) -> Tensor:
        return OBJECTIVES[name](matrix, drawn.positive, drawn.negative, **drawn.supplied, **oracles.OPTIONS[name])

    assert torch.autograd.gradcheck(loss, drawn.matrix.requires_grad_(), eps=1e-6, atol=1e-7, rtol=1e-5)


def gradient(name: str, drawn: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """Value and gradient with respect to the matrix, both of which must be finite numbers."""
    leaf = drawn.matrix.detach().clone().requires_grad_()
    loss = OBJECTIVES[name](leaf, drawn.positive, drawn.negative, **drawn.supplied, **options)
    assert loss.shape == ()
    loss.backward()
    assert leaf.grad is not None
    assert loss.isfinite()
    assert leaf.grad.isfinite().all()
    return loss.detach(), leaf.grad


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("seed", range(2))
def test_order_of_anchors_and_references_is_free(pairs: Any, oracles: Any, name: str, kind: str, seed: int) -> None:
    drawn, moved = pairs(name, kind, seed), pairs(name, kind, seed)
    generator = torch.Generator().manual_seed(seed)
    n, m = drawn.matrix.shape
    rows, columns = torch.randperm(n, generator=generator), torch.randperm(m, generator=generator)
    if TRAITS[name].needs:  # these are stored class by class: whole classes change places
        columns = torch.arange(m).view(4, 2)[torch.randperm(4, generator=generator)].flatten()
        moved.supplied = {
            key: value[columns] if value.ndim == 1 else value[columns][:, columns]
            for key, value in drawn.supplied.items()
        }
    moved.matrix = drawn.matrix[rows][:, columns]
    moved.positive, moved.negative = drawn.positive[rows][:, columns], drawn.negative[rows][:, columns]
    value, slope = gradient(name, drawn, **oracles.OPTIONS[name])
    moved_value, moved_slope = gradient(name, moved, **oracles.OPTIONS[name])
    close(moved_value, value)
    close(moved_slope, slope[rows][:, columns])


@pytest.mark.parametrize(("name", "kind"), [case for case in CASES if case[0] not in BY_COLUMN])
def test_anchors_twice_change_nothing(pairs: Any, oracles: Any, name: str, kind: str) -> None:
    drawn, twice = pairs(name, kind), pairs(name, kind)
    twice.matrix, twice.positive, twice.negative = (
        torch.cat([part, part]) for part in (drawn.matrix, drawn.positive, drawn.negative)
    )
    value, slope = gradient(name, drawn, **oracles.OPTIONS[name])
    twice_value, twice_slope = gradient(name, twice, **oracles.OPTIONS[name])
    close(twice_value, value)
    close(twice_slope, torch.cat([slope, slope]) / 2)


# proxy_gram correlates whole columns over the batch, whichever pairs mining keeps.
@pytest.mark.parametrize("name", [name for name in EVERY if name != "proxy_gram"])
def test_pairs_in_neither_mask_do_not_count(pairs: Any, oracles: Any, name: str) -> None:
    drawn, other = pairs(name, "proxies"), pairs(name, "proxies")
    out = torch.rand(drawn.matrix.shape, generator=torch.Generator().manual_seed(5)) < 0.4
    for one in (drawn, other):
        one.positive, one.negative = one.positive & ~out, one.negative & ~out
    other.matrix = torch.where(out, 1.7 - other.matrix, other.matrix)
    value, slope = gradient(name, drawn, **oracles.OPTIONS[name])
    other_value, other_slope = gradient(name, other, **oracles.OPTIONS[name])
    close(other_value, value)
    close(other_slope, slope)
    assert not slope[out].any()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("without", ["positives", "negatives", "both", "anchors", "references"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_empty_cases(pairs: Any, naive: Any, name: str, without: str, dtype: torch.dtype) -> None:
    drawn = pairs(name, "proxies", dtype=dtype)
    if without in ("positives", "both"):
        drawn.positive = torch.zeros_like(drawn.positive)
    if without in ("negatives", "both"):
        drawn.negative = torch.zeros_like(drawn.negative)
    if without == "anchors":
        drawn.matrix, drawn.positive, drawn.negative = drawn.matrix[:0], drawn.positive[:0], drawn.negative[:0]
    if without == "references":
        drawn.matrix, drawn.positive, drawn.negative = (
            drawn.matrix[:, :0],
            drawn.positive[:, :0],
            drawn.negative[:, :0],
        )
        drawn.supplied = {key: value[:0] if value.ndim == 1 else value[:0, :0] for key, value in drawn.supplied.items()}
    value, slope = gradient(name, drawn)
    close(value, naive(name, drawn), rtol=1e-5, atol=1e-5)
    # The terms of these two among the references stand for themselves, whatever the batch holds.
    if without not in ("positives", "negatives") and name not in ("proxy_gram", "proxy_repulsion"):
        assert value == 0
        assert not slope.any()


@pytest.mark.parametrize("name", [name for name in EVERY if "batch" in TRAITS[name].references])
@pytest.mark.parametrize(
    "labels",
    [[], [7], [3, 3, 3, 3], [0, 1, 2, 3], [2**40, 2**40 + 1, 2**40, -(2**40)]],
    ids=["no item", "one item", "one class", "all singletons", "huge labels"],
)
@pytest.mark.filterwarnings("ignore:All 4 items of a batch are of one class")
def test_odd_batches(name: str, labels: list[int]) -> None:
    embeddings = torch.randn(len(labels), 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    criterion = Criterion(name, references=Batch(), regularisers={})
    loss = criterion(embeddings, torch.tensor(labels, dtype=torch.long))
    loss.backward()
    assert loss.isfinite()
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()
    if len(labels) < 2:
        assert loss == 0
    if 2**40 in labels:
        small = criterion(embeddings, torch.tensor([0, 1, 0, 2]))
        assert loss == small


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(pairs: Any, name: str, kind: str, dtype: torch.dtype) -> None:
    half, wide = pairs(name, kind), pairs(name, kind)
    half.matrix = half.matrix.to(dtype)
    wide.matrix = half.matrix.double()
    half.supplied = {k: v.to(dtype) if v.is_floating_point() else v for k, v in half.supplied.items()}
    wide.supplied = {k: v.double() if v.is_floating_point() else v for k, v in half.supplied.items()}
    value, slope = gradient(name, half)
    expected, expected_slope = gradient(name, wide)
    assert value.dtype == torch.float32
    close(value.double(), expected, rtol=1e-4, atol=1e-4)
    # The gradient is rounded to the type of the matrix on its way out.
    close(slope.double(), expected_slope, rtol=0.02, atol=0.02 * float(expected_slope.abs().max()))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_autocast_changes_nothing(name: str, kind: str) -> None:
    embeddings = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3]).repeat(2)
    references = Batch() if kind == "batch" else Proxies(4, 5, per_class=2)
    criterion = Criterion(name, references=references)
    plain = criterion(embeddings, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = criterion(embeddings, labels)
        low = criterion(embeddings.bfloat16(), labels)
    assert cast.dtype == low.dtype == torch.float32
    assert torch.equal(cast, plain)
    close(low, criterion(embeddings.bfloat16().float(), labels), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_without_gradient_the_value_is_the_same(pairs: Any, name: str, kind: str) -> None:
    drawn = pairs(name, kind)
    value, _ = gradient(name, drawn)
    free = drawn.loss(name)
    assert not free.requires_grad
    close(free, value)
    with torch.no_grad():
        drawn.matrix.requires_grad_()
        close(drawn.loss(name), value)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_huge_scales_do_not_overflow(pairs: Any, name: str, kind: str) -> None:
    sharp = {
        "scale": 1e4,
        "positive_scale": 1e4,
        "negative_scale": 1e4,
        "temperature": 1e-4,
        "centre_temperature": 1e-4,
    }
    options = {option: sharp[option] for option in options_of(OBJECTIVES[name]) if option in sharp}
    gradient(name, pairs(name, kind, dtype=torch.float32), **options)


FITTING = [
    (name, geometry)
    for name in EVERY
    for geometry in GEOMETRIES
    if GEOMETRIES[geometry].similarity == GEOMETRIES[TRAITS[name].geometry].similarity
]


@pytest.mark.parametrize(("name", "geometry"), FITTING)
@pytest.mark.parametrize("normalise", ["sphere", "none"])
def test_zero_vectors_and_duplicates(name: str, geometry: str, normalise: Any) -> None:
    """Two rows of zeros, three equal rows, and references that coincide with anchors."""
    rows = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros(1, 4)
    embeddings = torch.cat([zero, zero, rows[:1], rows[:1], rows[:1], rows[1:]]).requires_grad_()
    labels = torch.tensor([0, 1, 0, 0, 1, 1, 2])
    proxies = Proxies(3, 4)
    proxies.assign(torch.cat([rows[:1], zero, rows[2:]]))
    for references in (Batch(), proxies):
        if references.kind in TRAITS[name].references:
            criterion = Criterion(name, references=references, geometry=geometry, normalise=normalise)
            loss = criterion(embeddings, labels)
            for gradient in torch.autograd.grad(loss, [embeddings, *criterion.parameters()]):
                assert gradient.isfinite().all()
            assert loss.isfinite()


def make_references(kind: str) -> torch.nn.Module:
    if kind == "cover":
        cover = Cover(4, 5, per_class=2)
        cover.choose(torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(3)))
        return cover
    return {"batch": Batch, "proxies": lambda: Proxies(4, 5, per_class=2), "memory": lambda: Memory(12, 5)}[kind]()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", ["batch", "proxies", "memory", "cover"])
def test_every_kind_of_references_runs_or_says_why_not(name: str, kind: str) -> None:
    if kind not in TRAITS[name].references:
        with pytest.raises(InputError) as caught:
            Criterion(name, references=make_references(kind))
        message = str(caught.value)
        assert f"{name} does not run on {kind} references" in message
        assert TRAITS[name].why_not in message
        assert all(runs in message for runs in TRAITS[name].references)
        return
    criterion = Criterion(name, references=make_references(kind))
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):  # a memory shows past batches from the second step on
        embeddings = torch.randn(12, 5, generator=generator).requires_grad_()
        loss = criterion(embeddings, torch.arange(4).repeat(3))
        loss.backward()
        assert loss.isfinite()
        assert embeddings.grad is not None
        assert embeddings.grad.isfinite().all()
        assert embeddings.grad.any()


class Largest(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, Tensor):
                self.elements = max(self.elements, part.untyped_storage().nbytes() // part.element_size())
        return result


def two_classes(n: int) -> tuple[Tensor, Tensor, Tensor]:
    matrix = torch.rand(n, n, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(n) % 2
    same = labels[:, None] == labels
    return matrix, same & ~torch.eye(n, dtype=torch.bool), ~same


@pytest.mark.parametrize("name", EVERY)
def test_memory_is_that_of_the_matrix(name: str) -> None:
    """With two classes of 48 a tensor of all triplets would be 96 times the matrix."""
    n = 96
    matrix, positive, negative = two_classes(n)
    offered = {"reference_labels": torch.arange(2).repeat_interleave(n // 2), "reference_matrix": matrix}
    supplied = {need: offered[need] for need in TRAITS[name].needs}
    with Largest() as seen:
        OBJECTIVES[name](matrix.requires_grad_(), positive, negative, **supplied).backward()
    assert n * n <= seen.elements <= 2 * n * n


@pytest.mark.parametrize("name", sorted(MINERS))
def test_memory_of_miners_is_that_of_the_matrix(name: str) -> None:
    n = 96
    supplied = {"dim": 8} if "dim" in inspect.signature(MINERS[name]).parameters else {}
    matrix, positive, negative = two_classes(n)
    with Largest() as seen:
        MINERS[name](matrix, positive, negative, **supplied)
    assert seen.elements <= 2 * n * n


def test_the_recorder_sees_triplets_and_backward_passes() -> None:
    rows = torch.rand(20, 20, requires_grad=True)
    with Largest() as seen:
        (rows[:, :, None] - rows[:, None, :]).relu().mean()
    assert seen.elements == 20**3
    value = (rows[:, :, None] - rows[:, None, :]).relu().mean()
    with Largest() as seen:
        value.backward()
    assert seen.elements == 20**3


SIMILARITIES = [(name, kind) for name, kind in CASES if GEOMETRIES[TRAITS[name].geometry].similarity]


@pytest.mark.parametrize(("name", "kind"), SIMILARITIES)
def test_weighted_sum_of_pairs_has_the_same_gradient(oracles: Any, name: str, kind: str) -> None:
    """Theorem 3.1: with its pair weights held constant, the sum of weighted pairs moves the embeddings alike."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 1, 0, 2, 3, 1, 0, 2, 1, 0])
    embeddings = torch.randn(10, 4, generator=generator, dtype=torch.float64).requires_grad_()
    proxies = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    references, reference_labels = (
        (embeddings, labels) if kind == "batch" else (proxies, torch.arange(4).repeat_interleave(2))
    )
    compare = GEOMETRIES[TRAITS[name].geometry].compare
    matrix = compare(embeddings, references)
    same = labels[:, None] == reference_labels
    itself = torch.eye(10, dtype=torch.bool) if kind == "batch" else torch.zeros_like(same)
    positive, negative = same & ~itself, ~same
    offered = {"reference_labels": reference_labels, "reference_matrix": compare(proxies, proxies)}
    supplied: dict[str, Any] = {need: offered[need] for need in TRAITS[name].needs} | oracles.OPTIONS[name]
    (expected,) = torch.autograd.grad(OBJECTIVES[name](matrix, positive, negative, **supplied), embeddings)

    weights = pair_weights(OBJECTIVES[name], matrix, positive, negative, symmetric=kind == "batch", **supplied)
    matrix = compare(embeddings, references)
    (found,) = torch.autograd.grad((weights * matrix)[negative].sum() - (weights * matrix)[positive].sum(), embeddings)
    assert expected.abs().max() > 1e-4
    assert (found - expected).abs().max() < 1e-8


@pytest.mark.parametrize("name", EVERY)
def test_a_matrix_or_mask_of_the_wrong_shape_is_refused(pairs: Any, name: str) -> None:
    drawn = pairs(name, "proxies")
    call: Callable[..., Tensor] = OBJECTIVES[name]
    with pytest.raises(InputError, match=r"negative must be a boolean mask of the matrix's shape \[7, 8\].*\[6, 8\]"):
        call(drawn.matrix, drawn.positive, drawn.negative[1:], **drawn.supplied)
    with pytest.raises(InputError, match=r"positive must be a boolean mask .* got torch.float64"):
        call(drawn.matrix, drawn.positive.double(), drawn.negative, **drawn.supplied)
    with pytest.raises(InputError, match="matrix must be a floating-point tensor of shape"):
        call(drawn.matrix.long(), drawn.positive, drawn.negative, **drawn.supplied)


@pytest.mark.parametrize("name", EVERY)
def test_options_out_of_range_are_refused(pairs: Any, name: str) -> None:
    drawn = pairs(name, "proxies")
    for option in options_of(OBJECTIVES[name]):
        if "margin" in option:
            with pytest.raises(InputError, match=rf"{name}: {option} must be at least 0; got -0.5"):
                drawn.loss(name, **{option: -0.5})
        if option.endswith(("scale", "temperature", "bins", "largest")):
            with pytest.raises(InputError, match=rf"{name}: {option} must be above 0; got 0"):
                drawn.loss(name, **{option: 0})
