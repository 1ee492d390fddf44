"""Figures hold what they are said to show."""

from __future__ import annotations

import pytest
import torch

from vicinal.spaces import LabelMetric, audit, audit_figures, bounds, p_max, slack_surface, worst_triple

pytestmark = pytest.mark.unit


def test_the_surface_is_zero_on_the_limit_and_marks_the_loss() -> None:
    panel = slack_surface(LabelMetric(k=0.5, p=0.75, smoothing=1e-3)).axes[0]
    curve, mark = panel.lines
    k, limit = (values.tolist() for values in curve.get_data())
    assert limit == pytest.approx([p_max(one, 1e-3) for one in k])
    assert [float(values[0]) for values in mark.get_data()] == [0.5, 0.75]
    slack = panel.collections[0].get_array().reshape(161, 161)
    for column in (20, 80, 140):
        signs = slack[:, column] >= 0
        flip = 0.02 + 1.28 * (signs.sum() - 1) / 160
        assert flip == pytest.approx(limit[column], abs=0.01)


@pytest.mark.parametrize("what", ["weak_metric_cross_entropy", "squared_euclidean", "angular"])
def test_the_worst_triple_is_drawn(what: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    verdict = audit(what, triples=1)
    figure = worst_triple(verdict)
    left, right = figure.axes
    assert len(left.patches) == 9
    assert ("not a metric" in right.get_title()) == (verdict.worst.slack < 0)
    figure.savefig(tmp_path / "triple.png")


def test_what_applies_is_drawn() -> None:
    assert list(audit_figures(audit("squared_sine", triples=1))) == []
    verdict = audit("metric_cross_entropy", triples=1)
    metric = LabelMetric()
    assert list(audit_figures(verdict, metric)) == ["worst triple", "slack surface"]
    x, labels = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8]]), torch.tensor([0, 0, 1, 1])
    figures = audit_figures(verdict, metric, bounds(metric, x, labels), x)
    assert list(figures) == ["worst triple", "slack surface", "pair distances"]
    lines = figures["pair distances"].axes[0].lines
    assert lines[0].get_xdata()[0] == bounds(metric, x, labels).intra_bound
