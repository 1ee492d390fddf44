from __future__ import annotations

import numpy as np
import pytest

from vicinal.errors import InputError
from vicinal.stats import split_variance

pytestmark = pytest.mark.unit


def test_two_factors_are_the_closed_form() -> None:
    table = np.random.default_rng(0).random((4, 7))
    rows, columns = table.mean(axis=1), table.mean(axis=0)
    between = 7 * ((rows - table.mean()) ** 2).sum() / 3
    rest = ((table - rows[:, None] - columns + table.mean()) ** 2).sum() / (3 * 6)
    found = split_variance(table + 10 * np.arange(4)[:, None], ["loss", "class"])
    moved = split_variance(table, ["loss", "class"])
    assert moved["loss",] == pytest.approx(max(0.0, (between - rest) / 7))
    assert moved["loss", "class"] == pytest.approx(rest)
    assert found["loss",] > 100  # the variance of 0, 10, 20, 30 is 167
    assert found["class",] == pytest.approx(moved["class",])


def test_planted_variances_come_back() -> None:
    generator = np.random.default_rng(1)
    planted = {"loss": 3.0, "seed": 1.0, "class": 5.0, "loss seed": 2.0, "loss class": 0.5, "rest": 0.3}
    shapes = {"loss": (6, 1, 1), "seed": (1, 5, 1), "class": (1, 1, 8)}
    shapes |= {"loss seed": (6, 5, 1), "loss class": (6, 1, 8), "rest": (6, 5, 8)}
    total: dict[tuple[str, ...], float] = {}
    tables = 400
    for _ in range(tables):
        table = sum(np.sqrt(planted[name]) * generator.standard_normal(shape) for name, shape in shapes.items())
        for names, variance in split_variance(np.asarray(table), ["loss", "seed", "class"]).items():
            total[names] = total.get(names, 0.0) + variance / tables
    means = {" ".join(names): value for names, value in total.items()}
    assert list(means) == ["loss", "seed", "class", "loss seed", "loss class", "seed class", "loss seed class"]
    for name, truth in {**planted, "loss seed class": 0.3, "seed class": 0.0}.items():
        if name != "rest":  # a little above the truth, since estimates below 0 are cut
            assert means[name] == pytest.approx(truth, rel=0.12, abs=0.03)


def test_a_factor_with_one_level_is_left_out() -> None:
    table = np.random.default_rng(2).random((3, 1, 5))
    assert split_variance(table, ["loss", "seed", "class"]) == split_variance(table[:, 0], ["loss", "class"])
    assert split_variance(np.ones((1, 1)), ["loss", "seed"]) == {}


def test_equal_scores_have_no_variance_and_gaps_are_refused() -> None:
    assert sum(split_variance(np.full((2, 3), 0.4), ["loss", "class"]).values()) == pytest.approx(0, abs=1e-30)
    with pytest.raises(InputError, match="with gaps"):
        split_variance(np.array([[1.0, np.nan]]), ["loss", "class"])
    with pytest.raises(InputError, match="shape"):
        split_variance(np.ones((2, 2)), ["loss"])
