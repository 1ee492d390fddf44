"""Where the spread of planted scores comes from must be found again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vicinal.leaderboard import leaderboards, weigh_influences
from vicinal.runs import Record, SearchRecord, read_searches

AddRun = Callable[..., Record]
pytestmark = pytest.mark.unit
LOSSES = ("triplet", "margin", "contrastive", "n_pair", "proxy_anchor")


def plant(folder: Path, add_run: AddRun, *, loss: float, seed: float, classes: float, seeds: int = 4) -> None:
    by_loss, by_seed, by_class = (_effects(count) for count in (5, seeds, 50))
    for row, name in enumerate(LOSSES):
        for column in range(seeds):
            scores = 0.5 + loss * by_loss[row] + seed * by_seed[column] + classes * by_class
            add_run(folder, name, seed=column, classes=scores.tolist())


def _effects(count: int) -> np.ndarray:
    """Numbers whose variance is 1, as far as there are several."""
    drawn = np.random.default_rng(count).standard_normal(count)
    return drawn / drawn.std(ddof=1) if count > 1 else drawn


@pytest.mark.parametrize("source", ["loss", "seed", "test classes"])
def test_the_planted_source_is_found(source: str, tmp_path: Path, add_run: AddRun) -> None:
    plant(tmp_path, add_run, loss=0.05 * (source == "loss") + 0.002, seed=0.05 * (source == "seed") + 0.002,
          classes=0.4 * (source == "test classes") + 0.002)  # fmt: skip
    first, *others = weigh_influences(leaderboards([tmp_path])[0])
    assert first.name == source
    assert first.share > 0.9
    assert sum(one.share for one in (first, *others)) == pytest.approx(1)
    assert first.deviation == pytest.approx(0.402 / np.sqrt(50) if source == "test classes" else 0.052)
    assert (first.uneven > 0.01) == (source == "loss")  # seeds and classes hit all losses alike here


def test_settings_are_weighed_with_the_rest(tmp_path: Path, add_run: AddRun) -> None:
    plant(tmp_path, add_run, loss=0.01, seed=0.001, classes=0.01)
    share = {"learning_rate": 0.75, "loss_options.margin": 0.25}
    SearchRecord(name="triplet", score="MAP@R", scores=(0.1, 0.3, 0.5), importance=share).write(tmp_path)
    SearchRecord(name="margin", score="MAP@R", scores=(0.4, 0.4, 0.4)).write(tmp_path)
    SearchRecord(name="unknown", score="MAP@R", scores=(0.0, 0.5, 1.0)).write(tmp_path)
    (tmp_path / "tuning" / "other.json").write_text("{}")
    searches = read_searches([tmp_path])
    assert [search.name for search in searches] == ["margin", "triplet", "unknown"]
    first = weigh_influences(leaderboards([tmp_path])[0], searches)[0]
    assert first.name == "settings"
    board = leaderboards([tmp_path])[0]
    scale = np.mean([entry.mean("MAP@R") / 0.5 for entry in board.entries])  # 0.5 is the score on validation classes
    assert first.deviation == pytest.approx(scale * np.sqrt(0.04 / 2))  # the mean of the two searches' variances
    assert first.parts == pytest.approx(share)
    assert list(first.parts) == ["learning_rate", "loss_options.margin"]


def test_rates_count_where_nothing_was_searched_for(tmp_path: Path, add_run: AddRun) -> None:
    for name, score in (("triplet", 0.4), ("margin", 0.5)):
        add_run(
            tmp_path,
            name,
            classes=[score, score + 0.1],
            validation=score + 0.05,
            rates={1e-4: 0.1, 3e-4: 0.3, 1e-3: 0.5, 3e-3: None},
        )
    first = weigh_influences(leaderboards([tmp_path])[0])[0]
    assert (first.name, first.levels) == ("learning rate", 3)
    assert first.deviation == pytest.approx(0.2)


def test_one_seed_says_nothing_of_seeds_and_one_loss_nothing_at_all(tmp_path: Path, add_run: AddRun) -> None:
    plant(tmp_path / "one", add_run, loss=0.05, seed=0.0, classes=0.1, seeds=1)
    assert {one.name for one in weigh_influences(leaderboards([tmp_path / "one"])[0])} == {"loss", "test classes"}
    add_run(tmp_path / "alone", "triplet")
    assert weigh_influences(leaderboards([tmp_path / "alone"])[0]) == []
