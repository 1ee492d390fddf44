"""Verdicts: a planted winner, no winner, and too little to say."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.literature import thesis_tables
from vicinal.stats import compare_pairs, tournament, verdict

pytestmark = pytest.mark.unit


def planted(lead: float, seeds: int = 1, classes: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    difficulty = rng.random(classes)
    return {
        name: difficulty + rng.normal(better, 0.05, (seeds, classes))
        for name, better in (("winner", lead), ("second", 0), ("third", 0))
    }


def test_a_planted_winner_over_classes_and_seeds():
    found = verdict(compare_pairs(planted(0.1, seeds=3)))
    assert (found.winner, found.significant, found.undecided) == ("winner", True, ())
    assert set(found.beaten) == {"second", "third"}
    assert found.sentence.startswith("winner wins: over 60 classes and 3 seeds it is significantly better than ")
    assert found.caveats == ()
    assert str(found) == found.sentence


def test_no_winner():
    found = verdict(compare_pairs(planted(0.0)))
    assert not found.significant
    assert len(found.undecided) == 2
    assert found.sentence.endswith("there is no winner.")
    assert found.caveats == (
        "One run of each method compares these models, not the methods; that needs several seeds.",
    )


def test_too_few_classes_are_said_to_prove_nothing():
    """Four classes, three pairs: 3 x 2/16 at best."""
    found = verdict(compare_pairs(planted(0.5, classes=4)))
    assert not found.significant
    assert found.caveats[0] == "With 4 classes and 3 pairs to test, p cannot fall below 0.38: nothing can be concluded."


def test_the_thesis_tournament():
    """First in all 12 experiments, yet by Nemenyi's test not better than four others; pair by pair it is."""
    found = tournament(thesis_tables())
    by_ranks = verdict(found)
    assert by_ranks.winner == "proxy_anchor"
    assert not by_ranks.significant
    assert by_ranks.beaten == ("margin", "arcface", "proxy_nca", "triplet", "n_pair")
    assert by_ranks.undecided == ("soft_triple", "multi_similarity", "contrastive", "lifted_structure")
    assert str(by_ranks) == (
        "proxy_anchor comes first: by mean rank over 12 experiments it is significantly better than margin, arcface, "
        "proxy_nca, triplet and n_pair, but not than soft_triple, multi_similarity, contrastive and "
        "lifted_structure."
    )
    by_pairs = verdict(found.pairs())
    assert (by_pairs.winner, by_pairs.significant) == ("proxy_anchor", True)
    assert "over 12 experiments it is significantly better than soft_triple" in by_pairs.sentence


def test_few_experiments_cannot_tell_methods_apart():
    scores = {f"e{at}": {"a": 0.9, "b": 0.8, "c": 0.7} for at in range(2)}
    found = verdict(tournament(scores))
    assert not found.significant
    assert found.caveats == (
        "Ranks of 3 methods cannot show a significant difference with 2 experiments; at least 3 are needed.",
    )


def test_methods_that_do_not_differ_over_many_experiments():
    rng = np.random.default_rng(1)
    found = verdict(tournament({str(at): dict(zip("abc", rng.random(3).tolist(), strict=True)) for at in range(20)}))
    assert not found.significant
    assert found.caveats[0].startswith("Friedman's test finds no significant difference (p = 0.")


def test_what_was_left_out_is_in_the_verdict():
    scores = {**{f"e{at}": {"a": 0.9, "b": 0.8} for at in range(8)}, "broken": {"a": 0.9}}
    found = verdict(tournament(scores, missing="drop experiments"))
    assert found.significant
    assert found.sentence == "a wins: by mean rank over 8 experiments it is significantly better than b."
    assert found.caveats == ("Note: left out the experiments broken, because 1 scores are missing: b in broken.",)


def test_equal_methods_are_told_as_such():
    scores = np.random.default_rng(0).random(30)
    found = verdict(compare_pairs({"b": scores, "a": scores}))
    assert (found.winner, found.undecided, found.significant) == ("a", ("b",), False)


def test_bad_input():
    with pytest.raises(InputError, match="at least one tested pair"):
        verdict([])


def test_methods_that_were_not_tested_against_the_winner_are_undecided():
    rng = np.random.default_rng(0)
    poor = rng.random(40)
    tests = compare_pairs({"good": poor + 0.1 * rng.random(40), "poor": poor})
    found = verdict(tests, methods=["good", "poor", "apart"])
    assert (found.beaten, found.undecided, found.significant) == (("poor",), ("apart",), False)
    assert found.caveats[-1] == "good was not compared with apart: they share no seed, fold or scored class."
    alone = verdict([], methods=["good", "apart"])
    assert (alone.winner, alone.undecided) == ("good", ("apart",))
    assert alone.sentence == "good comes first, but it is not significantly better than apart: there is no winner."
