"""Ranks, totals, missing scores, and what does not depend on the order of a table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InputError
from vicinal.literature import thesis_tables
from vicinal.stats import tournament

pytestmark = pytest.mark.unit

SMALL = {
    "cub": {"a": 0.6, "b": 0.5, "c": 0.5},
    "cars": {"a": 0.8, "b": 0.9, "c": 0.7},
}


def test_the_thesis_tournament_has_its_totals_means_and_deviations():
    """Table 11 of the thesis, with the digits of Triplet's mean (printed 8.85) in their order."""
    rows = tournament(thesis_tables()).table()
    assert [(row.method, row.total) for row in rows] == [
        ("proxy_anchor", 12),
        ("soft_triple", 38),
        ("multi_similarity", 51),
        ("contrastive", 52),
        ("lifted_structure", 54),
        ("margin", 70),
        ("arcface", 79),
        ("proxy_nca", 81),
        ("triplet", 103),
        ("n_pair", 120),
    ]
    means = [1, 3.17, 4.25, 4.33, 4.5, 5.83, 6.58, 6.75, 8.58, 10]
    deviations = [0, 1.19, 2.05, 1.72, 1.88, 1.27, 2.31, 1.66, 0.51, 0]
    assert [round(row.mean, 2) for row in rows] == means
    assert [round(row.sd, 2) for row in rows] == deviations
    assert [row.firsts for row in rows] == [12] + 9 * [0]


def test_the_groups_of_the_thesis_tournament():
    found = tournament(thesis_tables())
    assert found.significant
    assert found.critical_difference == pytest.approx(3.164 * (110 / 72) ** 0.5, abs=2e-3)
    assert found.groups[0] == ("proxy_anchor", "soft_triple", "multi_similarity", "contrastive", "lifted_structure")
    assert found.groups[-1] == ("arcface", "proxy_nca", "triplet", "n_pair")


def test_equal_scores_share_the_mean_of_their_ranks():
    found = tournament(SMALL)
    assert found.methods == ("a", "b", "c")
    assert found.ranks.tolist() == [[1, 2.5, 2.5], [2, 1, 3]]
    assert [(row.total, row.firsts) for row in found.table()] == [(3, 1), (3.5, 1), (5.5, 0)]
    assert found.table()[0].score == pytest.approx(0.7)


def test_one_experiment_is_ranked_but_nothing_is_concluded():
    found = tournament({"cub": {"a": 0.6, "b": 0.5}})
    assert found.friedman is None
    assert not found.significant
    assert found.groups == (("a", "b"),)
    assert [row.sd for row in found.table()] == [0, 0]
    assert "1 experiment;" in str(found)


def test_the_printed_table_has_a_line_per_method_and_what_was_not_told_apart():
    shown = str(tournament(thesis_tables()))
    assert "triplet             103   8.58   0.51       0      0.5894" in shown
    assert "Friedman chi-square(9) = 81.45" in shown
    assert "Nemenyi critical difference of mean ranks at 0.05: 3.910." in shown
    assert "Not significantly different: margin, arcface, proxy_nca, triplet." in shown
    assert repr(tournament(SMALL)) == "Tournament(3 methods, 2 experiments, a first)"


def test_pairs_over_experiments():
    """First in all of 12 experiments: 2 of 4096 patterns of signs, times the 45 pairs."""
    tests = tournament(thesis_tables()).pairs()
    assert len(tests) == 45
    assert {test.second for test in tests if test.first == "proxy_anchor"} == set(
        tournament(thesis_tables()).methods[1:]
    )
    assert tests[0].p_single == 2 / 4096
    assert tests[0].p_value == pytest.approx(45 * 2 / 4096)
    assert (tests[0].count, tests[0].unit) == (12, "experiment")


def test_missing_scores_are_refused_or_left_out_aloud():
    holes = {**SMALL, "sop": {"a": 0.7, "b": float("nan"), "c": 0.6}, "omniglot": {"a": 0.5, "b": 0.4}}
    with pytest.raises(
        InputError, match=r"2 scores are missing: b in sop, c in omniglot\..*missing='drop experiments'"
    ):
        tournament(holes)
    fewer = tournament(holes, missing="drop experiments")
    assert fewer.experiments == ("cub", "cars")
    assert fewer.notes == (
        "left out the experiments sop, omniglot, because 2 scores are missing: b in sop, c in omniglot.",
    )
    assert "Note: left out the experiments sop" in str(fewer)
    with pytest.raises(
        InputError, match=r"needs at least 2 methods .* got 1 and 4 after dropping: left out the methods b, c"
    ):
        tournament(holes, missing="drop methods")
    assert tournament({**SMALL, "sop": {"a": 1.0, "b": 2.0}}, missing="drop methods").methods == ("b", "a")


def test_bad_input():
    with pytest.raises(InputError, match="got 0 and 0"):
        tournament({})
    with pytest.raises(InputError, match="got 1 and 1"):
        tournament({"cub": {"a": 0.5}})
    with pytest.raises(InputError, match="infinite"):
        tournament({"cub": {"a": float("inf"), "b": 1.0}})
    with pytest.raises(InputError, match=r"between 0 and 1, got 5\.0"):
        tournament(SMALL, level=5.0)


tables = st.integers(2, 6).flatmap(
    lambda methods: st.lists(
        st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5]), min_size=methods, max_size=methods), min_size=1, max_size=6
    )
)


@settings(deadline=None)
@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_methods_and_experiments_does_not_matter(table: list[list[float]], random) -> None:
    scores = {f"e{row}": {f"m{column}": value for column, value in enumerate(line)} for row, line in enumerate(table)}
    shuffled = {
        experiment: dict(random.sample(list(scores[experiment].items()), len(scores[experiment])))
        for experiment in random.sample(list(scores), len(scores))
    }
    one, other = tournament(scores), tournament(shuffled)
    assert one.methods == other.methods
    assert np.array_equal(np.sort(one.ranks, axis=0), np.sort(other.ranks, axis=0))
    for row, same in zip(one.table(), other.table(), strict=True):
        assert (row.method, row.total, row.firsts) == (same.method, same.total, same.firsts)
        assert (row.sd, row.score) == pytest.approx((same.sd, same.score))
    assert one.groups == other.groups
    assert (one.friedman is None) == (len(table) == 1)
    if one.friedman is not None and other.friedman is not None:
        assert one.friedman.p_value == other.friedman.p_value
        assert one.friedman.chi_square == pytest.approx(other.friedman.chi_square)


@settings(deadline=None)
@given(tables)
def test_ranks_sum_to_the_same_in_every_experiment_and_every_method_is_in_a_group(table: list[list[float]]) -> None:
    found = tournament(
        {str(row): {str(column): value for column, value in enumerate(line)} for row, line in enumerate(table)}
    )
    methods = len(found.methods)
    assert found.ranks.sum(axis=1) == pytest.approx(np.full(len(table), methods * (methods + 1) / 2))
    assert {method for group in found.groups for method in group} == set(found.methods)
    totals = [row.total for row in found.table()]
    assert totals == sorted(totals)
