"""Who was still rising, and at which learning rate."""

import pytest

from vicinal.recipe import Recipe
from vicinal.results import Leaderboard, Record, Run
from vicinal.results.chances import budget_in_words, rate_in_words, rates_in_words, rise, rising_in_words

pytestmark = pytest.mark.unit


def run(name, curve, *, steps=100, rates=None, rate=1e-3):
    recipe = Recipe(loss="triplet", data="digits").changed(steps=100, learning_rate=rate)
    best = max(score for _, score in curve)
    record = Record(
        key=name, name=name, status="done", recipe=recipe.model_dump(mode="json"), curve=curve, steps=steps,
        images=curve[-1][0], validation={"MAP@R": best}, test={"MAP@R": best}, rates=rates or {},
    )  # fmt: skip
    return Run(record, None)


RISING = [(100, 0.1), (200, 0.2), (300, 0.3), (400, 0.4)]
LEVEL = [(100, 0.1), (200, 0.3), (300, 0.4), (400, 0.402)]


def test_the_rise_is_that_of_the_last_quarter_of_the_images():
    board = Leaderboard((run("rising", RISING), run("level", LEVEL)))
    assert {entry.name: round(rise(entry), 6) for entry in board.entries} == {"rising": 0.1, "level": 0.002}
    told = rising_in_words(board)
    assert told.startswith("Still rising after 400 images: rising (+0.100 in its last quarter).")
    assert "may change the order" in told
    assert "level" not in told


@pytest.mark.parametrize("curve", [RISING[:2], [(400, 0.4)]])
def test_nobody_is_called_rising_who_was_scored_too_rarely(curve):
    board = Leaderboard((run("rare", curve),))
    assert rise(board.entries[0]) is None
    assert rising_in_words(board) is None


def test_a_run_that_patience_ended_was_not_rising():
    assert rising_in_words(Leaderboard((run("patient", RISING, steps=80),))) is None


def test_a_rate_at_the_end_of_its_ladder_is_told():
    rates = {3e-4: 0.1, 1e-3: 0.3, 3e-3: 0.2}
    assert rate_in_words(run("a", LEVEL, rates=rates).record) == "0.001, best of 3 tried"
    low = run("low", LEVEL, rates=rates, rate=3e-4)
    assert rate_in_words(low.record) == "0.0003, the lowest of 3 tried"
    assert rates_in_words(Leaderboard((low,))).endswith("--rates 5 would look beyond the ends.")
    assert rates_in_words(Leaderboard((run("given", LEVEL),))) is None


def test_the_budget_is_told_in_images_and_so_is_who_ended_early():
    assert budget_in_words(Leaderboard((run("a", LEVEL), run("b", RISING)))) == "Every run saw 400 images."
    early = run("early", LEVEL[:3], steps=75)
    assert (
        budget_in_words(Leaderboard((run("a", LEVEL), early))) == "Runs saw 300 to 400 images; 1 run of 2 ended early."
    )
