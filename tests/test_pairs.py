"""Geometries, masks, normalisation and the checks of input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vicinal.errors import InputError, NotFinite
from vicinal.pairs import (
    GEOMETRIES,
    check_embeddings,
    check_finite,
    check_pairs,
    cosine,
    cosine_distance,
    dot,
    euclidean,
    masks,
    squared_euclidean,
    to_ball,
    to_sphere,
    widen,
)


def points(n: int, d: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


NAIVE = {
    "dot": lambda a, b: a @ b,
    "cosine": lambda a, b: a @ b / (a.norm() * b.norm()),
    "cosine_distance": lambda a, b: 1 - a @ b / (a.norm() * b.norm()),
    "euclidean": lambda a, b: (a - b).norm(),
    "squared_euclidean": lambda a, b: (a - b).square().sum(),
}


@pytest.mark.parametrize("name", sorted(GEOMETRIES))
@pytest.mark.parametrize("same", [False, True])
def test_geometries_pair_by_pair(name: str, same: bool) -> None:
    anchors = points(5)
    references = anchors if same else points(7, seed=1)
    expected = torch.stack([torch.stack([NAIVE[name](a, b) for b in references]) for a in anchors])
    found = GEOMETRIES[name].compare(anchors, references)
    # Distances come from the expanded square, which cancels: near zero only half of the digits are left.
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-7 if name == "euclidean" and same else 1e-12)


@pytest.mark.parametrize("name", sorted(GEOMETRIES))
@pytest.mark.parametrize("same", [False, True])
def test_gradients_of_geometries(name: str, same: bool) -> None:
    """The batch with itself has a backward pass of its own; its diagonal, where distance has no slope, is left out."""
    compare, other = GEOMETRIES[name].compare, points(3, seed=1).requires_grad_()
    off = ~torch.eye(4, dtype=torch.bool)

    def alone(x: Tensor) -> Tensor:
        return compare(x, x)[off]

    if same:
        assert torch.autograd.gradcheck(alone, points(4).requires_grad_())
        assert torch.autograd.gradgradcheck(alone, points(4).requires_grad_())
    else:
        assert torch.autograd.gradcheck(compare, (points(4).requires_grad_(), other))


@pytest.mark.parametrize("name", sorted(GEOMETRIES))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(name: str, dtype: torch.dtype) -> None:
    anchors, references = points(4).to(dtype), points(3, seed=1).to(dtype)
    found = GEOMETRIES[name].compare(anchors, references)
    assert found.dtype == torch.float32
    expected = GEOMETRIES[name].compare(anchors.double(), references.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(GEOMETRIES))
def test_empty_sides(name: str) -> None:
    compare = GEOMETRIES[name].compare
    assert compare(points(0), points(3)).shape == (0, 3)
    assert compare(points(3), points(0)).shape == (3, 0)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    exponent=st.integers(-45, 18),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    name=st.sampled_from(sorted(GEOMETRIES)),
)
def test_gradients_are_finite_at_any_size(seed: int, exponent: int, dtype: torch.dtype, name: str) -> None:
    """From lengths that vanish to lengths whose squares just fit into float32, with a zero row and a repeated one."""
    vectors = (points(3, seed=seed) * 10.0**exponent).to(dtype)
    vectors = torch.cat([vectors, vectors[:1], torch.zeros(1, 4, dtype=dtype)]).requires_grad_()
    found = GEOMETRIES[name].compare(vectors, vectors)
    assert found.isfinite().all()
    (gradient,) = torch.autograd.grad(found.sum(), vectors)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distance_of_an_item_to_its_copy_moves_nothing(dtype: torch.dtype) -> None:
    vectors = torch.tensor([[3.0, 4.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    distances = euclidean(vectors, vectors)
    assert (distances < 1e-9).all()
    distances.sum().backward()
    assert not vectors.grad.any()
    assert (squared_euclidean(vectors, vectors) >= 0).all()


def test_cosine_is_half_a_squared_distance_on_the_sphere() -> None:
    anchors, references = to_sphere(points(5)), to_sphere(points(6, seed=1))
    torch.testing.assert_close(2 * cosine_distance(anchors, references), squared_euclidean(anchors, references))
    torch.testing.assert_close(cosine(anchors, references), dot(anchors, references))


def test_to_sphere() -> None:
    vectors = torch.cat([points(4), torch.zeros(1, 4, dtype=torch.float64)]).requires_grad_()
    units = to_sphere(vectors)
    torch.testing.assert_close(units.norm(dim=1), torch.tensor([1.0, 1, 1, 1, 0], dtype=torch.float64))
    units.sum().backward()
    assert not vectors.grad[4].any()
    assert torch.autograd.gradcheck(to_sphere, points(3).requires_grad_())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), scale=st.floats(0.05, 20))
def test_to_ball_is_a_projection_that_never_stretches(seed: int, scale: float) -> None:
    a, b = scale * points(8, seed=seed), scale * points(8, seed=seed + 1)
    inside = to_ball(a)
    assert (inside.norm(dim=1) <= 1 + 1e-12).all()
    torch.testing.assert_close(to_ball(inside), inside)
    kept = a.norm(dim=1) <= 1
    assert torch.equal(inside[kept], a[kept])
    assert ((inside - to_ball(b)).norm(dim=1) <= (a - b).norm(dim=1) * (1 + 1e-12)).all()


def test_to_ball_gradient_outside() -> None:
    """Outside the ball the derivative is (I - u u^T) / length."""
    vector = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    unit = vector[0] / 5
    found = torch.autograd.functional.jacobian(to_ball, vector)[0, :, 0]
    torch.testing.assert_close(found, (torch.eye(2, dtype=torch.float64) - torch.outer(unit, unit)) / 5)


@settings(max_examples=40, deadline=None)
@given(
    a=st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 2), max_size=6),
    b=st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 2), max_size=6),
    seed=st.integers(0, 2**32),
)
def test_masks(a: list[int], b: list[int], seed: int) -> None:
    itself = torch.rand(len(a), len(b), generator=torch.Generator().manual_seed(seed)) < 0.3
    labels, others = torch.tensor(a, dtype=torch.long), torch.tensor(b, dtype=torch.long)
    for given_itself in (None, itself):
        positive, negative = masks(labels, others, given_itself)
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                out = given_itself is not None and bool(itself[i, j])
                assert bool(positive[i, j]) == (x == y and not out)
                assert bool(negative[i, j]) == (x != y and not out)


def test_widen() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        assert widen(torch.zeros(1, dtype=dtype)).dtype == torch.float32
    for dtype in (torch.float32, torch.float64, torch.int64):
        tensor = torch.zeros(1, dtype=dtype)
        assert widen(tensor) is tensor


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(3), torch.zeros(3, dtype=torch.bool), torch.zeros(3, dtype=torch.bool)), "matrix must be"),
        ((torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1) > 0, torch.ones(1, 1) > 0), r"got torch\.int64"),
        ((torch.zeros(1, 2), torch.ones(2, 1) > 0, torch.ones(1, 2) > 0), r"positive must be .*\[1, 2\].*\[2, 1\]"),
        ((torch.zeros(1, 2), torch.ones(1, 2) > 0, torch.ones(1, 2)), r"negative must be .*got torch\.float32"),
    ],
)
def test_bad_pairs(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_pairs(*arguments)


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.zeros(3), torch.zeros(3).long(), r"embeddings must be a floating-point tensor .* of shape \[3\]"),
        (torch.zeros(3, 2).long(), torch.zeros(3).long(), r"got torch\.int64"),
        (torch.zeros(3, 2), torch.zeros(3, 1).long(), r"labels must be a 1-D tensor of integers.*\[3, 1\]"),
        (torch.zeros(3, 2), torch.zeros(3), r"labels must be .* got torch\.float32.*np\.unique"),
        (torch.zeros(3, 2), torch.zeros(4).long(), "3 embeddings but 4 labels"),
    ],
)
def test_bad_embeddings_and_labels(embeddings: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_embeddings(embeddings, labels)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_not_finite_embeddings_name_their_rows(bad: float, dtype: torch.dtype) -> None:
    embeddings = points(6).to(dtype)
    embeddings[4, 1], embeddings[2, 0] = bad, -bad
    with pytest.raises(NotFinite, match=r"2 of 6 embeddings hold NaN or infinity \(first rows: \[2, 4\]\)"):
        check_finite(embeddings)


def test_large_finite_embeddings_pass() -> None:
    check_finite(torch.full((4, 3), 65504.0, dtype=torch.float16))
    check_finite(torch.full((4, 3), 3e38))
    check_finite(torch.full((4, 3), 1e308, dtype=torch.float64))


def test_ids_of_the_wrong_length() -> None:
    with pytest.raises(InputError, match=r"ids must name one item per label; got shape \[2\] for 3 labels"):
        check_embeddings(torch.zeros(3, 2), torch.arange(3), torch.arange(2))
