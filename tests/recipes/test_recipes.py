"""Every recipe that is shipped can be read, is whole, says what its paper says, and can be built."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vicinal.data import PROTOCOLS, READERS, Dataset
from vicinal.errors import DataError, InputError
from vicinal.mining import valid_triplets
from vicinal.recipes import (
    SHIPPED,
    describe_recipe,
    expand,
    find_recipe,
    find_space,
    losses_beside,
    recipe_names,
    space_names,
)
from vicinal.references import Memory
from vicinal.runs.build import build_criterion, build_embedder, build_sampler
from vicinal.runs.recipe import Recipe, laid_over, read_tables

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
CONDITIONS = [name for name in recipe_names() if "/losses/" not in name]
LOSSES = [name for name in recipe_names() if "/losses/" in name]
OF_A_LOSS = {"loss", "loss_options", "mining", "mining_options", "memory", "memory_start", "ccp"}
OF_A_LOSS |= {"cover", "cover_pool", "cover_every", "hierarchy", "hierarchy_weight"}
OF_A_LOSS |= {"proxies_per_class", "proxy_multiplier", "sampler", "classes_per_batch", "samples_per_class"}
LABELS = np.repeat(np.arange(80), 5)
DATA = Dataset(np.zeros((len(LABELS), 8, 8), dtype=np.uint8), LABELS, tuple(map(str, range(80))))


@cache
def read(*names: str) -> Recipe:
    return Recipe.read(*names)


# Each is whole.


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_carry_data_protocol_network_and_cost(name: str) -> None:
    given, recipe, summary = read_tables(name), read(name), describe_recipe(name)
    assert {"data", "protocol", "backbone", "dim", "classes_per_batch", "samples_per_class", "steps"} <= set(given)
    assert not {"loss", "loss_options", "mining", "memory", "ccp", "on", "fold"} & set(given)
    assert (summary.data, summary.protocol, summary.backbone) == (recipe.data, recipe.protocol, recipe.backbone)
    assert (summary.dim, summary.freeze, summary.select_on_test) == (recipe.dim, recipe.freeze, recipe.select_on_test)
    assert summary.images_seen == recipe.training.steps * recipe.classes_per_batch * recipe.samples_per_class
    assert summary.stops_early == (recipe.training.patience is not None)
    assert recipe.data in READERS
    assert recipe.protocol in PROTOCOLS
    assert not recipe.select_on_test or recipe.protocol == "default"
    assert recipe.weights in (None, "imagenet")  # a file of weights is given on the command line


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_header_of_conditions_says_what_whence_and_how_long(name: str) -> None:
    header = [line for line in find_recipe(name).read_text().splitlines() if line.startswith("#")]
    assert header[0] == f"# {describe_recipe(name).about}"
    assert header[1].startswith("# Source: ")
    assert header[2].startswith("# Cost: ")


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_says_only_what_belongs_to_it(name: str) -> None:
    given = tomllib.loads(find_recipe(name).read_text())
    special = given.pop("on", {})
    assert set(given) <= OF_A_LOSS
    assert set(special) <= set(READERS)
    for settings in special.values():
        assert set(settings.pop("training", {})) <= {"warm_up"}
        assert set(settings) <= OF_A_LOSS
    assert describe_recipe(name).about
    assert describe_recipe(name).loss == given["loss"]


# Each can be built.


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_with_each_loss_build_criterion_and_batches(name: str) -> None:
    for recipe in (read(name), *(read(name, loss) for loss in losses_beside(name))):
        criterion = build_criterion(recipe, DATA, recipe.dim or 8)
        assert bool(recipe.memory) == any(isinstance(module, Memory) for module in criterion.references)
        batch = next(iter(build_sampler(recipe, DATA)))
        assert len(batch) == recipe.classes_per_batch * recipe.samples_per_class
        assert Recipe.of(tomllib.loads(recipe.toml())) == recipe


NETWORKS = {describe_recipe(name).backbone: name for name in CONDITIONS}


@pytest.mark.parametrize("name", list(NETWORKS.values()), ids=list(NETWORKS))
def test_the_networks_can_be_built(name: str) -> None:
    with torch.device("meta"):
        embedder = build_embedder(read(name).changed(weights=None), DATA)
    assert embedder.dim == read(name).dim


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_protocol_divides_the_classes(name: str) -> None:
    recipe = read(name)
    folds = PROTOCOLS[recipe.protocol]
    halves = recipe.changed(fold=None if folds is None else folds - 1).split(DATA)
    assert (halves.validation is None) == (recipe.protocol == "default")


# Conditions are shared, whatever the loss; tables by dataset count where they should.


@pytest.mark.parametrize("name", CONDITIONS)
def test_losses_leave_the_conditions_alone(name: str) -> None:
    conditions = set(Recipe.model_fields) - OF_A_LOSS - {"training"}
    for loss in losses_beside(name):
        laid, alone = read(name, loss), read(name)
        assert laid.model_dump(include=conditions) == alone.model_dump(include=conditions)
        assert laid.training == alone.training.model_copy(update={"warm_up": laid.training.warm_up})


def test_tables_by_dataset_count_on_that_dataset_only() -> None:
    own = {"loss": "triplet", "loss_options": {"margin": 0.1, "which": "all"}}
    on = {"cub": {"loss_options": {"margin": 0.3}}, "sop": {"memory": 64}}
    top = {**own, "on": on}
    assert laid_over({"data": "cub"}, top)["loss_options"] == {"margin": 0.3, "which": "all"}
    assert laid_over({"data": "sop"}, top) == {"data": "sop", **own, "memory": 64}
    assert laid_over({"data": "glyphs"}, top) == {"data": "glyphs", **own}
    assert laid_over(laid_over({}, top), {"data": "sop"}) == {**own, "data": "sop", "memory": 64}  # known later
    assert "on" not in laid_over(top, {"loss": "circle"})  # what a loss had does not fit another
    assert Recipe.of(top).loss_options == own["loss_options"]
    assert Recipe(data="cub").changed(top).value("margin") == 0.3
    with pytest.raises(InputError, match=r"on\.cub must be a table of settings; got 3"):
        laid_over({"data": "cub"}, {"on": {"cub": 3}})
    with pytest.raises(InputError, match="Unknown setting 'on'"):
        Recipe.of({"on": 3})
    with pytest.raises(InputError, match="Unknown setting 'marjin'"):
        Recipe.of({"data": "cub", "on": {"cub": {"marjin": 1}}})


# What the papers say.

# Gurbuz et al. 2024, supplement: hyper-parameters. XBM in batches of 32; proxies and pool of CCP.
DATASETS = ("cub", "cars196", "inshop", "sop")
EVERY = dict(zip(DATASETS, (25, 25, 250, 250), strict=True))
OPTIONS: dict[str, tuple[dict[str, float], ...]] = {
    "c1": ({"threshold": 0.5},) * 4,
    "c2": tuple(
        {"positive_margin": positive, "negative_margin": negative}
        for positive, negative in ((0, 0.3841), (0.2652, 0.5409), (0.2858, 0.5130), (0.2858, 0.5130))
    ),
    "ms": tuple(
        {"positive_scale": positive, "negative_scale": negative, "threshold": threshold}
        for positive, negative, threshold in ((2, 40, 0.5), (14.35, 75.83, 0.66), (8.49, 57.38, 0.41), (2, 40, 0.5))
    ),
    "triplet": tuple({"margin": margin} for margin in (0.0961, 0.1190, 0.0451, 0.0451)),
}
BATCHES = {"xbm-s": (3, 3, 100, 400), "xbm-l": (25, 25, 400, 1400)}
PROXIES_AND_POOL = ((8, 12), (8, 12), (4, 7), (4, 7))


@pytest.mark.parametrize("column", range(4), ids=DATASETS)
@pytest.mark.parametrize("loss", losses_beside("ccp/cub"))
def test_ccp_is_as_in_its_table(loss: str, column: int) -> None:
    recipe = read(f"ccp/{DATASETS[column]}", loss)
    base, _, extra = loss.rpartition("/")[2].partition("-")
    assert recipe.loss_options == OPTIONS[base][column]
    assert (recipe.memory, recipe.memory_start) == ((BATCHES[extra][column] * 32, 1000) if extra in BATCHES else (0, 0))
    assert (recipe.ccp is None) == (extra != "ccp")
    if recipe.ccp is not None:
        assert (recipe.ccp.proxies_per_class, recipe.ccp.pool) == PROXIES_AND_POOL[column]
        assert (recipe.ccp.proximal_weight, recipe.ccp.pair_weight, recipe.ccp.monitor) == (2e-4, 0.1, "stale")


@pytest.mark.parametrize("study", ["ccp", "reality-check"])
@pytest.mark.parametrize("data", DATASETS)
def test_the_conditions_of_the_reality_check(study: str, data: str) -> None:
    recipe = read(f"{study}/{data}")
    assert (recipe.data, recipe.protocol, recipe.backbone, recipe.dim) == (data, "reality-check", "bn_inception", 128)
    assert (recipe.classes_per_batch, recipe.samples_per_class, recipe.freeze_batch_norm) == (8, 4, True)
    assert recipe.normalisation == ("ball" if study == "ccp" else "sphere")
    loop = recipe.training
    assert (loop.optimiser, loop.learning_rate, loop.weight_decay, loop.warm_up) == ("adam", 1e-5, 1e-4, 0)
    assert (loop.evaluate_every, loop.patience, loop.score) == (EVERY[data], 60, "MAP@R")


# Images of the training classes; three of four folds train.
TRAINING_IMAGES = dict(zip(DATASETS, (5_864, 8_054, 25_882, 59_551), strict=True))
SOFT_TRIPLE = {
    "cub": (20, 0.1, 0.2, 0.01),
    "cars196": (17.69, 19.18, 0.0669, 0.3588),
    "inshop": (20, 0.1, 0.2, 0.01),
    "sop": (100, 47.9, 0.2, 0.3145),
}


@pytest.mark.parametrize("data", DATASETS)
@pytest.mark.parametrize("loss", losses_beside("reality-check/cub"))
def test_proxies_of_the_reality_check(loss: str, data: str) -> None:
    recipe = read(f"reality-check/{data}", loss)
    assert (recipe.classes_per_batch, recipe.samples_per_class, recipe.proxy_multiplier) == (32, 1, 100)
    assert recipe.training.warm_up == pytest.approx(0.75 * TRAINING_IMAGES[data] / 32, abs=1)  # an epoch
    expected: dict[str, Any] = {
        "proxy_anchor": {"margin": 0.1, "scale": 32},
        "proxy_nca_pp": {"temperature": 0.1},
    }
    assert bool(recipe.hierarchy) == loss.endswith("/hpl")
    scale, temperature, merging, margin = SOFT_TRIPLE[data]
    expected["soft_triple"] = {"scale": scale, "centre_temperature": temperature, "margin": margin}
    expected["soft_triple"]["regularisers"] = {"centre_merging": merging}
    assert recipe.loss_options == expected[recipe.loss]
    assert recipe.proxies_per_class == (10 if recipe.loss == "soft_triple" else 1)


# Psomas 2020, Table 3: learning rate, factor, and epochs between two drops with ResNet-50, BN-Inception, GoogLeNet.
TABLE_3 = {"cub": (1e-4, 0.1, (5, 10, 10)), "cars196": (1e-4, 0.1, (10, 20, 20)), "sop": (6e-4, 0.25, (10, 20, 20))}


@pytest.mark.parametrize("data", list(TABLE_3))
@pytest.mark.parametrize(("column", "network"), list(enumerate(("resnet50", "bn_inception", "googlenet"))))
def test_the_thesis_is_as_in_its_table_3(data: str, column: int, network: str) -> None:
    recipe, (rate, factor, epochs) = read(f"thesis/{data}-{network}"), TABLE_3[data]
    loop = recipe.training
    epoch = loop.steps // 100
    assert (loop.learning_rate, loop.schedule_factor, loop.schedule_every) == (rate, factor, epochs[column] * epoch)
    assert (loop.optimiser, loop.weight_decay, loop.clip_value, loop.score) == ("adamw", 1e-4, 10, "P@1")
    assert loop.warm_up == loop.evaluate_every == epoch
    assert recipe.classes_per_batch * recipe.samples_per_class == (100 if network == "resnet50" else 180)
    assert (recipe.data, recipe.protocol, recipe.select_on_test) == (data, "default", True)
    assert (recipe.backbone, recipe.dim, recipe.pooling, recipe.images) == (network, 512, "both", "thesis")


# Psomas 2020, Tables 4 and 5: options, what is learned at a rate of its own (absolute), and the miner.
TABLE_4: dict[str, tuple[dict[str, float], float | None, str | None]] = {
    "contrastive": ({"threshold": 0.5}, None, None),
    "triplet": ({"margin": 0.1}, None, "semi_hard"),
    "lifted_structure": ({"margin": 0.5}, None, "valid_triplets"),
    "n_pair": ({}, None, None),
    "proxy_nca": ({}, 1e-5, None),
    "margin": ({"margin": 0.5}, 5e-5, "distance_weighted"),
    "arcface": ({"margin_degrees": 28.6, "scale": 64}, 1e-4, None),
    "multi_similarity": ({"threshold": 0.5, "positive_scale": 2, "negative_scale": 50}, None, "valid_triplets"),
    "soft_triple": ({"margin": 0.1, "scale": 20, "centre_temperature": 0.1}, 1e-4, None),
    "proxy_anchor": ({"margin": 0.1, "scale": 32}, None, None),
}


@pytest.mark.parametrize("data", list(TABLE_3))
@pytest.mark.parametrize("loss", list(TABLE_4))
def test_the_thesis_is_as_in_its_tables_4_and_5(data: str, loss: str) -> None:
    recipe, (options, rate, miner) = read(f"thesis/{data}-bn_inception", f"thesis/losses/{loss}"), TABLE_4[loss]
    assert {name: recipe.value(name) for name in options} == options
    assert miner in (recipe.mining, recipe.loss_options.get("which"))
    groups = build_criterion(recipe, DATA, 8).parameter_groups()
    if rate is not None:
        assert [group["multiplier"] * recipe.training.learning_rate for group in groups] == [pytest.approx(rate)]
    if loss == "margin":
        assert recipe.loss_options["boundary"]["start"] == 1.2
    if loss == "n_pair":
        assert recipe.loss_options["regularisers"] == {"embedding_norm": 0.02}
    if loss == "soft_triple":
        assert recipe.loss_options["regularisers"] == {"centre_merging": 0.2}
        assert recipe.proxies_per_class == 2


def test_the_thesis_has_its_own_loss_as_in_its_code() -> None:
    recipe = read("thesis/cub-bn_inception", "thesis/losses/proxy_gram")
    assert recipe.loss_options == {"margin": 0.1, "scale": 32}
    assert not recipe.value("batch_mean")
    assert (recipe.proxy_multiplier, recipe.proxies_per_class, recipe.sampler, recipe.dim) == (100, 1, "random", 512)


# Seed rows of "A unified view of deep metric learning via gradient analysis", Table 1.
TABLE_1 = {
    "binomial": ("binomial_deviance", None),
    "raw": ("raw", None),
    "vthm": ("contrastive", "valid_triplets"),
    "binomial-vthm": ("binomial_deviance", "valid_triplets"),
    "raw-distance_weighted": ("raw", "distance_weighted"),
    "raw-semi_hard": ("raw", "semi_hard"),
    "raw-vthm": ("raw", "valid_triplets"),
}


def test_pair_weighting_has_the_seven_rows_of_its_table_1() -> None:
    assert {Path(name).stem for name in losses_beside("pair-weighting/cub")} == set(TABLE_1)
    for name, row in TABLE_1.items():
        recipe = read("pair-weighting/cub", f"pair-weighting/losses/{name}")
        assert (recipe.loss, recipe.mining) == row
    assert read("pair-weighting/cub", "pair-weighting/losses/vthm").loss_options == {"threshold": -1.0}


def test_vthm_alone_weighs_every_kept_pair_the_same() -> None:
    criterion = build_criterion(read("pair-weighting/losses/vthm"), DATA, 8)
    points = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(12) % 4
    matrix = torch.nn.functional.normalize(points) @ torch.nn.functional.normalize(points).T
    leaf = matrix.clone().requires_grad_()
    same = labels[:, None] == labels
    positive, negative = valid_triplets(matrix, same & ~torch.eye(12, dtype=torch.bool), ~same, margin=0.1)
    criterion.objective(leaf, positive, negative, **criterion.options).backward()
    expected = (negative.float() - positive.float()) / 12
    torch.testing.assert_close(leaf.grad, expected)


@pytest.mark.parametrize(("data", "samples"), [("cub", 5), ("cars196", 5), ("sop", 4), ("inshop", 4)])
def test_pair_weighting_is_as_in_its_section_6(data: str, samples: int) -> None:
    recipe = read(f"pair-weighting/{data}", "pair-weighting/losses/raw-vthm")
    assert (recipe.loss_options, recipe.mining) == (
        {"positive_scale": 2, "negative_scale": 50, "threshold": 0.5},
        "valid_triplets",
    )
    assert (recipe.classes_per_batch * samples, recipe.samples_per_class, recipe.dim) == (80, samples, 512)
    assert (recipe.training.optimiser, recipe.training.learning_rate) == ("adam", 1e-5)
    assert (recipe.data, recipe.protocol, recipe.select_on_test) == (data, "default", True)


def test_pair_weighting_on_two_cores_keeps_what_belongs_to_the_study() -> None:
    small, whole = read("pair-weighting/cub-trunk"), read("pair-weighting/cub")
    for name in ("dim", "pooling", "batch", "optimiser", "weight_decay", "clip_value", "freeze_batch_norm"):
        assert small.value(name) == whole.value(name), name
    assert (small.freeze, small.train_stages, small.select_on_test) == ("trunk", 1, False)
    assert len(losses_beside("pair-weighting/cub-trunk")) == 7


# Found by name.


def test_names_are_those_of_files_and_no_name_is_a_folder_too() -> None:
    names = [*recipe_names(), *space_names()]
    assert len(set(names)) == len(names)
    assert {SHIPPED / f"{name}.toml" for name in names} == set(SHIPPED.rglob("*.toml"))
    assert not [name for name in names if (SHIPPED / name).is_dir()]
    assert len({(read_tables(name)["data"], describe_recipe(name).about) for name in CONDITIONS}) == len(CONDITIONS)
    assert [find_recipe(name) for name in recipe_names()] == [SHIPPED / f"{name}.toml" for name in recipe_names()]


def test_a_search_space_is_no_recipe() -> None:
    assert space_names() == ["ccp/spaces/proxies"]
    assert not set(space_names()) & set(recipe_names())
    with pytest.raises(InputError, match="Unknown recipe 'ccp/spaces/proxies'"):
        find_recipe("ccp/spaces/proxies")
    with pytest.raises(InputError, match="Unknown search space 'ccp/cub'"):
        find_space("ccp/cub")


def test_an_unknown_name_comes_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"Unknown recipe 'thesis/cub-bninception'; did you mean 'thesis/cub-bn_inc"):
        find_recipe("thesis/cub-bninception")
    with pytest.raises(InputError, match=r"did you mean 'thesis/cub-resnet50'\?.* no such file"):
        find_recipe("recipes/thesis/cub-resnet50.toml")  # where they were before they came with the package
    with pytest.raises(InputError, match=r"Unknown recipe 'thesis/loses'; did you mean 'thesis/losses'\?"):
        expand("thesis/loses")
    with pytest.raises(InputError, match=r"Unknown recipe 'zzz'\. `vicinal recipes`"):
        expand("zzz")
    with pytest.raises(InputError, match=r"reality-check is a folder of recipes; name one of: reality-check/cars196, "):
        find_recipe("reality-check")


def test_a_file_is_found_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe("glyphs.toml") == SHIPPED / "glyphs.toml"
    Path("glyphs.toml").write_text('loss = "triplet"\n')
    assert find_recipe("glyphs.toml") == Path("glyphs.toml")
    assert find_recipe("glyphs") == SHIPPED / "glyphs.toml"


def test_folders_expand(tmp_path: Path) -> None:
    assert expand("thesis/losses") == expand("thesis/losses/") == losses_beside("thesis/sop-resnet50")
    assert {Path(name).stem for name in expand("thesis/losses")} == {*TABLE_4, "proxy_gram"}
    assert expand("glyphs") == ["glyphs"]
    with pytest.raises(InputError, match="holds no recipes"):
        expand(tmp_path)
    (tmp_path / "losses").mkdir()
    for name in ("mine.toml", "losses/b.toml", "losses/a.toml"):
        (tmp_path / name).write_text('# Mine.\nloss = "triplet"\nsteps = 3\n')
    assert expand(tmp_path) == [(tmp_path / "mine.toml").as_posix()]
    assert losses_beside(tmp_path / "mine.toml") == [(tmp_path / f"losses/{name}.toml").as_posix() for name in "ab"]
    summary = describe_recipe(tmp_path / "mine.toml")
    assert (summary.about, summary.loss, summary.data, summary.images_seen) == ("Mine.", "triplet", None, None)
    (tmp_path / "mine.toml").write_text("no toml")
    with pytest.raises(DataError, match="is not TOML"):
        describe_recipe(tmp_path / "mine.toml")


# Shipped.


def test_the_package_holds_them() -> None:
    assert (files("vicinal.recipes") / "thesis" / "losses" / "triplet.toml").is_file()
    # Hatch takes all files of a package but those that .gitignore or its own tables leave out.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["vicinal"]}
    assert set(project["tool"]["hatch"]["build"]) == {"targets"}
    assert not [line for line in (ROOT / ".gitignore").read_text().splitlines() if "toml" in line or "recipes" in line]


def test_names_and_summaries_need_no_torch() -> None:
    code = (
        "import sys, vicinal.recipes as recipes; [recipes.describe_recipe(name) for name in recipes.recipe_names()];"
        "import vicinal.cli.recipes; assert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_recipes_that_pages_name_exist() -> None:
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("examples/*.py"), *SHIPPED.rglob("*.toml")]
    studies = "|".join(sorted({name.partition("/")[0] for name in recipe_names() if "/" in name}))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"(?<!vicinal/)(?<!tests/)recipes/\w", text), page.name
        for name in re.findall(rf"(?<![\w/.-])(?:{studies})/[\w/-]+", text):
            assert name in [*recipe_names(), *space_names()] or expand(name), (page.name, name)
