"""k-means and the scores of a clustering."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal.errors import InputError, MissingExtra, UnknownName
from vicinal.evaluation import cluster_scores, clustering, k_means, pairwise_f1

pytestmark = pytest.mark.unit


def blobs(classes: int = 5, each: int = 12, noise: float = 0.05):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    return (np.eye(classes)[labels] + noise * rng.standard_normal((len(labels), classes))).astype(np.float32), labels


@pytest.mark.parametrize("backend", ["auto", "faiss", "sklearn"])
def test_clear_clusters_are_found_and_a_seed_repeats_them(backend):
    points, labels = blobs(classes=2)
    assert cluster_scores(points, labels, backend=backend) == {"NMI": 1, "AMI": pytest.approx(1), "F1": 1}
    noisy, _ = blobs(noise=0.5)
    first, again = (k_means(noisy, 5, seed=3, backend=backend) for _ in range(2))
    assert torch.equal(first, again)
    assert set(first.tolist()) <= set(range(5))


def test_cosine_ignores_lengths_and_euclidean_does_not():
    points = np.array([[1.0, 0], [9, 0], [0, 1], [0, 9]])
    assert cluster_scores(points, [0, 0, 1, 1])["F1"] == 1
    far = np.array([[1.0, 0], [0, 1], [90, 91], [91, 90]])
    assert cluster_scores(far, [0, 0, 1, 1], distance="euclidean")["F1"] == 1


def test_pairwise_f1_equals_the_double_loop():
    rng = np.random.default_rng(0)
    truth, found = rng.integers(0, 4, 40), rng.integers(0, 6, 40)
    same, together = ([a[i] == a[j] for i in range(40) for j in range(i)] for a in (truth, found))
    both = sum(x and y for x, y in zip(same, together, strict=True))
    precision, recall = both / sum(together), both / sum(same)
    assert pairwise_f1(truth, found) == pytest.approx(2 * precision * recall / (precision + recall), abs=1e-12)


def test_pairwise_f1_of_items_that_are_all_alone():
    assert pairwise_f1(np.arange(3), np.arange(3)) == 1


@pytest.mark.peer
def test_scikit_learn_agrees():
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
    from sklearn.metrics.cluster import pair_confusion_matrix

    points, labels = blobs(noise=0.6)
    found = k_means(points, 5, seed=1).numpy()
    scores = cluster_scores(points, labels, seed=1)
    assert scores["NMI"] == pytest.approx(normalized_mutual_info_score(labels, found), abs=1e-6)
    assert scores["AMI"] == pytest.approx(adjusted_mutual_info_score(labels, found), abs=1e-6)
    (_, false_positive), (false_negative, positive) = pair_confusion_matrix(labels, found)
    assert scores["F1"] == pytest.approx(2 * positive / (2 * positive + false_positive + false_negative), abs=1e-6)


def test_bad_input():
    with pytest.raises(InputError, match="Between 1 and 3 clusters are possible for 3 items; got 4"):
        k_means(np.eye(3), 4)
    with pytest.raises(UnknownName, match="did you mean 'sklearn'"):
        k_means(np.eye(3), 2, backend="sklern")
    with pytest.raises(InputError, match="3 embeddings but 2 labels"):
        cluster_scores(np.eye(3), [0, 1])


def test_without_faiss(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"pip install 'vicinal\[faiss\]'"):
        k_means(np.eye(3), 2, backend="faiss")
    monkeypatch.setattr(clustering, "find_spec", lambda name: None)
    assert len(k_means(np.eye(3), 2)) == 3
