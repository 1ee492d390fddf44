"""Miners by their definitions, what all of them keep to, and how the random ones draw."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import miners as peers
from torch import Tensor

from vicinal.criterion import Criterion
from vicinal.errors import InputError, UnknownName
from vicinal.mining import (
    MINERS,
    all_pairs,
    distance_weighted,
    easy_positive,
    hard,
    pair_statistics,
    random_pairs,
    semi_hard,
    valid_triplets,
)

Drawn = tuple[Tensor, Tensor, Tensor]


def draw(seed: int, n: int = 5, m: int = 7, levels: int = 6, dtype: torch.dtype = torch.float64) -> Drawn:
    """Distances in eighths, so that ties are common, and masks that leave some pairs out."""
    generator = torch.Generator().manual_seed(seed)
    matrix = (torch.randint(levels, (n, m), generator=generator) / 8).to(dtype)
    kind = torch.randint(3, (n, m), generator=generator)
    return matrix, kind == 0, kind == 1


def run(name: str, drawn: Drawn, **options: Any) -> tuple[Tensor, Tensor]:
    asked = inspect.signature(MINERS[name]).parameters
    supplied: dict[str, Any] = {}
    if "dim" in asked:
        supplied["dim"] = 8
    if "generator" in asked:
        supplied["generator"] = torch.Generator().manual_seed(0)
    return MINERS[name](*drawn, **supplied, **options)


DRAWN = {
    "seed": st.integers(0, 2**32),
    "n": st.integers(0, 5),
    "m": st.integers(0, 7),
    "levels": st.integers(1, 12),
    "dtype": st.sampled_from([torch.float32, torch.float64]),
}


@settings(max_examples=25, deadline=None)
@given(**DRAWN)
@pytest.mark.parametrize("name", sorted(MINERS))
def test_masks_are_never_enlarged(name: str, **drawn: Any) -> None:
    matrix, positive, negative = draw(**drawn)
    before = positive.clone(), negative.clone()
    kept_positive, kept_negative = run(name, (matrix, positive, negative))
    assert kept_positive.dtype == kept_negative.dtype == torch.bool
    assert kept_positive.shape == kept_negative.shape == matrix.shape
    assert not (kept_positive & ~positive).any()
    assert not (kept_negative & ~negative).any()
    assert torch.equal(positive, before[0])
    assert torch.equal(negative, before[1])


@settings(max_examples=25, deadline=None)
@given(**DRAWN)
@pytest.mark.parametrize("name", ["easy_positive", "hard", "semi_hard", "valid_triplets"])
def test_a_similarity_is_a_negated_distance(name: str, **drawn: Any) -> None:
    matrix, positive, negative = draw(**drawn)
    of_similarity = run(name, (-matrix, positive, negative), similarity=True)
    of_distance = run(name, (matrix, positive, negative), similarity=False)
    assert torch.equal(of_similarity[0], of_distance[0])
    assert torch.equal(of_similarity[1], of_distance[1])


@pytest.mark.parametrize("name", sorted(MINERS))
def test_gradients_are_neither_needed_nor_disturbed(name: str) -> None:
    matrix, positive, negative = draw(0)
    expected = run(name, (matrix, positive, negative))
    found = run(name, (matrix.requires_grad_(), positive, negative))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    matrix.sum().backward()


def test_all_pairs() -> None:
    drawn = draw(0)
    assert all_pairs(*drawn) == drawn[1:]


@settings(max_examples=40, deadline=None)
@given(**DRAWN)
def test_hard_and_easy_positive_by_loops(**drawn: Any) -> None:
    matrix, positive, negative = draw(**drawn)
    kept_positive, kept_negative = hard(matrix, positive, negative, similarity=False)
    easy, all_negatives = easy_positive(matrix, positive, negative, similarity=False)
    assert torch.equal(all_negatives, negative)
    for i in range(len(matrix)):
        for kept, mask, wanted in (
            (kept_positive[i], positive[i], "max"),
            (kept_negative[i], negative[i], "min"),
            (easy[i], positive[i], "min"),
        ):
            values = matrix[i][mask].tolist()
            assert int(kept.sum()) == bool(values)
            if values:
                assert matrix[i][kept].item() == {"max": max, "min": min}[wanted](values)


@settings(max_examples=40, deadline=None)
@given(margin=st.sampled_from([0.0, 0.125, 0.25, 1.0]), **DRAWN)
def test_semi_hard_by_loops(margin: float, **drawn: Any) -> None:
    """Kept are the pairs of triplets with d_ap < d_an < d_ap + margin."""
    matrix, positive, negative = draw(**drawn)
    expected = torch.zeros_like(positive), torch.zeros_like(negative)
    rows = matrix.tolist()
    for i, row in enumerate(rows):
        for p, near in enumerate(row):
            for k, far in enumerate(row):
                if positive[i, p] and negative[i, k] and near < far < near + margin:
                    expected[0][i, p] = expected[1][i, k] = True
    found = semi_hard(matrix, positive, negative, similarity=False, margin=margin)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@settings(max_examples=40, deadline=None)
@given(margin=st.sampled_from([0.0, 0.125, 0.5]), **DRAWN)
def test_valid_triplets_by_loops(margin: float, **drawn: Any) -> None:
    """Kept are exactly the pairs of some triplet that violates the margin: what is dropped is in none."""
    matrix, positive, negative = draw(**drawn)
    expected = torch.zeros_like(positive), torch.zeros_like(negative)
    rows = matrix.tolist()
    for i, row in enumerate(rows):
        for p, s_p in enumerate(row):
            for k, s_n in enumerate(row):
                if positive[i, p] and negative[i, k] and s_n > s_p - margin:
                    expected[0][i, p] = expected[1][i, k] = True
    found = valid_triplets(matrix, positive, negative, margin=margin)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@settings(max_examples=150, deadline=None)
@given(
    row=st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=6),
    nudges=st.lists(st.integers(-2, 2), min_size=6, max_size=6),
    split=st.integers(0, 6),
    margin=st.sampled_from([0.0, 0.1, 0.3, 1e-7]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    similarity=st.booleans(),
)
def test_valid_triplets_keep_both_sorts_or_neither(
    row: list[float], nudges: list[int], split: int, margin: float, dtype: torch.dtype, similarity: bool
) -> None:
    """Even where a similarity is the other plus or minus the margin but for the last bits."""
    matrix = torch.tensor([row], dtype=dtype)
    other = matrix[0, 0] + margin
    for j in range(1, len(row)):
        if nudges[j] != 2:
            near = other
            for _ in range(abs(nudges[j])):
                near = torch.nextafter(near, torch.tensor(math.copysign(9.0, nudges[j]), dtype=dtype))
            matrix[0, j] = near
    positive = (torch.arange(len(row)) < split)[None]
    kept = valid_triplets(matrix, positive, ~positive, margin=margin, similarity=similarity)
    assert kept[0].any() == kept[1].any()


@pytest.mark.peer
def test_valid_triplets_are_the_peers_multi_similarity_miner() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(6, 5, generator=generator, dtype=torch.float64).repeat(4, 1)
    noise = torch.randn(24, 5, generator=generator, dtype=torch.float64)
    embeddings = torch.nn.functional.normalize(centres + 0.4 * noise)
    labels = torch.arange(6).repeat(4)
    same = labels[:, None] == labels
    kept = valid_triplets(embeddings @ embeddings.T, same & ~torch.eye(24, dtype=torch.bool), ~same, margin=0.2)
    a1, p, a2, n = peers.MultiSimilarityMiner(epsilon=0.2)(embeddings, labels)
    expected = torch.zeros_like(same), torch.zeros_like(same)
    expected[0][a1, p] = True
    expected[1][a2, n] = True
    assert torch.equal(kept[0], expected[0])
    assert torch.equal(kept[1], expected[1])
    assert 0 < kept[0].sum() < 24 * 3


def log_inverse_density(distance: float, dim: int) -> float:
    return (2 - dim) * math.log(distance) + (3 - dim) / 2 * math.log(1 - distance**2 / 4)


@pytest.mark.parametrize("similarity", [False, True])
def test_distance_weighted_draws_follow_the_inverse_density(similarity: bool) -> None:
    """One positive, so one negative of eight is drawn; two are nearer than the cut-off and one is too far."""
    dim, rows = 6, 20_000
    distances = torch.tensor([0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.39, 1.5], dtype=torch.float64)
    matrix = 1 - distances.square() / 2 if similarity else distances
    positive = torch.tensor([True] + [False] * 8).expand(rows, 9)
    matrix = torch.cat([matrix.new_zeros(1), matrix]).expand(rows, 9)
    generator = torch.Generator().manual_seed(0)
    kept, drawn = distance_weighted(
        matrix, positive, ~positive, dim=dim, generator=generator, similarity=similarity, cutoff=0.5
    )
    assert torch.equal(kept, positive)
    assert (drawn.sum(1) == 1).all()
    counts = drawn.sum(0)[1:].tolist()
    assert counts[-1] == 0
    weights = [math.exp(log_inverse_density(max(d, 0.5), dim)) for d in distances.tolist()[:-1]]
    expected = [rows * w / sum(weights) for w in weights]
    assert min(expected) > 100
    assert scipy.stats.chisquare(counts[:-1], expected).pvalue > 1e-3


def test_distance_weighted_counts() -> None:
    """As many negatives as positives, fewer where fewer are near enough, none without positives."""
    positive = torch.tensor(
        [[True, True, False, False, False], [True, True, False, False, False], [False, False, False, False, False]]
    )
    matrix = torch.tensor([[0.5, 0.5, 1.0, 1.1, 1.2], [0.5, 0.5, 1.0, 1.9, 1.9], [1.0, 1.0, 1.0, 1.0, 1.0]])
    drawn = distance_weighted(matrix, positive, ~positive, dim=4)[1]
    assert drawn.sum(1).tolist() == [2, 1, 0]
    wide = distance_weighted(matrix, positive, ~positive, dim=4, farthest=2.0)[1]
    assert wide.sum(1).tolist() == [2, 2, 0]


def test_distance_weighted_in_512_dimensions_and_at_zero_distance() -> None:
    """The weights differ by hundreds of orders of magnitude; duplicates must not make them infinite."""
    positive = torch.tensor([[True, False, False, False]])
    matrix = torch.tensor([[0.5, 0.0, 1.0, 1.3]])
    drawn = distance_weighted(matrix, positive, ~positive, dim=512)[1]
    assert drawn.tolist() == [[False, True, False, False]]


@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (2, 3), (0, 9), (50, 0)])
def test_random_counts(positives: int, negatives: int) -> None:
    matrix, positive, negative = draw(0, n=6, m=12)
    kept = random_pairs(matrix, positive, negative, positives=positives, negatives=negatives)
    assert torch.equal(kept[0].sum(1), positive.sum(1).clamp_max(positives))
    assert torch.equal(kept[1].sum(1), negative.sum(1).clamp_max(negatives))


def test_random_draws_are_even() -> None:
    rows = 12_000
    positive = torch.tensor([True] + [False] * 6).expand(rows, 7)
    generator = torch.Generator().manual_seed(0)
    drawn = random_pairs(torch.randn(rows, 7), positive, ~positive, generator=generator, negatives=2)[1]
    assert (drawn.sum(1) == 2).all()
    pairs = drawn[:, 1:].long() @ (2 ** torch.arange(6))
    counts = torch.unique(pairs, return_counts=True)[1]
    assert len(counts) == 15
    assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("name", ["random", "distance_weighted"])
def test_generators_make_draws_repeatable(name: str) -> None:
    matrix = torch.rand(20, 20, generator=torch.Generator().manual_seed(0)) + 0.3
    positive = torch.eye(20, dtype=torch.bool)
    supplied = {"dim": 3} if name == "distance_weighted" else {}
    draws = []
    for seed in (1, 1, 2):
        generator = torch.Generator().manual_seed(seed)
        torch.rand(1)  # the global generator has no say
        draws.append(MINERS[name](matrix, positive, ~positive, generator=generator, **supplied)[1])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_random_refuses_counts_below_zero() -> None:
    with pytest.raises(InputError, match="random_pairs must be at least 0; got positives=-1"):
        random_pairs(*draw(0), positives=-1)


def test_pair_statistics() -> None:
    matrix = torch.tensor([[0.9, 0.2, 0.4, 0.1]])
    positive = torch.tensor([[True, True, False, False]])
    kept = hard(matrix, positive, ~positive)
    found = pair_statistics(matrix, positive, ~positive, *kept)
    assert found == pytest.approx(
        {"kept_positives": 0.5, "kept_negatives": 0.5, "hardest_positive": 0.2, "hardest_negative": 0.4}
    )
    as_distance = pair_statistics(matrix, positive, ~positive, *kept, similarity=False)
    assert as_distance["hardest_positive"] == pytest.approx(0.9)
    assert as_distance["hardest_negative"] == pytest.approx(0.1)
    nothing = torch.zeros_like(positive)
    assert all(math.isnan(value) for value in pair_statistics(matrix, nothing, nothing, nothing, nothing).values())


@pytest.mark.parametrize("geometry", ["cosine_distance", "squared_euclidean"])
def test_distance_weighting_needs_the_sphere(geometry: str) -> None:
    with pytest.raises(InputError, match=rf"density of distances on the sphere.*got '{geometry}'"):
        Criterion("margin", mining="distance_weighted", geometry=geometry)
    with pytest.raises(InputError, match=r"normalise='sphere'; got 'euclidean' with 'none'"):
        Criterion("margin", mining="distance_weighted", normalise="none")


def test_options_of_miners_are_checked() -> None:
    with pytest.raises(UnknownName, match=r"Unknown miner 'semihard'; did you mean 'semi_hard'\?"):
        Criterion("triplet", mining="semihard")
    with pytest.raises(UnknownName, match=r"Unknown option of the miner semi_hard 'margn'; did you mean 'margin'\?"):
        Criterion("triplet", mining="semi_hard", mining_options={"margn": 0.1})
    with pytest.raises(InputError, match=r"semi_hard: margin must be at least 0; got -0\.1"):
        Criterion("triplet", mining="semi_hard", mining_options={"margin": -0.1})
    with pytest.raises(InputError, match=r"mining_options \['margin'\] were given, but no mining"):
        Criterion("triplet", mining_options={"margin": 0.1})
