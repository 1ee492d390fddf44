"""The three losses on class probabilities: cross-entropy, its weak-metric and its metric."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vicinal.criterion import Criterion
from vicinal.errors import InputError, UnknownName
from vicinal.objectives import cross_entropy, metric_cross_entropy, weak_metric_cross_entropy
from vicinal.objectives.label_gap import CONCAVE, label_gap, power_of_gap

LOSSES = ("cross_entropy", "metric_cross_entropy", "weak_metric_cross_entropy")


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def labels() -> Tensor:
    return torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 3])


def test_by_hand() -> None:
    x, own = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64), torch.tensor([[True, False, False]])
    assert cross_entropy(x, own, ~own).item() == pytest.approx(math.log(2))
    weak = -math.log(0.5) - math.log(0.7) - math.log(0.8)
    assert weak_metric_cross_entropy(x, own, ~own).item() == pytest.approx(weak)
    power = [((u + 0.01) ** 0.5 - 0.1) / (1.01**0.5 - 0.1) for u in (0.5, 0.3, 0.2)]
    metric = -sum(math.log(1 - 0.6 * g) for g in power)
    found = metric_cross_entropy(x, own, ~own, k=0.6, p=0.5, smoothing=0.01)
    assert found.item() == pytest.approx(metric)
    rooted = metric_cross_entropy(x, own, ~own, k=0.6, p=0.5, smoothing=0.01, transform="logarithm")
    assert rooted.item() == pytest.approx(math.log(1 + metric))


def test_cross_entropy_is_torch_s_on_the_logits(logits: Tensor, labels: Tensor) -> None:
    logits.requires_grad_()
    ours = Criterion("cross_entropy", classes=4)(logits.softmax(1), labels)
    theirs = F.cross_entropy(logits, labels)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits))


def test_the_weak_metric_is_cross_entropy_and_the_other_classes(logits: Tensor, labels: Tensor) -> None:
    x = logits.softmax(1)
    others = torch.log(1 - x).masked_fill(F.one_hot(labels, 4).bool(), 0.0).sum(1).mean()
    found = Criterion("weak_metric_cross_entropy", classes=4)(x, labels)
    torch.testing.assert_close(found, F.cross_entropy(logits, labels) - others)


def test_the_metric_with_k_and_p_near_one_is_the_weak_metric(logits: Tensor, labels: Tensor) -> None:
    x = logits.softmax(1)
    near = Criterion("metric_cross_entropy", classes=4, k=1 - 1e-12, p=1.0, smoothing=1e-12)(x, labels)
    torch.testing.assert_close(near, Criterion("weak_metric_cross_entropy", classes=4)(x, labels))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certain_and_certainly_wrong_items_have_finite_gradients(name: str, dtype: torch.dtype) -> None:
    logits = torch.tensor([[900.0, 0.0, 0.0], [0.0, 900.0, 0.0], [0.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    for transform in CONCAVE if name != "cross_entropy" else [None]:
        options = {"transform": transform} if transform else {}
        loss = Criterion(name, classes=3, **options)(logits.softmax(1), torch.tensor([0, 0, 2]))
        (slope,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite()
        assert slope.isfinite().all()
        assert slope.any()


@pytest.mark.parametrize("smoothing", [0.0, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("p", [0.1, 0.75, 1.0, 3.0])
def test_the_smoothed_power_goes_from_0_to_1_and_rises(p: float, smoothing: float) -> None:
    u = torch.linspace(0, 1, 1001, dtype=torch.float64)
    g = power_of_gap(u, p, smoothing)
    assert g[0] == 0
    assert g[-1].item() == pytest.approx(1.0, abs=1e-15)
    assert (g.diff() > 0).all()


def test_smoothing_vanishes_and_bounds_the_slope() -> None:
    u = torch.linspace(0, 1, 11, dtype=torch.float64)
    torch.testing.assert_close(power_of_gap(u, 0.5, 1e-14), u**0.5, atol=1e-6, rtol=0)
    zero = torch.zeros(1, requires_grad=True)
    (slope,) = torch.autograd.grad(label_gap(zero, k=0.5, p=0.5, smoothing=1e-4).sum(), zero)
    assert slope.item() == pytest.approx(0.5 * 0.5 * 100 / (1.0001**0.5 - 0.01), rel=1e-4)


@pytest.mark.parametrize("name", sorted(CONCAVE))
def test_transforms_are_zero_at_zero_increasing_and_concave(name: str) -> None:
    t = torch.linspace(0, 5, 501, dtype=torch.float64)
    values = CONCAVE[name](t)
    assert values[0] == 0
    assert (values.diff() > 0).all()
    assert (values.diff().diff() < 1e-12).all()


def test_bad_options_are_explained(logits: Tensor, labels: Tensor) -> None:
    with pytest.raises(InputError, match=r"metric_cross_entropy: k must be above 0 and below 1; got 1.0"):
        Criterion("metric_cross_entropy", classes=4, k=1.0)
    with pytest.raises(InputError, match=r"metric_cross_entropy: p must be above 0; got -1"):
        Criterion("metric_cross_entropy", classes=4, p=-1)
    with pytest.raises(InputError, match=r"metric_cross_entropy: smoothing must be above 0; got 0"):
        Criterion("metric_cross_entropy", classes=4, smoothing=0)
    with pytest.raises(UnknownName, match="Unknown transform 'rot'; did you mean 'root'"):
        Criterion("metric_cross_entropy", classes=4, transform="rot")(logits.softmax(1), labels)
    with pytest.raises(InputError, match="A label gap needs 0 < k <= 1"):
        label_gap(torch.zeros(1), k=1.0, p=1.0, smoothing=0.1)
    with pytest.raises(InputError, match=r"cross_entropy compares items with one_hot: pass classes="):
        Criterion("cross_entropy")
