"""Pooling and normalisation: hand cases, properties, gradients."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vicinal.embedder import Head, normalise, pool
from vicinal.errors import InputError, UnknownName

pytestmark = pytest.mark.unit

vectors = arrays("float64", (2, 3), elements=st.floats(-100, 100))


def test_pooling_by_hand():
    maps = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[-4.0, -2.0], [-1.0, -1.0]]]])
    assert pool(maps, "average").tolist() == [[3.0, -2.0]]
    assert pool(maps, "max").tolist() == [[6.0, -1.0]]
    assert pool(maps, "both").tolist() == [[9.0, -3.0]]


def test_vectors_are_not_pooled():
    features = torch.randn(4, 3)
    assert pool(features, "both") is features


@settings(deadline=None)
@given(vectors)
def test_the_ball_holds_every_vector_and_moves_no_two_apart(pair):
    before = torch.from_numpy(pair)
    after = normalise(before, "ball")
    assert (torch.linalg.vector_norm(after, dim=1) <= 1 + 1e-12).all()
    apart = torch.linalg.vector_norm(before[0] - before[1])
    assert torch.linalg.vector_norm(after[0] - after[1]) <= apart + 1e-12


@settings(deadline=None)
@given(vectors)
def test_the_sphere_holds_every_vector_that_has_a_direction(pair):
    before = torch.from_numpy(pair)
    lengths = torch.linalg.vector_norm(normalise(before, "sphere"), dim=1)
    has_direction = torch.linalg.vector_norm(before, dim=1) > 1e-12
    torch.testing.assert_close(lengths[has_direction], torch.ones_like(lengths[has_direction]))


def test_the_ball_leaves_what_is_inside():
    inside = torch.tensor([[0.3, 0.4], [0.0, 0.0], [1.0, 0.0]])
    assert torch.equal(normalise(inside, "ball"), inside)


@pytest.mark.parametrize("normalisation", ["ball", "sphere"])
def test_the_gradient_outside_is_the_tangential_part_over_the_length(normalisation):
    vector = torch.tensor([[3.0, 0.0, 4.0]], dtype=torch.float64, requires_grad=True)
    jacobian = torch.autograd.functional.jacobian(lambda v: normalise(v, normalisation), vector)[0, :, 0, :]
    unit = (vector / 5).detach()
    torch.testing.assert_close(jacobian, (torch.eye(3, dtype=torch.float64) - unit.T @ unit) / 5)


def test_the_gradient_inside_the_ball_is_the_identity():
    vector = torch.tensor([[0.1, 0.2]], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda v: normalise(v, "ball"), vector)[0, :, 0, :]
    assert torch.equal(jacobian, torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize("normalisation", ["ball", "sphere", "none"])
def test_a_zero_vector_stays_and_its_gradient_is_finite(normalisation):
    vector = torch.zeros(1, 3, requires_grad=True)
    embedding = normalise(vector, normalisation)
    embedding.backward(torch.tensor([[1.0, 2.0, 3.0]]))
    assert embedding.tolist() == [[0.0, 0.0, 0.0]]
    # On the sphere it has no direction to be moved in; elsewhere it is a point like any other.
    assert vector.grad.tolist() == [[0.0, 0.0, 0.0] if normalisation == "sphere" else [1.0, 2.0, 3.0]]


@pytest.mark.parametrize("normalisation", ["ball", "sphere", "softmax", "none"])
def test_half_precision_comes_back_as_float32_and_doubles_as_doubles(normalisation):
    assert normalise(torch.ones(1, 2, dtype=torch.bfloat16), normalisation).dtype == torch.float32
    assert normalise(torch.ones(1, 2, dtype=torch.float64), normalisation).dtype == torch.float64


def test_the_softmax_makes_probabilities_of_any_logits():
    rows = normalise(torch.tensor([[0.0, math.log(3.0)], [1e4, 0.0]]), "softmax")
    torch.testing.assert_close(rows, torch.tensor([[0.25, 0.75], [1.0, 0.0]]))


@pytest.mark.parametrize("normalisation", ["ball", "sphere", "softmax", "none"])
def test_no_vectors_give_no_embeddings(normalisation):
    assert normalise(torch.empty(0, 3), normalisation).shape == (0, 3)


def test_a_head_is_pool_map_normalise():
    torch.manual_seed(0)
    head = Head(3, 2, pooling="both", normalisation="sphere")
    maps = torch.randn(5, 3, 2, 2)
    mapped = (maps.mean((2, 3)) + maps.amax((2, 3))) @ head.linear.weight.T + head.linear.bias
    torch.testing.assert_close(head(maps), torch.nn.functional.normalize(mapped))
    torch.testing.assert_close(head(pool(maps, "both")), head(maps))


def test_without_a_dim_there_is_no_linear_map():
    head = Head(3, None, normalisation="none")
    features = torch.randn(2, 3)
    assert head.dim == 3
    assert list(head.parameters()) == []
    assert torch.equal(head(features), features)


def test_kaiming_draws_by_fan_out_with_zero_bias():
    torch.manual_seed(0)
    head = Head(400, 200, kaiming=True)
    assert head.linear.weight.std().item() == pytest.approx((2 / 200) ** 0.5, rel=0.02)
    assert not head.linear.bias.any()
    assert Head(4, 2, bias=False, kaiming=True).linear.bias is None


def test_a_dim_below_one_is_refused():
    with pytest.raises(InputError, match="dim must be at least 1, or None for no linear map; got 0"):
        Head(3, 0)


def test_unknown_names_are_refused():
    # Without the run-time checks of annotations that the tests add: users do not have those.
    construct = inspect.unwrap(Head.__init__)
    with pytest.raises(UnknownName, match="Unknown pooling 'mean'"):
        construct(Head.__new__(Head), 3, 2, pooling="mean")
    with pytest.raises(UnknownName, match="Unknown normalisation 'spere'; did you mean 'sphere'"):
        construct(Head.__new__(Head), 3, 2, normalisation="spere")
