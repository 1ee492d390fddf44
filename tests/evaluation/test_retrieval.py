"""Retrieval scores by hand, by double loops, and by the peers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InputError
from vicinal.evaluation import GroundTruth, evaluate, retrieval

BASIC = ("P@1", "R@1", "R@2", "R@4", "R@8", "P@R", "MAP@R", "mAP", "MRR", "nDCG")


def loop(points, labels, gallery=None, gallery_labels=None, ks=(1, 2, 4, 8), sequences=None, gallery_sequences=None):
    """Each score of each query straight from its definition; distances of whole numbers are exact."""
    itself = gallery is None
    references, reference_labels = (points, labels) if itself else (gallery, gallery_labels)
    others = sequences if itself else gallery_sequences
    rows = []
    for i, (point, label) in enumerate(zip(points, labels, strict=True)):
        order = sorted(
            (float(((np.asarray(point) - np.asarray(reference)) ** 2).sum()), j)
            for j, reference in enumerate(references)
            if not (itself and i == j) and not (sequences is not None and sequences[i] == others[j])
        )
        hits = [reference_labels[j] == label for _, j in order]
        many = sum(hits)
        if not many:
            rows.append({})
            continue
        row = {"P@1": float(hits[0]), "P@R": sum(hits[:many]) / many}
        row |= {f"R@{k}": float(any(hits[:k])) for k in ks}
        precisions = [sum(hits[: j + 1]) / (j + 1) for j in range(len(hits))]
        row["MAP@R"] = sum(p for p, hit in zip(precisions[:many], hits, strict=False) if hit) / many
        row["mAP"] = sum(p for p, hit in zip(precisions, hits, strict=True) if hit) / many
        row["MRR"] = 1 / (hits.index(True) + 1)
        gain = sum(1 / math.log2(j + 2) for j, hit in enumerate(hits) if hit)
        row["nDCG"] = gain / sum(1 / math.log2(j + 2) for j in range(many))
        rows.append(row)
    return rows


def check(scores, rows):
    assert scores.left_out == sum(not row for row in rows)
    for name in BASIC:
        expected = [row.get(name, math.nan) for row in rows]
        assert scores.per_query[name] == pytest.approx(expected, abs=1e-12, nan_ok=True), name
        assert scores[name] == pytest.approx(np.nanmean(expected), abs=1e-12), name


@st.composite
def cases(draw):
    n, m, d = draw(st.integers(2, 12)), draw(st.integers(1, 12)), draw(st.integers(1, 3))
    whole = st.integers(-2, 2)
    points, gallery = (
        np.array(draw(st.lists(st.lists(whole, min_size=d, max_size=d), min_size=size, max_size=size)), dtype=float)
        for size in (n, m)
    )
    kind = draw(st.sampled_from([st.integers(0, 3), st.just(2**40), st.sampled_from(["a", "b", "ü", ""])]))
    label_lists = [draw(st.lists(kind, min_size=size, max_size=size)) for size in (n, m)]
    sequence_lists = [draw(st.lists(st.integers(0, 4), min_size=size, max_size=size)) for size in (n, m)]
    return points, gallery, label_lists, sequence_lists


@pytest.mark.unit
@settings(max_examples=80, deadline=None)
@given(cases(), st.booleans(), st.booleans())
def test_scores_equal_the_double_loop(case, with_gallery, with_sequences):
    points, gallery, (labels, gallery_labels), (sequences, gallery_sequences) = case
    options = {}
    if with_gallery:
        options |= {"gallery": gallery, "gallery_labels": gallery_labels}
    if with_sequences:
        options |= {"sequences": sequences} | ({"gallery_sequences": gallery_sequences} if with_gallery else {})
    rows = loop(points, labels, **options)
    truth = GroundTruth(labels, options.get("sequences"))
    others = (gallery, GroundTruth(gallery_labels, options.get("gallery_sequences"))) if with_gallery else None
    if not any(rows):
        with pytest.raises(InputError, match="has a reference of its class"):
            evaluate(points, truth, gallery=others, distance="euclidean")
        return
    scores = evaluate(points, truth, gallery=others, distance="euclidean", intervals=None)
    check(scores, rows)
    for values in scores.per_query.values():
        known = values[np.isfinite(values)]
        assert ((known >= 0) & (known <= 1 + 1e-12)).all()
    assert (np.nan_to_num(scores.per_query["MAP@R"]) <= np.nan_to_num(scores.per_query["P@R"]) + 1e-12).all()
    assert (np.nan_to_num(scores.per_query["MAP@R"]) <= np.nan_to_num(scores.per_query["mAP"]) + 1e-12).all()
    recalls = [scores[f"R@{k}"] for k in (1, 2, 4, 8)]
    assert recalls == sorted(recalls)


@pytest.mark.unit
def test_by_hand():
    hits = torch.tensor([[True, False, True], [False, False, True], [True, True, True]])
    relevant = torch.tensor([2, 3, 0])
    assert retrieval.precision_at_1(hits, relevant)[:2].tolist() == [1, 0]
    assert retrieval.recall_at(hits, relevant, 2)[:2].tolist() == [1, 0]
    assert retrieval.r_precision(hits, relevant)[:2].tolist() == [0.5, 1 / 3]
    assert retrieval.average_precision_at_r(hits, relevant)[:2].tolist() == pytest.approx([1 / 2, 1 / 9])
    for function in (retrieval.precision_at_1, retrieval.r_precision, retrieval.average_precision_at_r):
        assert function(hits, relevant).isnan().tolist() == [False, False, True]
    ranks = torch.tensor([[1, 3], [2, 0], [0, 0]])
    assert retrieval.average_precision(ranks)[:2].tolist() == pytest.approx([(1 + 2 / 3) / 2, 0.5])
    assert retrieval.reciprocal_rank(ranks)[:2].tolist() == [1, 0.5]
    ideal = 1 + 1 / math.log2(3)
    assert retrieval.discounted_gain(ranks)[:2].tolist() == pytest.approx([(1 + 0.5) / ideal, 1 / math.log2(3)])
    for function in (retrieval.average_precision, retrieval.reciprocal_rank, retrieval.discounted_gain):
        assert function(ranks).isnan().tolist() == [False, False, True]


@pytest.mark.unit
def test_no_query_at_all_gives_no_score():
    hits, relevant = torch.zeros(0, 3, dtype=torch.bool), torch.zeros(0, dtype=torch.int64)
    assert len(retrieval.average_precision_at_r(hits, relevant)) == 0
    assert len(retrieval.average_precision(torch.zeros(0, 2, dtype=torch.int64))) == 0


@pytest.mark.unit
def test_too_few_neighbours_are_refused():
    hits = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(InputError, match=r"need the 3 nearest.*only 2 are known"):
        retrieval.r_precision(hits, torch.tensor([3]))
    with pytest.raises(InputError, match="between 1 and 2"):
        retrieval.recall_at(hits, torch.tensor([1]), 3)


@pytest.mark.unit
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_ranks_in_float32_float64_and_exactly_agree(scale):
    """Many references and near ties take all three ways through the full ranking."""
    generator = torch.Generator().manual_seed(0)
    points = (torch.randn(600, 6, generator=generator) * 2).round() * scale + 1
    points[100:200] = points[:100]
    points[300:] += torch.randn(300, 6, generator=generator) * 1e-4
    labels = torch.randint(0, 40, (600,), generator=generator)
    scores = evaluate(points, labels, also=["ranking"], intervals=None)
    from vicinal.neighbours.similarity import exact_rows, vectors

    queries, _ = vectors(points)
    keys = exact_rows(queries, torch.arange(600), queries).fill_diagonal_(-torch.inf)
    order = keys.argsort(dim=1, descending=True, stable=True)[:, :-1]
    hits = (labels[order] == labels[:, None]).double()
    precision = hits.cumsum(1) / torch.arange(1, 600)
    expected = (precision * hits).sum(1) / hits.sum(1)
    assert scores.per_query["mAP"] == pytest.approx(expected.numpy(), abs=1e-12)


@pytest.mark.unit
def test_a_perfect_ranking_scores_one():
    centres = torch.eye(5).repeat_interleave(4, 0)
    scores = evaluate(centres, torch.arange(5).repeat_interleave(4))
    assert all(scores[name] == 1 for name in BASIC)


@pytest.mark.unit
def test_queries_searched_in_themselves_in_another_order():
    """Telling items apart by their number, not their place, makes the order of the gallery irrelevant."""
    generator = torch.Generator().manual_seed(0)
    points, labels = torch.randn(60, 5, generator=generator), torch.arange(60) % 7
    order = torch.randperm(60, generator=generator)
    plain = evaluate(points, labels)
    mixed = evaluate(
        points,
        GroundTruth(labels, sequences=torch.arange(60)),
        gallery=(points[order], GroundTruth(labels[order], sequences=order)),
    )
    for name in BASIC:
        assert mixed.per_query[name] == pytest.approx(plain.per_query[name], abs=1e-12)


@pytest.mark.peer
@pytest.mark.parametrize("with_gallery", [False, True])
def test_pytorch_metric_learning_agrees(with_gallery):
    pytest.importorskip("faiss")
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 30, 400)
    points = (rng.standard_normal((400, 16)) + 2 * rng.standard_normal((30, 16))[labels]).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    names = {
        "P@1": "precision_at_1",
        "P@R": "r_precision",
        "MAP@R": "mean_average_precision_at_r",
        "mAP": "mean_average_precision",
        "MRR": "mean_reciprocal_rank",
    }
    calculator = AccuracyCalculator(include=tuple(names.values()), device=torch.device("cpu"))
    if with_gallery:
        calculator.k = 250
        theirs = calculator.get_accuracy(points[:150], labels[:150], points[150:], labels[150:])
        ours = evaluate(points[:150], labels[:150], gallery=(points[150:], labels[150:]), intervals=None)
    else:
        calculator.k = 399
        theirs = calculator.get_accuracy(points, labels)
        ours = evaluate(points, labels, intervals=None)
    for name, their_name in names.items():
        assert ours[name] == pytest.approx(theirs[their_name], abs=1e-6), name


@pytest.mark.peer
def test_torchmetrics_and_scikit_learn_agree():
    from sklearn.metrics import average_precision_score, ndcg_score
    from torchmetrics.functional.retrieval import (
        retrieval_average_precision,
        retrieval_hit_rate,
        retrieval_normalized_dcg,
        retrieval_r_precision,
        retrieval_reciprocal_rank,
    )

    rng = np.random.default_rng(1)
    labels = rng.integers(0, 8, 60)
    points = rng.standard_normal((60, 6)) + rng.standard_normal((8, 6))[labels]
    scores = evaluate(points, labels, intervals=None)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    similar = 2 + unit @ unit.T  # torchmetrics does not count what has a similarity of zero or less
    for i in range(60):
        others = np.arange(60) != i
        near, same = torch.from_numpy(similar[i][others]), torch.from_numpy(labels[others] == labels[i])
        theirs = {
            "mAP": retrieval_average_precision(near, same),
            "MRR": retrieval_reciprocal_rank(near, same),
            "nDCG": retrieval_normalized_dcg(near, same.long()),
            "P@R": retrieval_r_precision(near, same),
            "R@4": retrieval_hit_rate(near, same, top_k=4),
        }
        for name, value in theirs.items():
            assert scores.per_query[name][i] == pytest.approx(float(value), abs=1e-6), name
        assert scores.per_query["mAP"][i] == pytest.approx(
            average_precision_score(same.numpy(), near.numpy()), abs=1e-6
        )
        assert scores.per_query["nDCG"][i] == pytest.approx(
            ndcg_score(same.numpy()[None].astype(int), near.numpy()[None]), abs=1e-6
        )
