"""The distance that the label losses measure."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.criterion import Criterion
from vicinal.errors import InputError, UnknownName
from vicinal.objectives.label_gap import CONCAVE
from vicinal.spaces import LabelMetric, label_metric_of, p_max

pytestmark = pytest.mark.unit

FORMS = [
    LabelMetric(),
    LabelMetric(k=0.9, p=0.3, transform="root"),
    LabelMetric(k=0.25, p=2.0, smoothing=0.01, transform="logarithm"),
    LabelMetric(k=1.0, p=1.0),
    LabelMetric(k=1.0, p=1.0, transform="saturating"),
]


def probabilities(n: int, classes: int, seed: int = 0, sharpness: float = 2.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (sharpness * torch.randn(n, classes, generator=generator, dtype=torch.float64)).softmax(1)


@pytest.mark.parametrize("metric", FORMS)
def test_equals_a_naive_loop(metric: LabelMetric) -> None:
    concave = {
        "identity": lambda t: t,
        "root": lambda t: math.sqrt(t + 1e-4) - 0.01,
        "logarithm": lambda t: math.log(1 + t),
        "saturating": lambda t: 1 - math.exp(-t),
    }[metric.transform]
    s = metric.smoothing
    for x in probabilities(4, 3).tolist():
        for y in probabilities(3, 3, seed=1).tolist():
            total = 0.0
            for one, other in zip(x, y, strict=True):
                power = ((abs(one - other) + s) ** metric.p - s**metric.p) / ((1 + s) ** metric.p - s**metric.p)
                total -= math.log(1 - metric.k * power)
            found = metric(torch.tensor([x], dtype=torch.float64), torch.tensor([y], dtype=torch.float64))
            assert found.item() == pytest.approx(concave(total), rel=1e-12)


@pytest.mark.parametrize("metric", FORMS)
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_two_labels_are_exactly_f_of_2m_apart(metric: LabelMetric, classes: int) -> None:
    labels = torch.eye(classes, dtype=torch.float64)
    matrix = metric(labels, labels)
    assert (matrix.diagonal() == 0).all()
    apart = matrix[~torch.eye(classes, dtype=torch.bool)]
    assert apart.unique().tolist() == pytest.approx([metric.between_labels], rel=1e-15)


def test_labels_of_the_plain_form_are_minus_two_log_one_minus_k_apart() -> None:
    assert LabelMetric(k=0.5, p=0.3).between_labels == 2 * math.log(2)
    assert LabelMetric(k=1.0, p=1.0).between_labels == math.inf
    assert LabelMetric(k=1.0, p=1.0, transform="saturating").between_labels == 1.0


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("metric_cross_entropy", {}),
        ("metric_cross_entropy", {"k": 0.9, "p": 0.2, "smoothing": 0.1, "transform": "root"}),
        ("weak_metric_cross_entropy", {}),
        ("weak_metric_cross_entropy", {"transform": "logarithm"}),
    ],
)
def test_the_loss_is_the_mean_distance_to_the_label(loss: str, options: dict[str, object]) -> None:
    x, labels = probabilities(7, 4), torch.tensor([0, 1, 2, 3, 0, 0, 1])
    metric = label_metric_of(loss, options)
    to_labels = metric(x, torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(metric.to_label(x, labels), to_labels[torch.arange(7), labels])
    torch.testing.assert_close(Criterion(loss, classes=4, **options)(x, labels), metric.to_label(x, labels).mean())


@pytest.mark.parametrize("p", [0.3, 0.75, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("k", [0.2, 0.9, 1.0])
def test_no_way_through_a_label_is_shorter(k: float, p: float) -> None:
    """A million triples x, label, z for every p: a weak-metric, metric or not."""
    metric = LabelMetric(k=k, p=p)
    x = torch.cat([probabilities(300, 4, seed, sharpness) for seed, sharpness in ((0, 0.5), (1, 8.0))])[:500]
    matrix, to_labels = metric(x, x), metric(x, torch.eye(4, dtype=torch.float64))
    for label in range(4):
        through = to_labels[:, None, label] + to_labels[None, :, label]
        assert (through - matrix >= -1e-12).all()


@settings(max_examples=50, deadline=None)
@given(
    st.floats(0.05, 0.95),
    st.floats(0.1, 0.999),
    st.sampled_from([0.0, 1e-3, 0.05]),
    st.sampled_from(sorted(CONCAVE)),
    st.integers(0, 10**6),
)
def test_inside_the_region_it_is_a_metric_whatever_f_is(
    k: float, share: float, smoothing: float, transform: str, seed: int
) -> None:
    limit = p_max(k, smoothing)
    if limit == 0:
        return
    metric = LabelMetric(k=k, p=share * limit, smoothing=smoothing, transform=transform)
    assert metric.is_metric
    x = torch.cat([probabilities(12, 3, seed), torch.eye(3, dtype=torch.float64)])
    matrix = metric(x, x)
    torch.testing.assert_close(matrix, matrix.T)
    assert (matrix[:, :, None] + matrix[None] - matrix[:, None] >= -1e-12).all()


def test_what_the_closed_form_decides() -> None:
    assert LabelMetric(k=0.5, p=p_max(0.5)).is_metric is True
    assert LabelMetric(k=0.5, p=0.7716).is_metric is False  # the limit, .77155, rounds to it
    assert LabelMetric(k=0.5, p=0.9, transform="root").is_metric is None
    assert LabelMetric(k=1.0, p=1.0).is_metric is False


def test_rounding_of_float32_soft_max_outputs_is_no_nan() -> None:
    x = torch.tensor([[1.0000001, 0.0], [0.0, 1.0]])
    assert LabelMetric(k=1.0, p=1.0)(x, x).isnan().sum() == 0


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match=r"A label gap needs 0 < k <= 1, p above 0.*got k=1\.5"):
        LabelMetric(k=1.5)
    with pytest.raises(UnknownName, match="Unknown transform 'identty'; did you mean 'identity'"):
        LabelMetric(transform="identty")
    with pytest.raises(InputError, match="triplet is not a distance of class probabilities"):
        label_metric_of("triplet")
    with pytest.raises(UnknownName, match="Unknown option of weak_metric_cross_entropy 'k'"):
        label_metric_of("weak_metric_cross_entropy", {"k": 0.5})
