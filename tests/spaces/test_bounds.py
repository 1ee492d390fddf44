"""Lemmas 3 and 4 and the certificate, by hand, by property and on trained models."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InputError
from vicinal.spaces import LabelMetric, bounds, evaluate_by

METRIC = LabelMetric(k=0.5, p=0.75)


def sharp(n: int, classes: int, sharpness: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Soft-max outputs that favour their label."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    logits = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return (logits + sharpness * torch.eye(classes, dtype=torch.float64)[labels]).softmax(1), labels


@pytest.mark.unit
def test_by_hand() -> None:
    x = torch.tensor([[0.9, 0.1], [1.0, 0.0], [0.2, 0.8]], dtype=torch.float64)
    found = bounds(METRIC, x, torch.tensor([0, 0, 1]))

    def apart(u: float) -> float:
        return -2 * math.log(1 - 0.5 * u**0.75)

    assert found.to_label.tolist() == pytest.approx([apart(0.1), 0.0, apart(0.2)])
    assert found.epsilon == pytest.approx(apart(0.2))
    assert found.intra_bound == pytest.approx(2 * apart(0.2))
    assert found.inter_bound == pytest.approx(apart(1.0) - 2 * apart(0.2))
    assert found.largest_intra == pytest.approx(apart(0.1))
    assert found.smallest_inter == pytest.approx(apart(0.7))
    assert found.holds == (4 * apart(0.2) < apart(1.0))
    far = [4 * apart(u) >= apart(1.0) for u in (0.1, 0.0, 0.2)]
    assert found.left_out == (sum(far), len({label for label, out in zip([0, 0, 1], far, strict=True) if out}))
    limits = [2 * apart(0.1) + apart(0.1) + apart(0.2), apart(0.1) + apart(0.2), 3 * apart(0.2) + apart(0.1)]
    assert found.certified.tolist() == [limit < apart(1.0) for limit in limits]


@pytest.mark.unit
@settings(max_examples=40, deadline=None)
@given(st.floats(0, 12), st.integers(2, 6), st.integers(0, 10**6))
def test_lemmas_and_certificate_hold_on_any_soft_max_outputs(sharpness: float, classes: int, seed: int) -> None:
    x, labels = sharp(40, classes, sharpness, seed)
    found = bounds(METRIC, x, labels)
    assert found.largest_intra <= found.intra_bound + 1e-12
    assert found.inter_bound is not None
    assert found.smallest_inter >= found.inter_bound - 1e-12
    try:
        scores = evaluate_by(METRIC, x, labels, confidence=None)
    except InputError:  # no class has two items
        return
    ranked = scores.per_query["MAP@R"]
    scored = np.isfinite(ranked)
    assert (ranked[scored & found.certified.numpy()] == 1).all()
    if found.holds:
        assert found.certified.all()
        assert scores["P@1"] == scores["MAP@R"] == 1


@pytest.mark.recipe
@pytest.mark.parametrize("data", ["on_digits", "on_glyphs"])
def test_lemmas_hold_for_every_pair_of_a_trained_model(data: str, request: pytest.FixtureRequest) -> None:
    trained = request.getfixturevalue(data)
    assert trained.metric.is_metric
    x, labels, metric = trained.probabilities.double(), trained.labels, trained.metric
    found = bounds(metric, x, labels, compare=len(x))
    assert found.compared == len(x)
    to_label = found.to_label
    right = (x.argmax(1) == labels).double().mean()
    assert right > 0.5, "the model must have learned something"
    for at in torch.arange(len(x))[:: max(1, len(x) // 200)]:
        row = metric(x[at, None], x)[0]
        same = labels == labels[at]
        assert (row[same] <= to_label[at] + to_label[same] + 1e-12).all()
        assert (row[~same] >= metric.between_labels - to_label[at] - to_label[~same] - 1e-12).all()
    assert found.largest_intra <= found.intra_bound
    assert found.smallest_inter >= found.inter_bound


@pytest.mark.recipe
def test_the_certificate_is_confirmed_by_the_evaluator_once_far_items_are_left_out(on_digits) -> None:  # type: ignore[no-untyped-def]
    whole = bounds(on_digits.metric, on_digits.probabilities, on_digits.labels)
    items, classes = whole.left_out
    near = 4 * whole.to_label < on_digits.metric.between_labels
    assert int((~near).sum()) == items
    assert len(on_digits.labels[~near].unique()) == classes
    kept, labels = on_digits.probabilities[near], on_digits.labels[near]
    assert len(labels) > 100
    found = bounds(on_digits.metric, kept, labels)
    assert found.holds
    assert found.left_out == (0, 0)
    assert found.certified.all()
    scores = evaluate_by(on_digits.metric, kept, labels, confidence=None)
    assert scores["P@1"] == scores["MAP@R"] == 1
    assert "holds: P@1 = MAP@R = 1" in str(found)
    assert whole.holds == (items == 0)


@pytest.mark.unit
def test_a_weak_metric_bounds_the_inside_of_classes_only() -> None:
    x, labels = sharp(60, 3, 4.0)
    found = bounds(LabelMetric(k=1.0, p=1.0), x, labels)
    assert found.largest_intra <= found.intra_bound
    assert found.inter_bound is None
    assert not found.holds
    assert found.left_out is None
    assert not found.certified.any()
    assert "nothing proved" in str(found)
    assert "needs a metric" in str(found)


@pytest.mark.unit
def test_fewer_items_are_compared_than_bounded() -> None:
    x, labels = sharp(300, 3, 3.0)
    whole, part = bounds(METRIC, x, labels), bounds(METRIC, x, labels, compare=50)
    assert part.compared == 50
    assert part.epsilon == whole.epsilon
    assert part.largest_intra <= whole.largest_intra
    assert part.smallest_inter >= whole.smallest_inter


@pytest.mark.unit
def test_bad_input() -> None:
    with pytest.raises(InputError, match="do not sum to 1"):
        bounds(METRIC, [[0.5, 0.1]], torch.tensor([0]))
    with pytest.raises(InputError, match=r"Labels must be 0\.\.1"):
        bounds(METRIC, [[0.5, 0.5]], torch.tensor([2]))
    with pytest.raises(InputError, match="1 rows of probabilities but 2 labels"):
        bounds(METRIC, [[0.5, 0.5]], torch.tensor([0, 1]))
