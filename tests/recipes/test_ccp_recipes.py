"""Chance-constrained proxies in a recipe: presets, mistakes, TOML and back, and the criterion they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from vicinal.data import digits, split
from vicinal.errors import InputError
from vicinal.references import Batch, Memory, Proxies
from vicinal.runs.build import build_criterion
from vicinal.runs.recipe import Recipe
from vicinal.training.settings import CCP, CCP_PRESETS

pytestmark = pytest.mark.unit

DIGITS = split(digits(), "fixed-validation", validation=0.6).train


def test_presets_are_the_paper_and_its_code() -> None:
    assert CCP() == CCP.model_validate("code") == Recipe.of({"ccp": "code"}).ccp
    paper = Recipe.of({"ccp": {"preset": "paper", "pool": 7}}).ccp
    assert paper == CCP(pair_weight=0.0, restart="best", monitor="fresh", pool=7)
    assert set(CCP_PRESETS) == {"code", "paper"}
    assert Recipe.of({"ccp": "code"}).changed(ccp="none").ccp is None


def test_a_pool_is_never_smaller_than_the_proxies() -> None:
    assert [CCP(pool=pool, proxies_per_class=4).pool_size for pool in (1, 3, 4, 12)] == [4, 12, 4, 12]


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match=r"ccp: Unknown preset of CCP 'papre'; did you mean 'paper'\?"):
        Recipe.of({"ccp": "papre"})
    with pytest.raises(InputError, match=r"Unknown setting of ccp 'pools'; did you mean 'pool'\?") as caught:
        Recipe.of({"ccp": {"pools": 3, "restart": "begin"}})
    assert "ccp.restart: Input should be 'best' or 'continue'; got 'begin'" in str(caught.value)


def test_a_recipe_with_ccp_comes_back_from_toml(tmp_path: Path) -> None:
    recipe = Recipe.of({"ccp": {"preset": "paper", "proximal_weight": 1e-5}, "loss": "triplet"})
    (tmp_path / "recipe.toml").write_text(recipe.toml())
    assert Recipe.read(tmp_path / "recipe.toml") == recipe
    assert "[ccp]" not in Recipe().toml()


def test_the_criterion_has_proxies_pairs_and_memory() -> None:
    recipe = Recipe.of({"loss": "triplet", "ccp": {"proxies_per_class": 3, "pair_weight": 0.2}, "memory": 10})
    criterion = build_criterion(recipe, DIGITS, 4)
    proxies, pairs, memory = criterion.references
    assert (proxies.per_class, proxies.classes, proxies.learning_rate_multiplier) == (3, len(DIGITS.classes), 1.0)
    assert isinstance(pairs, Batch)
    assert isinstance(memory, Memory)
    assert criterion.term_weights == (1.0, 0.2, 1.0)
    only = build_criterion(Recipe.of({"loss": "triplet", "ccp": "paper"}), DIGITS, 4)
    assert [type(module) for module in only.references] == [Proxies]
    # A loss that makes no sense on pairs runs on the proxies alone.
    centres = build_criterion(Recipe.of({"loss": "soft_triple", "ccp": "code"}), DIGITS, 4)
    assert [type(module) for module in centres.references] == [Proxies]


@pytest.mark.parametrize(
    ("name", "loss"), [("ccp/cub-frozen", "ccp/losses/c2-ccp"), ("ccp/omniglot", "ccp/losses/ms-ccp")]
)
def test_small_recipes_have_the_usual_proxies(name: str, loss: str) -> None:
    assert Recipe.read(name, loss).ccp == CCP()


def test_the_search_of_the_study_has_larger_pools() -> None:
    ccp = Recipe.read("ccp/cub", "ccp/losses/c2-ccp", **{"ccp.pool": 16}).ccp
    assert ccp == CCP(pool=16)
