"""Every recipe that is shipped can be read, and its loss can be built."""

from pathlib import Path

import numpy as np
import pytest

from vicinal.build import build_criterion, build_sampler
from vicinal.comparing.contestants import contestants, flat
from vicinal.data import Dataset
from vicinal.recipe import read_recipe, recipe_from

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1] / "recipes"
FILES = sorted(path for path in ROOT.rglob("*.toml") if path.name != "space.toml")  # a search space is no recipe
LABELS = np.repeat(np.arange(40), 5)
DATA = Dataset(np.zeros((len(LABELS), 8, 8), dtype=np.uint8), LABELS, tuple(map(str, range(40))))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_builds_its_criterion(path):
    recipe = recipe_from(read_recipe(path))
    build_criterion(recipe, DATA, recipe.dim or 8)
    build_sampler(recipe, DATA)
    assert recipe.weights in (None, "imagenet")  # a file of weights is given on the command line


@pytest.mark.parametrize("study", ["thesis", "pair-weighting"])
def test_the_losses_of_a_study_share_its_conditions(study):
    base = next(path for path in sorted((ROOT / study).glob("*.toml")))
    found = contestants([ROOT / study / "losses"], read_recipe(base))
    shared = {name: value for name, value in flat(read_recipe(base)).items() if value != "none"}
    for one in found:
        assert flat(one.recipe.model_dump()).items() >= shared.items()
