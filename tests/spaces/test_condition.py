"""The closed form of the metric region, against grids."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InputError
from vicinal.objectives.label_gap import label_gap
from vicinal.spaces import LabelMetric, k_max, max_classes, options_for, p_max

pytestmark = pytest.mark.unit

TABLE = {0.05: 0.9816, 0.1: 0.9625, 0.25: 0.9000, 0.5: 0.7716, 0.75: 0.5850, 0.9: 0.3964, 0.99: 0.1375}


def least_slack(k: float, p: float, smoothing: float, points: int = 300) -> float:
    """The smallest f(u) + f(v) - f(u + v) on a grid of u + v <= 1 that holds the halves."""
    u = torch.linspace(0, 1, points + 1, dtype=torch.float64)
    total = u[:, None] + u[None]
    f = label_gap(u, k=k, p=p, smoothing=smoothing)
    slack = f[:, None] + f[None] - label_gap(total.clamp(max=1.0), k=k, p=p, smoothing=smoothing)
    return float(slack[total <= 1 + 1e-12].min())


@pytest.mark.parametrize(("k", "limit"), TABLE.items())
def test_the_published_table(k: float, limit: float) -> None:
    assert round(p_max(k), 4) == limit
    assert k_max(p_max(k)) == pytest.approx(k)


def test_both_forms_of_the_condition() -> None:
    for p in (0.1, 0.5, 0.9):
        assert k_max(p) == pytest.approx(2 ** (p + 1) - 2 ** (2 * p))
        assert p_max(k_max(p)) == pytest.approx(p)
    assert k_max(1.0) == k_max(2.0) == 0.0
    assert p_max(1.0) == 0.0


@settings(max_examples=60, deadline=None)
@given(st.floats(0.02, 0.98), st.sampled_from([0.0, 1e-6, 1e-3, 0.03, 0.3]))
def test_the_grid_flips_where_the_closed_form_says(k: float, smoothing: float) -> None:
    """The triangle test run again on the smoothed form: it fails just above the limit, and not just below."""
    limit = p_max(k, smoothing)
    if limit > 0.01:
        assert least_slack(k, limit * (1 - 1e-6), smoothing) >= -1e-12
        assert least_slack(k, limit * 1.001, smoothing) < -1e-9
    else:
        assert least_slack(k, 0.02, smoothing) < 0


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.floats(0, 0.2))
def test_the_halves_of_the_whole_are_the_worst_point(k: float, p: float, smoothing: float) -> None:
    half, one = label_gap(torch.tensor([0.5, 1.0], dtype=torch.float64), k=k, p=p, smoothing=smoothing)
    assert least_slack(k, p, smoothing) == pytest.approx(min(0.0, float(2 * half - one)), abs=1e-12)


def test_smoothing_shrinks_the_region_and_may_empty_it() -> None:
    limits = [p_max(0.5, smoothing) for smoothing in (0.0, 1e-6, 1e-3, 1e-2)]
    assert limits == sorted(limits, reverse=True)
    assert p_max(0.5, 1e-12) == pytest.approx(p_max(0.5), abs=1e-6)
    assert p_max(0.995, 1e-3) == 0.0
    assert k_max(1e-9, 1e-3) == pytest.approx(0.9876, abs=1e-4)


@pytest.mark.parametrize("bad", [0.0, -1.0, 1.5, math.nan])
def test_k_out_of_range(bad: float) -> None:
    with pytest.raises(InputError, match="k must be above 0 and at most 1"):
        p_max(bad)


def test_p_and_smoothing_out_of_range() -> None:
    with pytest.raises(InputError, match=r"p must be above 0; got 0\.0"):
        k_max(0.0)
    with pytest.raises(InputError, match=r"smoothing must be at least 0; got -1\.0"):
        p_max(0.5, -1.0)


@pytest.mark.parametrize(
    ("k", "p", "smoothing"), [(0.5, 0.75, 0.0), (0.5, 0.75, 1e-3), (0.9, 0.38, 1e-4), (0.1, 0.9, 0.0)]
)
def test_doubt_is_nearer_to_the_label_than_a_sure_mistake_up_to_so_many_classes(
    k: float, p: float, smoothing: float
) -> None:
    metric, most = LabelMetric(k=k, p=p, smoothing=smoothing, transform="root"), max_classes(k, p, smoothing)
    for classes in range(2, 40):
        doubt = metric.to_label(torch.full((1, classes), 1 / classes, dtype=torch.float64), torch.tensor([0]))
        assert (float(doubt) <= metric.between_labels) == (classes <= most)


def test_a_weak_metric_takes_any_number_of_classes() -> None:
    assert max_classes(0.9, 1.0) == max_classes(1.0, 1.0) == math.inf


@pytest.mark.parametrize("classes", [2, 9, 10, 100, 11_318])
def test_options_for_a_number_of_classes_are_a_metric_and_take_them(classes: int) -> None:
    options = options_for(classes)
    assert LabelMetric(**options).is_metric
    assert max_classes(**options) >= classes
    assert options["k"] <= 0.5
    if classes > 9:  # the largest k there is
        more = min(0.5, 1.1 * options["k"])
        assert max_classes(more, p_max(more, 1e-4), 1e-4) < classes


def test_options_for_no_classes() -> None:
    with pytest.raises(InputError, match="classes must be at least 2; got 1"):
        options_for(1)
