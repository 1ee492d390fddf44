"""Who was still rising, and at which learning rate."""

import pytest

from vicinal.leaderboard import Leaderboard
from vicinal.leaderboard.effort import budget_in_words, ended_by, rate_in_words, rates_in_words, rise, rising_in_words
from vicinal.runs import Record, Run
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.unit


def run(name, curve, *, steps=100, rates=None, rate=1e-3, lasted=0.0, **changes):
    recipe = Recipe(loss="triplet", data="digits").changed(steps=100, learning_rate=rate).changed(changes)
    best = max(score for _, score in curve)
    record = Record(
        key=name, name=name, status="done", recipe=recipe.model_dump(mode="json"), curve=curve, steps=steps,
        images=curve[-1][0], validation={"MAP@R": best}, test={"MAP@R": best}, rates=rates or {}, seconds=lasted,
    )  # fmt: skip
    return Run(record, None)


RISING = [(100, 0.1), (200, 0.2), (300, 0.3), (400, 0.4)]
LEVEL = [(100, 0.1), (200, 0.3), (300, 0.4), (400, 0.402)]


def test_the_rise_is_that_of_the_last_quarter_of_the_images():
    board = Leaderboard((run("rising", RISING), run("level", LEVEL)))
    assert {entry.name: round(rise(entry), 6) for entry in board.entries} == {"rising": 0.1, "level": 0.002}
    told = rising_in_words(board)
    assert told.startswith("Validation scores rose in the last quarter of 400 images: rising (+0.100).")
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
    assert rate_in_words(low.record) == "0.0003, lowest of 3 tried"
    assert rates_in_words(Leaderboard((low,))).endswith("lowest of 3 tried.")
    assert rates_in_words(Leaderboard((run("given", LEVEL),))) is None
    three = (low, run("same", LEVEL, rates=rates, rate=3e-4), run("other", RISING, rates=rates))
    assert ": low and same 0.0003, lowest of 3 tried; other 0.001, best" in rates_in_words(Leaderboard(three))


def test_the_budget_is_told_in_images_and_so_is_who_ended_early():
    assert budget_in_words(Leaderboard((run("a", LEVEL), run("b", RISING)))) == "Every run saw 400 images."
    early = run("early", LEVEL[:3], steps=75, patience=4)
    assert budget_in_words(Leaderboard((run("a", LEVEL, patience=4), early))) == (
        "Runs saw 300 to 400 images; 1 of 2 runs stopped early, after 4 evaluations without improvement."
    )


def test_runs_that_time_ended_may_have_been_rising_and_are_told_their_time():
    board = Leaderboard(
        (
            run("slow", RISING, lasted=91.0, seconds=90.0),
            run("quick", [(2 * images, score) for images, score in LEVEL], lasted=90.5, seconds=90.0),
            run("patient", RISING[:3], lasted=60.0, seconds=90.0),
        )
    )
    assert {entry.name: ended_by(entry.records[0]) for entry in board.entries} == {
        "slow": "time",
        "quick": "time",
        "patient": "patience",
    }
    assert rising_in_words(board).startswith("Validation scores rose in the last quarter of 800 images: slow (+0.100).")
    told = budget_in_words(board)
    assert told == "Runs saw 300 to 800 images in 1 min 30 s of training each; 1 of 3 runs stopped early."
    assert ended_by(run("both", RISING, lasted=10.0, training={"steps": 100, "seconds": 90.0}).record) == "steps"


def test_a_rate_that_a_search_found_is_not_called_one_of_the_ladder():
    rates = {3e-4: 0.1, 1e-3: 0.3, 3e-3: 0.2}
    assert rate_in_words(run("a", LEVEL, rates=rates, rate=0.00123456).record) == (
        "0.00123, tuned near 0.001, best of 3 tried"
    )
