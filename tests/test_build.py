"""Recipes into objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.data import Dataset, RandomAffine, RandomResizedCrop, arrays, digits
from vicinal.errors import InputError, UnknownName
from vicinal.references import Batch, Cover, Hierarchy, Memory, OneHot, Proxies
from vicinal.runs.build import build_criterion, build_embedder, build_sampler, train_transform
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.unit

SMALL = {"backbone_options": {"widths": [4, 8], "size": 16}, "dim": 3}


@pytest.fixture(scope="module")
def images() -> Dataset:
    return digits().of_classes([0, 1, 2])


@pytest.fixture(scope="module")
def vectors() -> Dataset:
    return arrays(np.random.default_rng(0).normal(size=(20, 7)).astype(np.float32), np.arange(20) % 4)


def test_the_seed_decides_the_weights(images: Dataset) -> None:
    one, same, other = (build_embedder(Recipe.of({**SMALL, "seed": seed}), images) for seed in (0, 0, 1))
    assert all(map(torch.equal, one.state_dict().values(), same.state_dict().values()))
    assert not torch.equal(one.head.linear.weight, other.head.linear.weight)


def test_what_is_frozen(images: Dataset) -> None:
    def trained(**changes: object) -> set[str]:
        embedder = build_embedder(Recipe.of({**SMALL, **changes}), images)
        return {name for name, parameter in embedder.named_parameters() if parameter.requires_grad}

    head = {"head.linear.weight", "head.linear.bias"}
    assert trained(freeze=True) == trained(train_stages=0) == head
    assert trained(train_stages=1) == head | {
        f"backbone.blocks.1.{name}" for name in ("0.weight", "1.weight", "1.bias")
    }
    assert trained(freeze_batch_norm=True) == head | {"backbone.blocks.0.0.weight", "backbone.blocks.1.0.weight"}


def test_vectors_need_a_linear_backbone_and_images_must_not_have_it(images: Dataset, vectors: Dataset) -> None:
    assert build_embedder(Recipe(backbone="linear", dim=3), vectors).backbone.channels == 7
    with pytest.raises(
        InputError, match=r"holds feature vectors; backbone 'convnet' takes images: use backbone='linear'"
    ):
        build_embedder(Recipe(), vectors)
    with pytest.raises(InputError, match=r"digits holds images, and backbone 'linear' takes feature vectors"):
        build_embedder(Recipe(backbone="linear"), images)


def test_references(images: Dataset) -> None:
    def kinds(**changes: object) -> list[type]:
        return [type(module) for module in build_criterion(Recipe.of(changes), images, 3).references]

    assert kinds(loss="contrastive") == [Batch]
    assert kinds(loss="contrastive", memory=10) == [Batch, Memory]
    assert kinds(loss="proxy_anchor") == [Proxies]
    assert kinds(loss="metric_cross_entropy") == [OneHot]
    assert kinds(loss="proxy_anchor", memory=10) == [Proxies, Memory]


def test_proxies_and_memory_are_made_as_the_recipe_says(images: Dataset) -> None:
    recipe = Recipe.of(
        {"loss": "proxy_nca", "proxies_per_class": 2, "proxy_multiplier": 7.0, "memory": 9, "memory_start": 5}
    )
    proxies, memory = build_criterion(recipe, images, 3).references
    assert proxies.vectors.shape == (6, 3)
    assert proxies.learning_rate_multiplier == 7.0
    assert (len(memory.labels), memory.start) == (9, 5)


def test_losses_on_class_probabilities_get_an_embedder_of_them(images: Dataset) -> None:
    recipe = Recipe.of({**SMALL, "loss": "cross_entropy", "dim": 64})
    embedder = build_embedder(recipe, images)
    probabilities = embedder.encode(images.subset([0, 1]))
    assert probabilities.shape == (2, 3)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    assert build_criterion(recipe, images, embedder.dim)(torch.from_numpy(probabilities), torch.tensor([0, 1])) > 0


def test_options_and_mining_reach_the_criterion(images: Dataset) -> None:
    values = {
        "loss": "triplet",
        "loss_options": {"margin": 0.3},
        "mining": "semi_hard",
        "mining_options": {"margin": 0.2},
    }
    criterion = build_criterion(Recipe.of(values), images, 3)
    assert criterion.options == {"margin": 0.3}
    assert criterion.mining_options == {"margin": 0.2}
    with pytest.raises(UnknownName, match=r"Unknown option of triplet 'margn'; did you mean 'margin'"):
        build_criterion(Recipe.of({"loss": "triplet", "loss_options": {"margn": 1}}), images, 3)


def test_an_alias_is_its_loss(images: Dataset) -> None:
    assert build_criterion(Recipe(loss="info_nce"), images, 3).name == "nt_xent"


@pytest.mark.parametrize("loss", ["multi_similarity", "contrastive", "triplet"])
def test_on_the_ball_lengths_count(loss: str, images: Dataset) -> None:
    criterion = build_criterion(Recipe(loss=loss, normalisation="ball"), images, 2)
    assert criterion.normalise == "ball"
    labels = torch.tensor([0, 0, 1, 1])
    long = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-0.8, 0.6]])
    assert criterion(long, labels) != criterion(0.5 * long, labels)


@pytest.mark.parametrize("name", ["classes", "random", "hard-classes"])
def test_samplers_give_batches_of_the_size_that_is_asked(name: str, images: Dataset) -> None:
    recipe = Recipe(sampler=name, classes_per_batch=3, samples_per_class=5)
    sampler = build_sampler(recipe, images)
    batches = list(sampler)
    assert {len(batch) for batch in batches} == {15}
    assert 0.8 * len(images) < 15 * len(batches) < 1.2 * len(images)
    assert sampler.wants_embeddings == (name == "hard-classes")


def test_too_many_classes_are_refused(images: Dataset) -> None:
    with pytest.raises(InputError, match="3 classes with at most 4 items of each cannot fill a batch of 8 x 4"):
        build_sampler(Recipe(), images)


def test_transforms_fit_the_backbone(images: Dataset, vectors: Dataset) -> None:
    recipe = Recipe.of(SMALL)
    assert train_transform(recipe, build_embedder(recipe, images)) == RandomAffine(16, pixels="grey")
    named = Recipe.of({**SMALL, "images": "thesis"})
    found = train_transform(named, build_embedder(named, images))
    assert isinstance(found, RandomResizedCrop)
    assert (found.size, found.pixels) == (16, "grey")
    linear = Recipe(backbone="linear")
    assert train_transform(linear, build_embedder(linear, vectors)) is None


def test_a_run_may_start_from_a_saved_embedder(images: Dataset, tmp_path: Path) -> None:
    former = build_embedder(Recipe.of({**SMALL, "seed": 7}), images)
    former.save(tmp_path / "former")
    start = {"start": str(tmp_path / "former")}
    begun = build_embedder(Recipe.of({**SMALL, **start}), images)
    assert all(map(torch.equal, begun.state_dict().values(), former.state_dict().values()))
    with pytest.raises(InputError, match="3 dimensions, which does not fit a convnet with 5"):
        build_embedder(Recipe.of({**SMALL, **start, "dim": 5}), images)


def test_an_option_may_be_learned(vectors: Dataset) -> None:
    recipe = Recipe.of({"loss": "margin", "backbone": "linear", "loss_options": {"boundary": {"start": 1.2}}})
    learned = build_criterion(Recipe.of(recipe.model_dump()), vectors, 3).learned["boundary"]
    assert learned.shape == ()
    assert learned.item() == pytest.approx(1.2)
    assert "start = 1" in Recipe.of({"loss": "margin", "boundary": {"start": 1}}).toml()
    per_class = recipe.changed({"loss_options.boundary": {"start": 1.2, "per_class": True}})
    assert build_criterion(per_class, vectors, 3).learned["boundary"].shape == (4,)
    for table in ({"start": "x"}, {"begin": 1.0}, {}, {"start": True}):
        with pytest.raises(InputError, match=r"boundary = \{start = 1.2\}"):
            build_criterion(recipe.changed({"loss_options.boundary": table}), vectors, 3)


@pytest.mark.parametrize("value", ["abc", None, [1], True, float("nan")])
def test_an_option_of_the_wrong_kind_is_refused(value: object, vectors: Dataset) -> None:
    recipe = Recipe(loss="triplet", backbone="linear", loss_options={"margin": value})
    with pytest.raises(InputError, match=r"triplet: margin must be a number, such as 0.1; got"):
        build_criterion(recipe, vectors, 3)
    recipe = Recipe(loss="triplet", backbone="linear", mining="random", mining_options={"positives": value})
    with pytest.raises(InputError, match="positives must be a number"):
        build_criterion(recipe, vectors, 3)


def test_a_learned_option_may_have_a_rate_of_its_own(vectors: Dataset) -> None:
    table = {"boundary": {"start": 1.2, "multiplier": 0.5}}
    recipe = Recipe.of({"loss": "margin", "backbone": "linear", "loss_options": table, "learning_rate": 1e-3})
    (group,) = build_criterion(recipe, vectors, 3).parameter_groups()
    assert group["multiplier"] == 0.5
    with pytest.raises(InputError, match="multiplier for its learning rate"):
        build_criterion(recipe.changed({"loss_options.boundary": {"start": 1.2, "multiplier": 0}}), vectors, 3)


def test_a_hierarchy_groups_the_proxies(vectors: Dataset) -> None:
    recipe = Recipe.of({"loss": "proxy_anchor", "hierarchy": 25, "hierarchy_weight": 0.3})
    criterion = build_criterion(recipe, vectors, 3)
    proxies, groups = criterion.references
    assert (type(proxies), type(groups), groups.groups, criterion.term_weights) == (Proxies, Hierarchy, 2, (1.0, 0.3))
    assert groups.proxies is proxies
    assert recipe.method == "proxy_anchor+hierarchy"
    with pytest.raises(InputError, match="hierarchy groups proxies, and triplet has none"):
        build_criterion(Recipe.of({"loss": "triplet", "hierarchy": 2}), vectors, 3)


@pytest.mark.parametrize("loss", ["proxy_gram", "proxy_repulsion", "soft_triple"])
def test_a_memory_of_losses_on_proxies_alone_holds_anchors(loss: str, vectors: Dataset) -> None:
    criterion = build_criterion(Recipe.of({"loss": loss, "memory": 6, "proxies_per_class": 2}), vectors, 3)
    assert [type(module) for module in criterion.references] == [Proxies]
    assert isinstance(criterion.past_anchors, Memory)


def test_a_cover_stands_beside_the_batch(vectors: Dataset) -> None:
    recipe = Recipe.of({"loss": "triplet", "cover": 2})
    batch, cover = build_criterion(recipe, vectors, 3).references
    assert (type(batch), type(cover), cover.per_class) == (Batch, Cover, 2)
    assert recipe.method == "triplet+cover"
