"""Advice on planted comparisons: what each lacks is known, and must be what is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal.leaderboard import Leaderboard, leaderboards
from vicinal.leaderboard.advice import next_step
from vicinal.runs import Record

AddRun = Callable[..., Record]
pytestmark = pytest.mark.unit
EASE = np.random.default_rng(0).uniform(0.2, 0.6, 300)  # of classes, the same for every way


def planted(
    folder: Path,
    add_run: AddRun,
    *,
    lead: float,
    classes: int = 40,
    seeds: int = 3,
    by_seed: Sequence[float] = (0.0,) * 9,
    by_class: float = 0.0,
    **facts: Any,
) -> Leaderboard:
    """Two ways: margin leads triplet by `lead`, more or less with the seed and the class."""
    noise = np.random.default_rng(1).standard_normal(300)
    noise = (noise[:classes] - noise[:classes].mean()) / noise[:classes].std()
    for seed in range(seeds):
        better = EASE[:classes] + lead + by_seed[seed] + by_class * noise
        add_run(folder, "triplet", seed=seed, classes=EASE[:classes].tolist(), **facts)
        add_run(folder, "margin", seed=seed, classes=better.tolist(), validation=0.6, **facts)
    return leaderboards([folder])[0]


def test_a_clear_lead_is_settled(tmp_path: Path, add_run: AddRun) -> None:
    found = next_step(planted(tmp_path, add_run, lead=0.1, by_seed=(0.01, 0.0, -0.01), by_class=0.02))
    assert found.need == "nothing"
    assert "Over 40 classes and 3 seeds, margin leads triplet, the closest, by 10.0 points" in found.text


def test_one_seed_asks_for_more(tmp_path: Path, add_run: AddRun) -> None:
    found = next_step(planted(tmp_path, add_run, lead=0.1, seeds=1, by_class=0.02))
    assert found.need == "seeds"
    assert "--seeds 3" in found.text


def test_too_few_classes_come_before_seeds(tmp_path: Path, add_run: AddRun) -> None:
    found = next_step(planted(tmp_path, add_run, lead=0.1, seeds=1, classes=4))
    assert found.need == "classes"
    assert "With 4 test classes" in found.text


def test_luck_of_seeds_asks_for_as_many_as_will_do(tmp_path: Path, add_run: AddRun) -> None:
    luck = (0.05, 0.0, -0.05, 0.05, 0.0, -0.05, 0.05, 0.0, -0.05)
    found = next_step(planted(tmp_path / "three", add_run, lead=0.045, by_seed=luck))
    assert found.need == "seeds"
    needed = int(found.text.partition("--seeds ")[2].split(";")[0])
    assert 4 <= needed <= 9
    assert next_step(planted(tmp_path / "nine", add_run, lead=0.045, by_seed=luck, seeds=9)).need == "nothing"


def test_luck_of_classes_asks_for_classes(tmp_path: Path, add_run: AddRun) -> None:
    found = next_step(planted(tmp_path, add_run, lead=0.02, by_class=0.1))
    assert found.need == "classes"
    needed = int(found.text.partition("About ")[2].split()[0])
    assert 40 < needed <= 200
    more = planted(tmp_path / "more", add_run, lead=0.02, by_class=0.1, classes=needed + 20)
    assert next_step(more).need == "nothing"


def test_level_ways_are_a_choice(tmp_path: Path, add_run: AddRun) -> None:
    found = next_step(planted(tmp_path, add_run, lead=0.001, by_seed=(0.05, 0.0, -0.05), by_class=0.1))
    assert found.need == "choice"
    assert "margin and triplet are within the noise" in found.text


def test_what_was_still_rising_asks_for_budget(tmp_path: Path, add_run: AddRun) -> None:
    facts: dict[str, Any] = {"recipe": {"steps": 10}, "images": 400}
    rising = ((100, 0.1), (200, 0.2), (300, 0.3), (400, 0.5))
    board = planted(tmp_path / "rising", add_run, lead=0.1, curve=rising, **facts)
    assert next_step(board).need == "budget"
    assert "--budget 20" in next_step(board).text
    level = ((100, 0.1), (200, 0.5), (300, 0.4), (400, 0.5))
    assert next_step(planted(tmp_path / "level", add_run, lead=0.1, curve=level, **facts)).need == "nothing"


def test_ways_that_do_not_beat_the_untrained_network_need_something_else(tmp_path: Path, add_run: AddRun) -> None:
    planted(tmp_path, add_run, lead=0.1, by_class=0.02)
    for seed in range(3):
        add_run(tmp_path, "untrained", seed=seed, role="baseline", classes=(EASE[:40] + 0.2).tolist(),
                recipe={"loss": "triplet"}, validation=0.7)  # fmt: skip
    (board,) = leaderboards([tmp_path])
    assert next_step(board).need == "conditions"
    assert [advice.about for advice in board.advice()] == ["Use this", "Was training worth it?", "Next"]
    assert str(board.advice()[1]) == f"Was training worth it? {board.gain}"


def test_failures_and_a_way_alone_come_first(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "triplet")
    (alone,) = leaderboards([tmp_path])
    assert next_step(alone).need == "methods"
    add_run(tmp_path, "margin", status="failed")
    (broken,) = leaderboards([tmp_path])
    assert next_step(broken).need == "repair"
    assert "--retry-failed" in next_step(broken).text


def test_ways_that_share_no_seed_need_the_missing_runs(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "triplet", seed=0)
    add_run(tmp_path, "margin", seed=1)
    assert "share no seed" in next_step(leaderboards([tmp_path])[0]).text


def test_the_terminal_says_what_to_use_and_what_is_next(tmp_path: Path, add_run: AddRun) -> None:
    board = planted(tmp_path, add_run, lead=0.1)
    use, following = board.advice()
    assert (use.about, following.about) == ("Use this", "Next")
    assert use.command == ""
    assert "Next: nothing, the result is clear" in " ".join(str(board).split())
