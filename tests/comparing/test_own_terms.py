"""Every method as its paper trains it, with as many images as the others."""

import numpy as np
import pytest

from vicinal.comparing import compare
from vicinal.comparing.contestants import demands_after_search, drafts
from vicinal.comparing.plan import plan, with_paper_settings
from vicinal.data import arrays
from vicinal.objectives import OBJECTIVES, traits_of
from vicinal.runs.draft import Budget, settled_recipe, suited_recipe
from vicinal.sampling import composition

pytestmark = pytest.mark.recipe
BASE = {"classes_per_batch": 16, "samples_per_class": 4}


def own(*losses, classes=100, base=BASE, flags=None):
    train = arrays(np.zeros((2 * classes, 1), np.float32), np.repeat(np.arange(classes), 2))
    return [with_paper_settings(draft, train).contestant() for draft in drafts(losses, base, flags)]


def batches(*losses, classes=100, base=BASE):
    entries = own(*losses, classes=classes, base=base)
    return {entry.name: (entry.recipe.classes_per_batch, entry.recipe.samples_per_class) for entry in entries}


def test_each_loss_says_how_its_paper_composes_a_batch():
    wanted = {name: traits_of(loss).items_per_class for name, loss in OBJECTIVES.items()}
    on_proxies = {name for name, loss in OBJECTIVES.items() if traits_of(loss).usual in ("proxies", "one_hot")}
    assert {name for name, items in wanted.items() if items == 1} == on_proxies
    assert wanted["n_pair"] == 2
    assert wanted["triplet"] is None


def test_composition_keeps_the_images_of_a_batch():
    assert batches("triplet", "proxy_anchor", "n_pair") == {
        "triplet": (16, 4),
        "proxy_anchor": (64, 1),
        "n_pair": (32, 2),
    }
    assert batches("proxy_anchor", classes=50) == {"proxy_anchor": (32, 2)}
    assert batches("proxy_anchor+ccp") == {"proxy_anchor+ccp": (16, 4)}
    for images in (12, 32, 64, 90):
        for classes in range(2, 40):
            own = composition(images, 1, classes)
            assert own is None or (own[0] * own[1] == images and own[0] <= classes)


def test_batches_that_few_classes_allow_are_told_as_such():
    (entry,) = own("proxy_anchor", classes=4, base={"classes_per_batch": 4, "samples_per_class": 5})
    assert (entry.recipe.classes_per_batch, entry.recipe.samples_per_class) == (4, 5)
    assert "batches of 4 classes x 5, as close to the paper's 1 per class as 4 classes allow" in entry.demands
    (entry,) = own("proxy_anchor", classes=100, base={"classes_per_batch": 20, "samples_per_class": 1})
    assert not any("batches" in word for word in entry.demands)


def test_batches_and_proxies_are_told_as_a_search_left_them():
    (entry,) = own("proxy_anchor", base={**BASE, "learning_rate": 1e-3})
    assert "batches of 64 classes x 1 instead of 16 x 4, as in the paper" in entry.demands
    assert demands_after_search(entry, entry.recipe) == entry.demands
    best = entry.recipe.changed(batch="8x8", learning_rate=2e-3)
    assert demands_after_search(entry, best) == (
        "proxies, 1 per class, with learning rate 0.02",
        "batches of 8 classes x 8, which scored better in the search than 64 x 1",
    )


def test_a_recipe_that_composes_its_batches_keeps_them(tmp_path):
    (tmp_path / "mine.toml").write_text('loss = "proxy_anchor"\nclasses_per_batch = 8\nsamples_per_class = 2\n')
    assert batches("triplet", str(tmp_path / "mine.toml")) == {"triplet": (16, 4), "mine": (8, 2)}


def test_proxies_have_the_rate_of_their_paper_whatever_that_of_the_network(tmp_path):
    (tmp_path / "mine.toml").write_text('loss = "proxy_anchor"\nproxy_multiplier = 7\n')
    losses, base = ["proxy_anchor", str(tmp_path / "mine.toml"), "triplet"], {**BASE, "learning_rate": 1e-3}
    assert [entry.recipe.proxy_multiplier for entry in own(*losses, base=base)] == [10.0, 7.0, 100.0]
    assert own("proxy_anchor", flags={"proxy_multiplier": 3})[0].recipe.proxy_multiplier == 3
    assert "proxies, 1 per class, with learning rate 0.01" in own("proxy_anchor", base=base)[0].demands


def test_what_the_recipe_of_all_says_of_a_loss_stays_with_that_loss():
    base = {**BASE, "loss": "soft_triple", "proxies_per_class": 10, "proxy_multiplier": 7.0}
    same, other = own("soft_triple", "proxy_anchor", base=base)
    assert (same.recipe.proxies_per_class, same.recipe.proxy_multiplier) == (10, 7.0)
    assert (other.recipe.proxies_per_class, other.recipe.proxy_multiplier) == (1, pytest.approx(100.0))
    assert own("soft_triple")[0].recipe.proxies_per_class == 2


@pytest.mark.parametrize("loss", ["proxy_anchor", "soft_triple", "n_pair", "triplet"])
def test_a_loss_alone_trains_in_the_terms_that_a_comparison_gives_it(loss):
    data = many_classes()
    compared = plan(
        data,
        [loss],
        recipe=None,
        dims=(),
        backbones=(),
        seeds=1,
        same_batches=False,
        budget=Budget(),
        changes={"protocol": "fixed-validation"},
    )
    alone = settled_recipe(data, [], {"loss": loss, "data": data.name}).recipe
    terms = ("batch", "proxies_per_class", "proxy_multiplier", "mining", "loss_options")
    assert [getattr(alone, name) for name in terms] == [getattr(compared.grid[0].recipe, name) for name in terms]
    fitted = suited_recipe(alone.split(data).train, {"loss": loss}).recipe
    assert fitted.batch == alone.batch
    assert fitted.proxy_multiplier == alone.proxy_multiplier


def test_only_a_pretrained_network_that_is_trained_warms_up():
    steps = {"steps": 1000}
    for base, warm_up in (
        ({"weights": "imagenet", **steps}, 4),  # one pass over 200 items in batches of 64
        ({"weights": "imagenet", "steps": 20}, 2),  # a tenth of the steps at most
        ({"weights": "imagenet", "freeze": True, **steps}, 0),
        (steps, 0),
    ):
        entries = own("proxy_anchor", "triplet", base={**BASE, **base})
        assert [entry.recipe.training.warm_up for entry in entries] == [warm_up, 0]


def many_classes(classes=160, per_class=6):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), per_class)
    vectors = rng.normal(size=(len(labels), 12)) * np.r_[np.full(4, 0.4), np.full(8, 1.5)]
    vectors[:, :4] += rng.normal(size=(classes, 4))[labels]
    return arrays(vectors.astype(np.float32), labels)


def test_own_batches_cost_the_same_images_and_foreign_ones_are_told(tmp_path):
    settings = {
        "backbone": "linear", "dim": 4, "steps": 60, "learning_rate": 0.01, "evaluate_every": 30, "validation": 0.2,
        "classes_per_batch": 4, "samples_per_class": 4, "proxy_multiplier": 10.0, "jobs": 1, "progress": False,
        "protocol": "fixed-validation",
    }  # fmt: skip
    own = compare(many_classes(), ["proxy_anchor", "triplet"], out=tmp_path / "own", **settings)
    same = compare(many_classes(), ["proxy_anchor", "triplet"], out=tmp_path / "same", same_batches=True, **settings)
    scores = {name: {entry.name: entry.mean("MAP@R") for entry in board.entries} for name, board in
              (("own", own), ("same", same))}  # fmt: skip
    assert scores["own"]["triplet"] == scores["same"]["triplet"]
    assert scores["own"]["proxy_anchor"] != scores["same"]["proxy_anchor"]
    assert {record.images for record in (*own.records, *same.records)} == {60 * 16}
    assert "batches of 16 classes x 1 instead of 4 x 4, as in the paper" in str(own)
    assert "its paper has 1 item per class" not in " ".join(str(own).split())
    assert "proxy_anchor ran with batches of 4 classes x 4 items. Its paper uses 1 item per class" in " ".join(
        str(same).split()
    )


def test_a_method_that_fails_in_foreign_batches_wins_in_its_own(tmp_path):
    settings = {
        "backbone": "linear", "dim": 4, "steps": 100, "learning_rate": 0.01, "evaluate_every": 50, "validation": 0.2,
        "batch": "2x8", "jobs": 1, "progress": False,
    }  # fmt: skip
    data = many_classes(per_class=8)
    winners = {
        same: compare(data, ["triplet", "n_pair"], out=tmp_path / str(same), same_batches=same, **settings).entries[0]
        for same in (True, False)
    }
    assert {same: entry.name for same, entry in winners.items()} == {True: "triplet", False: "n_pair"}
    assert {entry.records[0].images for entry in winners.values()} == {100 * 16}
