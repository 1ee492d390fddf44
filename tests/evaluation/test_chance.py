"""Chance: the closed forms against random orders."""

import numpy as np
import pytest
import torch

from vicinal.errors import InputError
from vicinal.evaluation import chance_scores, evaluate, retrieval

pytestmark = pytest.mark.unit
SIZES = [2, 3, 5, 9, 1]  # items of each class; the last has nobody to find


def simulated(relevant, references, draws=20_000):
    """The mean scores of a query over random orders of its references."""
    order = np.random.default_rng(0).permuted(np.tile(np.arange(references), (draws, 1)), axis=1)
    hits, many = torch.from_numpy(order < relevant), torch.full((draws,), relevant)
    scores = {
        "P@1": retrieval.precision_at_1(hits, many),
        "P@R": retrieval.r_precision(hits, many),
        "MAP@R": retrieval.average_precision_at_r(hits, many),
        **{f"R@{k}": retrieval.recall_at(hits, many, min(k, references)) for k in (1, 2, 4, 8)},
    }
    return {name: values.mean().item() for name, values in scores.items()}


@pytest.mark.parametrize("with_gallery", [False, True])
def test_expectations_are_those_of_random_orders(with_gallery):
    labels = np.repeat(np.arange(5), SIZES)
    gallery = np.array([0, 0, 1, 2, 2, 2, 2, 3]) if with_gallery else None
    exact = chance_scores(labels, gallery_labels=gallery)
    positives = [2, 1, 4, 1] if with_gallery else [size - 1 for size in SIZES[:4]]
    references = 8 if with_gallery else len(labels) - 1
    by_class = {label: simulated(relevant, references) for label, relevant in enumerate(positives)}
    for name in exact.overall:
        found = exact.per_class(name)
        assert found.keys() == by_class.keys()
        for label, scores in by_class.items():
            assert found[label] == pytest.approx(scores[name], abs=0.01), (name, label)
        assert exact[name] == pytest.approx(np.average([found[label] for label in range(4)], weights=SIZES[:4]))


def test_names_and_counts_are_those_of_an_evaluation():
    labels = np.repeat(np.arange(5), SIZES)
    measured, exact = evaluate(np.eye(len(labels)), labels, also=[], intervals=None), chance_scores(labels)
    assert measured.overall.keys() == exact.overall.keys()
    assert (measured.left_out, measured.summary()) == (exact.left_out, exact.summary())


def test_orders_of_few_references_by_hand():
    # One positive among three: first, second or third with equal chances; of MAP@R only the first place counts.
    one = chance_scores(["a", "a", "b", "c"], k=[1, 2, 3, 9])
    assert [one[name] for name in ("P@1", "MAP@R", "R@2", "R@3", "R@9")] == pytest.approx([1 / 3, 1 / 3, 2 / 3, 1, 1])
    # Two positives among three, places (1, 2), (1, 3) and (2, 3): MAP@R is 1, 1/2 and 1/4.
    two = chance_scores(["a", "a", "a", "b"])
    assert two["MAP@R"] == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)
    assert chance_scores(["a"], gallery_labels=["a"])["MAP@R"] == 1


def test_nobody_to_find_is_refused():
    with pytest.raises(InputError, match="None of the 2 queries"):
        chance_scores(["a", "b"])
