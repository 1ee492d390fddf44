"""Every sentence that a reader of scores has to know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vicinal.data import Dataset, arrays, split
from vicinal.runs.notes import (
    batch_note,
    budget_note,
    colour_note,
    foreign_batch_note,
    proxies_note,
    random_network_note,
    share_note,
    undecided_note,
    validation_note,
)
from vicinal.runs.recipe import Recipe
from vicinal.spaces import options_for


def toy(classes: int, each: int = 3) -> Dataset:
    labels = np.repeat(np.arange(classes), each)
    return arrays(np.zeros((len(labels), 2), dtype=np.float32), labels)


def test_batches_that_shrank() -> None:
    asked = Recipe()
    assert batch_note(asked, asked, toy(5)) is None
    used = asked.changed(classes_per_batch=5, samples_per_class=3)
    said = batch_note(asked, used, toy(5))
    assert (
        said
        == "Batches are 5 classes x 3 items instead of 8 x 4, because there are only 15 training items of 5 classes."
    )


def test_too_few_classes_to_choose_by() -> None:
    assert validation_note(split(toy(12), "fixed-validation")) is None
    assert validation_note(split(toy(8), "default")) is None  # which asks for none
    few = validation_note(split(toy(8), "fixed-validation"))
    assert few is not None
    assert "4 training classes are too few to validate on three of them. The last step" in few
    folds = validation_note(split(toy(16), "reality-check", fold=0))
    assert folds is not None
    assert "8 training classes in 4 folds are fewer than three per fold" in folds
    roles = np.repeat(["train", "train", "validation", "test"], 3)
    data = toy(4)
    official = Dataset(data.items, data.labels, data.class_names, roles=roles)
    assert "it needs three classes and there are 1" in str(validation_note(split(official, "fixed-validation")))


def test_a_budget_that_trains_next_to_nothing() -> None:
    assert budget_note(15, toy(5)) is None
    assert "less than one epoch: 14 images for 15 training items" in str(budget_note(14, toy(5)))


def test_colours_that_are_not_seen() -> None:
    coloured = arrays(np.zeros((4, 90, 90, 3), dtype=np.uint8), [0, 0, 1, 1])
    assert "convnet sees these colour images in grey and at 32 x 32 pixels" in str(colour_note(Recipe(), coloured))
    assert colour_note(Recipe(backbone_options={"in_channels": 3}), coloured) is None
    assert colour_note(Recipe(backbone="resnet18"), coloured) is None
    assert colour_note(Recipe(), arrays(np.zeros((4, 90, 90), dtype=np.uint8), [0, 0, 1, 1])) is None
    ramp = np.tile(np.linspace(0, 255, 90), (4, 90, 1)).astype(np.uint8)
    assert "convnet sees these grey photographs at 32 x 32 pixels" in str(
        colour_note(Recipe(), arrays(ramp, [0, 0, 1, 1]))
    )


def test_batches_that_are_not_those_of_the_paper() -> None:
    alone = Recipe(loss="proxy_anchor", classes_per_batch=4, samples_per_class=2)
    assert str(foreign_batch_note(alone, toy(20))).startswith(
        "proxy_anchor ran with batches of 4 classes x 2 items. Its paper uses 1 item per class"
    )
    assert foreign_batch_note(alone, toy(5)) is None  # as near as five classes allow
    assert foreign_batch_note(alone.changed(batch="8x1"), toy(20)) is None
    assert foreign_batch_note(alone.changed(loss="triplet"), toy(20)) is None
    assert foreign_batch_note(alone.changed(sampler="random"), toy(20)) is None


def test_a_share_of_validation_classes_that_is_not_drawn() -> None:
    asked = Recipe(validation=0.3)
    assert share_note(asked, split(toy(20), "fixed-validation", validation=0.3)) is None
    said = share_note(asked, split(toy(20), "k-fold", fold=0, folds=2, validation=0.3))
    assert said == "validation = 0.3 is not used: protocol 'k-fold' validates on a fold, whose size `folds` sets."
    assert "'default' has no validation classes" in str(share_note(asked, split(toy(20), "default", validation=0.3)))
    assert share_note(Recipe(), split(toy(20), "default")) is None
    roles = np.repeat(np.array(["train", "validation", "test"]), 9)
    official = replace(toy(9), roles=roles)
    assert "has its own validation classes" in str(share_note(asked, split(official, "fixed-validation")))


def test_a_network_that_stands_still_as_it_was_drawn() -> None:
    images = arrays(np.zeros((4, 8, 8), dtype=np.uint8), [0, 0, 1, 1])
    assert str(random_network_note(Recipe(freeze=True), images)).startswith("The network is frozen with random weights")
    trunk = random_network_note(Recipe(freeze="trunk", train_stages=2), images)
    assert str(trunk).startswith("All of the network but its last 2 stages is frozen with random weights")
    assert "last 1 stage is frozen" in str(random_network_note(Recipe(train_stages=1), images))
    assert "LoRA matrices" in str(random_network_note(Recipe(lora_rank=4), images))
    assert random_network_note(Recipe(), images) is None
    assert random_network_note(Recipe(freeze=True), toy(3)) is None  # vectors go through no network
    assert random_network_note(Recipe(freeze=True, backbone="resnet18", weights="imagenet"), images) is None
    assert random_network_note(Recipe(freeze=True, start="runs/first/model"), images) is None


def test_a_metric_that_prefers_a_sure_mistake_to_doubt() -> None:
    metric = Recipe(loss="metric_cross_entropy")
    said = str(undecided_note(metric, toy(20)))
    assert said.startswith(
        "metric_cross_entropy with k = 0.5 and p = 0.75 can learn at most 8 classes from random weights"
    )
    assert "with 20 the loss is lowest" in said
    assert "options_for(20)" in said
    assert undecided_note(metric, toy(8)) is None
    assert undecided_note(metric.changed(loss_options=options_for(20)), toy(20)) is None
    assert undecided_note(metric.changed(start="runs/first/model"), toy(20)) is None
    assert undecided_note(Recipe(loss="weak_metric_cross_entropy"), toy(20)) is None


def test_one_proxy_per_class_has_no_spread() -> None:
    first = {"proxy cosine": 0.5}
    one = {"proxy spread": float("nan"), "proxy radius": 0.25}
    assert "nan" not in proxies_note(first, [one])
    assert "the only proxy of a class had a covering radius 0.250 and 0.250 at the end" in proxies_note(first, [one])
    several = proxies_note(first, [{"proxy spread": 0.1, "proxy radius": 0.25}])
    assert "were 0.100 and 0.100 apart at the end of the first and last instance" in several
