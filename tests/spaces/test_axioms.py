"""Audits: textbook answers, worst triples, honest words."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from vicinal.errors import InputError, NotFinite, UnknownName
from vicinal.pairs import euclidean, squared_euclidean
from vicinal.spaces import LabelMetric, audit, audit_distance, cube, p_max, simplex, space, sphere
from vicinal.spaces.axioms import Triple, descend, relative_slack, worst_triples
from vicinal.spaces.domains import DOMAINS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("what", "options", "kind", "proved"),
    [
        ("euclidean", {}, "metric", "metric"),
        ("euclidean", {"domain": "sphere"}, "metric", "metric"),
        ("angular", {}, "metric", "metric"),
        ("cosine", {}, "semi-metric", None),
        ("cosine_distance", {"domain": "space"}, "not a semi-metric", None),  # zero for x and 2 x
        ("squared_euclidean", {}, "semi-metric", None),
        ("squared_euclidean", {"domain": "cube"}, "weak-metric", None),
        ("squared_sine", {}, "not a semi-metric", None),  # zero for x and -x
        ("dot", {}, "not a semi-metric", None),
        ("cross_entropy", {}, "not a semi-metric", None),
        ("weak_metric_cross_entropy", {}, "weak-metric", "weak-metric"),
        ("metric_cross_entropy", {}, "metric", "metric"),
        ("metric_cross_entropy", {"p": 0.9}, "weak-metric", "weak-metric"),
        ("metric_cross_entropy", {"p": 3.0}, "weak-metric", "weak-metric"),
        ("metric_cross_entropy", {"p": 0.9, "transform": "root"}, "metric", "weak-metric"),
        ("triplet", {}, "metric", "metric"),  # Euclidean
        ("proxy_nca", {}, "semi-metric", None),  # squared Euclidean
        ("raw", {}, "semi-metric", None),  # cosine
    ],
)
def test_textbook_answers(what: str, options: dict[str, Any], kind: str, proved: str | None) -> None:
    verdict = audit(what, triples=500_000, **options)
    assert (verdict.kind, verdict.proved) == (kind, proved)
    assert (kind == "not a semi-metric") == bool(verdict.faults)
    if kind in ("weak-metric", "semi-metric"):
        assert verdict.worst.slack < 0
    if kind == "metric":
        assert verdict.worst.slack >= 0


@pytest.mark.parametrize("domain", [cube(1), simplex(2), simplex(3), cube(3)])
def test_k_of_one_half_flips_at_the_limit(domain: Any) -> None:
    below = audit_distance(LabelMetric(k=0.5, p=p_max(0.5)), domain, triples=500_000)
    above = audit_distance(LabelMetric(k=0.5, p=p_max(0.5) * 1.0005), domain, triples=500_000)
    assert below.kind == "metric"
    assert above.kind == "weak-metric"
    ends = torch.stack([above.worst.x, above.worst.z])
    differs = (ends[0] - ends[1]).abs() > 0.5
    torch.testing.assert_close(
        ends[:, differs].sort(0).values,
        torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, int(differs.sum())),
        atol=1e-4,
        rtol=0,
    )
    assert above.worst.y[differs].tolist() == pytest.approx([0.5] * int(differs.sum()), abs=0.03)


def test_the_worst_triple_of_the_weak_metric_is_zero_half_one() -> None:
    worst = audit("weak_metric_cross_entropy", domain="cube", dim=1, triples=300_000).worst
    assert sorted([worst.x.item(), worst.z.item()]) == [0.0, 1.0]
    assert worst.slack == -math.inf
    assert math.isinf(worst.direct)
    assert math.isfinite(worst.first + worst.second)
    half = LabelMetric(k=1.0, p=1.0)(torch.tensor([[0.0], [0.5], [1.0]]), torch.tensor([[0.5], [1.0]]))
    assert half[0].tolist() == [pytest.approx(math.log(2)), math.inf]


def slack_of(metric: LabelMetric, triples: Tensor) -> Tensor:
    sides = torch.stack([metric(points, points)[[0, 1, 0], [1, 2, 2]] for points in triples])
    return relative_slack(*sides.T, 0.0)


def test_descent_finds_violations_from_triples_without_any() -> None:
    metric, domain = LabelMetric(k=0.5, p=0.9), simplex(4)
    starts = domain.draw(90, torch.Generator().manual_seed(0)).view(30, 3, 4)
    starts = starts[slack_of(metric, starts) > 0.1][:10]
    before = slack_of(metric, starts)
    after, moved = descend(metric, domain, starts, hold_middle=False, floor=1e-9)
    assert (after <= before).all()
    assert (after < 0).any()
    torch.testing.assert_close(slack_of(metric, moved), after)
    torch.testing.assert_close(moved.sum(2), torch.ones(10, 3, dtype=torch.float64))
    held, moved = descend(metric, domain, starts, hold_middle=True, floor=1e-9)
    assert torch.equal(moved[:, 1], starts[:, 1])
    assert (held <= before).all()


def test_worst_triples_equals_a_triple_loop() -> None:
    matrix = torch.rand(7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = (matrix + matrix.T).fill_diagonal_(0.0)
    slack, places = worst_triples(matrix, torch.arange(7), 1e-9)
    for y in range(7):
        best = math.inf
        for x in range(7):
            for z in range(7):
                first, second, direct = float(matrix[x, y]), float(matrix[y, z]), float(matrix[x, z])
                excess = first + second - direct
                if excess < 0:
                    best = min(best, excess / direct)
                elif min(first, second) > 1e-9:
                    best = min(best, excess / min(first, second))
        assert slack[y].item() == pytest.approx(best)
        x, middle, z = places[y].tolist()
        assert middle == y
        points = torch.zeros(1, dtype=torch.float64)
        triple = Triple(points, points, points, float(matrix[x, y]), float(matrix[y, z]), float(matrix[x, z]))
        assert triple.slack == pytest.approx(best)


def test_asymmetry_and_negative_values_are_named() -> None:
    def askew(x: Tensor, y: Tensor) -> Tensor:
        return euclidean(x, y) * (1 + 0.1 * (x[:, None, 0] > y[None, :, 0]))

    verdict = audit(askew, domain="space", triples=1)
    assert verdict.kind == "not a semi-metric"
    assert "but d(y,x) =" in str(verdict)


def test_words_claim_no_more_than_was_shown() -> None:
    searched = audit(euclidean, domain="space", triples=200_000)
    assert searched.proved is None
    assert f"no violation of a metric's axioms in {searched.triples:,} triples, which is not a proof" in str(searched)
    assert searched.triples >= 200_000
    assert "metric, proved: Minkowski's inequality" in str(audit("euclidean", triples=1))
    weak = str(audit("squared_euclidean", domain="simplex", triples=1))
    assert "not a metric; through the 3 vertices no violation" in weak
    assert "which is not a proof" in weak
    assert "it fails" in weak
    inside = str(audit("metric_cross_entropy", triples=1))
    assert "metric, proved: p = 0.75 is not above 0.7676, the limit for k = 0.5 smoothed by 0.001" in inside


def test_a_proof_that_the_search_refutes_is_an_error() -> None:
    with pytest.raises(AssertionError, match="counterexample to a proof"):
        audit_distance(squared_euclidean, space(1), proved="metric", proof="wishful thinking")


def test_the_seed_decides() -> None:
    one, same = (audit("cosine", triples=2_000_000, seed=3) for _ in range(2))
    assert torch.equal(one.worst.x, same.worst.x)


@pytest.mark.parametrize("name", sorted(DOMAINS))
@pytest.mark.parametrize("dim", [2, 5, 12])
def test_points_of_a_domain_are_in_it(name: str, dim: int) -> None:
    domain = DOMAINS[name](dim)
    drawn = domain.draw(50, torch.Generator().manual_seed(0))
    moved = domain.place(domain.free(drawn))
    for points in (domain.landmarks, domain.vertices, drawn, moved):
        assert points.shape[1] == dim
        if name in ("cube", "simplex"):
            assert ((points >= 0) & (points <= 1)).all()
        if name == "simplex":
            torch.testing.assert_close(points.sum(1), torch.ones(len(points), dtype=torch.float64))
        if name == "sphere":
            torch.testing.assert_close(points.norm(dim=1), torch.ones(len(points), dtype=torch.float64))
    torch.testing.assert_close(moved, drawn, atol=1e-6, rtol=1e-6)
    assert len(domain.landmarks) == len({tuple(point) for point in domain.landmarks.tolist()})


def test_dimensions_that_are_too_few() -> None:
    for make, least in ((cube, 1), (simplex, 2), (sphere, 2), (space, 1)):
        with pytest.raises(InputError, match=f"at least {least} coordinates; got {least - 1}"):
            make(least - 1)


@pytest.mark.parametrize(
    ("what", "options", "error", "message"),
    [
        ("eucldean", {}, UnknownName, "Unknown loss or distance 'eucldean'; did you mean 'euclidean'"),
        ("euclidean", {"domain": "ball"}, UnknownName, "Unknown domain 'ball'"),
        ("triplet", {"margin": 0.1}, InputError, "Options margin do not change the distance of triplet"),
        (euclidean, {}, InputError, "A function needs a domain"),
        (euclidean, {"domain": "space", "triples": 0}, InputError, "at least one triple; got 0"),
        (lambda x, y: x @ y.T * torch.nan, {"domain": "space"}, NotFinite, "is NaN between"),
        (lambda x, y: torch.zeros(len(x), len(y)), {"domain": "space"}, InputError, "nowhere above 0"),
        (lambda x, y: torch.ones(len(x)), {"domain": "space"}, InputError, "must map n and m points to an n x m"),
    ],
)
def test_bad_arguments(what: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        audit(what, **options)


def test_a_verdict_is_searched_for_once_and_shared_by_losses_that_measure_alike(tmp_path, monkeypatch):
    from vicinal.spaces import distances

    searches = []
    true = distances.audit_distance
    monkeypatch.setattr(distances, "audit_distance", lambda *a, **o: searches.append(o["name"]) or true(*a, **o))
    options = {"triples": 20_000, "cache": tmp_path}
    first = distances.audit("contrastive", **options)
    assert str(distances.audit("contrastive", **options)) == str(first)
    other = distances.audit("multi_similarity", **options)
    assert len(searches) == 1
    assert (other.kind, other.worst.slack) == (first.kind, first.worst.slack)
    assert other.subject == "cosine (of multi_similarity)"
    distances.audit("contrastive", triples=20_000, seed=1, cache=tmp_path)
    assert len(searches) == 2
    for path in tmp_path.iterdir():
        path.write_text("{half")
    assert str(distances.audit("contrastive", **options)) == str(first)
    assert len(searches) == 3
