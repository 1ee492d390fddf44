"""Ranges, choices, the spaces of every loss and miner, and settings by their dotted names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution

from vicinal.criterion import Criterion
from vicinal.errors import InputError
from vicinal.mining import MINERS
from vicinal.objectives import OBJECTIVES, options_of
from vicinal.runs.recipe import Recipe
from vicinal.training import CCP
from vicinal.tuning import Choice, Range, search_space
from vicinal.tuning.samplers import grid_plan
from vicinal.tuning.spaces import LOSS_SPACES, MINER_SPACES, flat_space, start_of

pytestmark = pytest.mark.unit


def test_levels_of_a_grid() -> None:
    assert Range(0.0, 1.0, step=0.1).levels() == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert Range(2.0, 100.0, log=True, step=2.0).levels() == tuple(float(level) for level in range(2, 101, 2))
    assert Range(1, 4).levels() == (1, 2, 3, 4)
    assert Range(5, 50, step=5).levels() == (5, 10, 15, 20, 25, 30, 35, 40, 45, 50)
    assert len(Range(1e-5, 1e-1, log=True).levels()) == 9


@given(st.floats(-10, 10), st.floats(0.1, 10), st.floats(0.05, 3))
def test_levels_stay_in_their_range(low: float, length: float, step: float) -> None:
    for grid in (Range(low, low + length, step=step), Range(low, low + length)):
        levels = grid.levels()
        assert list(levels) == sorted(set(levels))
        assert low - 1e-9 <= levels[0]
        assert levels[-1] <= low + length + 1e-9


def test_a_range_is_of_whole_numbers_where_its_ends_are() -> None:
    assert Range(1, 8).distribution() == IntDistribution(1, 8)
    assert Range(1.0, 8.0, log=True, step=1.0).distribution() == FloatDistribution(1.0, 8.0, log=True)


def test_ranges_and_choices_are_widened() -> None:
    assert Range(1.0, 2.0).including(0.5) == Range(0.5, 2.0)
    assert Range(1.0, 2.0).including(1.5) == Range(1.0, 2.0)
    assert Choice((1, 2)).including(3) == Choice((1, 2, 3))
    assert Choice((1, 2)).including(2) == Choice((1, 2))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Range(1.0, 1.0), "from a lower to a higher number; got 1.0 to 1.0"),
        (lambda: Range(0.0, 1.0, log=True), "starts above 0"),
        (lambda: Range(0.0, 1.0, step=0.0), "step of a range is above 0"),
        (lambda: Choice(("a",)), "at least two values"),
    ],
)
def test_bad_ranges(make: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()  # type: ignore[operator]


def test_all_mistakes_in_a_space_are_reported_at_once() -> None:
    with pytest.raises(InputError) as caught:
        flat_space({"dim": 3, "learning_rate": {"low": 1.0}, "steps": ["one"], "loss_options": {"margin": [1, 2]}})
    assert len(str(caught.value).splitlines()) == 1 + 3


def test_every_loss_and_miner_has_a_space_that_fits_it() -> None:
    assert set(OBJECTIVES) <= set(LOSS_SPACES)
    assert set(MINERS) <= set(MINER_SPACES)
    for table, spaces in ((OBJECTIVES, LOSS_SPACES), (MINERS, MINER_SPACES)):
        for name, function in table.items():
            defaults = options_of(function)
            for option, entry in spaces[name].items():
                assert option in defaults, (name, option)
                assert entry.including(defaults[option]) == entry, (name, option)  # the default lies inside


@pytest.mark.parametrize("loss", sorted(OBJECTIVES))
def test_losses_take_every_level_of_their_space(loss: str) -> None:
    recipe = Recipe(loss=loss)
    space = search_space(recipe)
    start = start_of(recipe, space)
    for _, name, level in grid_plan(space, start, trials=1000):
        changed = recipe.changed({**start, name: level})
        assert changed.value(name) == level
        if not name.startswith("loss_options"):
            continue
        try:
            Criterion(loss, classes=3, dim=3, **changed.loss_options)
        except InputError as error:  # of losses whose references cannot be made here
            assert "references" in str(error)  # noqa: PT017


def test_a_start_that_a_range_over_orders_of_magnitude_cannot_reach_is_named() -> None:
    recipe = Recipe(ccp=CCP(proximal_weight=0.0))
    with pytest.raises(InputError, match=r"ccp\.proximal_weight is 0 in the recipe.*or a list of values"):
        start_of(recipe, {"ccp.proximal_weight": Range(1e-6, 10.0, log=True)})


def test_the_grids_of_the_thesis() -> None:
    """Table 15: ranges and steps of margins and scales."""
    tenths, twos = tuple(level / 10 for level in range(11)), tuple(float(level) for level in range(2, 101, 2))
    for loss, names in {
        "multi_similarity": ("threshold", "positive_scale", "negative_scale"),
        "soft_triple": ("margin", "scale"),
        "proxy_anchor": ("margin", "scale"),
    }.items():
        for name in names:
            assert LOSS_SPACES[loss][name].levels() == (twos if "scale" in name else tenths)
    assert MINER_SPACES["valid_triplets"]["margin"].levels() == tenths


def test_a_grid_is_thinned_to_the_number_of_trials() -> None:
    space = {"a": Range(0.0, 1.0, step=0.01), "b": Range(0.0, 1.0, step=0.5)}
    plan = grid_plan(space, {"a": 0.0, "b": 0.0}, trials=13)
    assert [name for _, name, _ in plan] == ["a"] * 6 + ["b"] * 2
    levels = [level for _, name, level in plan if name == "a"]
    assert levels == sorted(levels)
    assert levels[-1] - levels[0] > 0.8
    assert {first for first, name, _ in plan if name == "b"} == {7}
    assert grid_plan(space, {"a": 0.0, "b": 0.0}, trials=1) == []


def test_settings_by_name() -> None:
    recipe = Recipe.of({"loss": "triplet", "ccp": "paper", "steps": 7})
    assert recipe.value("steps") == recipe.value("training.steps") == 7
    assert recipe.value("ccp.proximal_weight") == 2e-4
    assert list(search_space(recipe))[-2:] == ["ccp.proximal_weight", "ccp.proxies_per_class"]
    changed = recipe.changed({"ccp.proxies_per_class": 3, "training.steps": 9})
    assert changed.ccp is not None
    assert (changed.ccp.proxies_per_class, changed.ccp.restart, changed.training.steps) == (3, "best", 9)


def test_batches_are_searched_at_the_same_number_of_images() -> None:
    recipe = Recipe.of({"loss": "proxy_anchor", "batch": "16x4"})
    assert search_space(recipe, classes=100)["batch"] == Choice(("16x4", "64x1", "32x2", "8x8"))
    assert search_space(recipe, classes=20)["batch"] == Choice(("16x4", "8x8"))
    assert "64x1" not in search_space(recipe.changed(loss="triplet"), classes=100)["batch"].values
    assert "batch" not in search_space(recipe.changed(sampler="random"), classes=100)
    assert recipe.changed({"batch": "32x2"}).samples_per_class == 2
