"""From words to recipes that differ in the loss alone."""

import pytest

from vicinal.comparing.contestants import drafts
from vicinal.comparing.plan import notes_on_names, with_groups_that_fit
from vicinal.data import digits
from vicinal.errors import InputError
from vicinal.runs.recipe import Recipe, laid_over, read_tables

pytestmark = pytest.mark.unit


def by_name(*losses, base=None, **flags):
    return {one.name: one for one in drafts(losses, base, flags)}


def test_a_loss_with_a_miner_a_memory_or_ccp():
    found = by_name("triplet+semi_hard", "contrastive+memory", "contrastive_c2+ccp", "proxy_anchor")
    assert list(found) == ["triplet+semi_hard", "contrastive+memory", "contrastive_c2+ccp", "proxy_anchor"]
    assert found["triplet+semi_hard"].recipe.mining == "semi_hard"
    assert found["contrastive+memory"].recipe.memory == 25 * 32
    assert found["contrastive_c2+ccp"].recipe.ccp is not None
    assert found["proxy_anchor"].demands == ("proxies, 1 per class, with learning rate 0.01",)
    assert found["contrastive+memory"].demands == ("a memory of 800 past embeddings",)


def test_a_loss_with_groups_of_classes_a_cover_or_past_anchors():
    found = by_name("proxy_anchor+hierarchy", "triplet+cover", "proxy_gram+memory")
    assert list(found) == ["proxy_anchor+hierarchy", "triplet+cover", "proxy_gram+memory"]
    assert found["proxy_anchor+hierarchy"].recipe.hierarchy == 25
    assert "25 groups of classes" in found["proxy_anchor+hierarchy"].demands
    fitting = with_groups_that_fit(found["proxy_anchor+hierarchy"], [digits().of_classes(range(5))])
    assert fitting.recipe.hierarchy == 2
    assert [words for words in fitting.demands if "groups" in words] == ["2 groups of classes"]
    assert with_groups_that_fit(found["triplet+cover"], [digits()]) == found["triplet+cover"]
    assert found["triplet+cover"].demands == ("a cover of 4 items per class",)
    assert found["proxy_gram+memory"].recipe.memory == 25 * 32


def test_all_that_is_not_the_loss_is_the_same_for_all():
    found = by_name("triplet", "proxy_anchor+valid_triplets", base={"training": {"steps": 7}, "dim": 16}, copies=2)
    for one in found.values():
        assert (one.recipe.training.steps, one.recipe.dim, one.recipe.copies) == (7, 16, 2)


def test_options_of_the_base_loss_stay_with_that_loss():
    base = {"loss": "triplet", "loss_options": {"margin": 0.3}, "mining": "hard"}
    found = by_name("triplet", "contrastive", base=base)
    assert found["triplet"].recipe.loss_options == {"margin": 0.3}
    assert found["triplet"].recipe.mining == "hard"
    assert found["contrastive"].recipe.loss_options == {}
    assert found["contrastive"].recipe.mining is None


def test_the_recipe_of_a_loss_may_demand_batches_but_not_another_network(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text('loss = "proxy_anchor"\nclasses_per_batch = 32\nsamples_per_class = 1\n')
    found = by_name("triplet", mine, base={"dim": 32})
    assert "samples_per_class 1 instead of 4" in found["mine"].demands
    assert found["mine"].recipe.dim == 32
    mine.write_text('loss = "proxy_anchor"\nbackbone = "resnet18"\n\n[training]\nsteps = 9\n')
    with pytest.raises(
        InputError, match=r"mine: steps is 9 here and 1000(.|\n)*mine: backbone|mine: backbone(.|\n)*steps"
    ):
        by_name("triplet", mine, base={"dim": 32})


def test_a_folder_of_whole_recipes_states_the_conditions(tmp_path):
    for loss in ("triplet", "contrastive"):
        (tmp_path / f"{loss}.toml").write_text(f'loss = "{loss}"\ndim = 32\n\n[training]\nsteps = 9\n')
    found = by_name(tmp_path)
    assert list(found) == ["contrastive", "triplet"]
    assert {one.recipe.training.steps for one in found.values()} == {9}


def test_five_mistakes_are_reported_as_five():
    with pytest.raises(InputError) as error:
        drafts(
            ["tripplet", "triplet+semi_hart", "contrastive", "contrastive"],
            {"dim": -1, "training": {"stepps": 5}},
        )
    lines = str(error.value).split("\n  - ")[1:]
    assert len(lines) == 5, lines
    text = str(error.value)
    for part in ("did you mean 'triplet'", "did you mean 'semi_hard'", "dim:", "did you mean 'steps'", "twice"):
        assert part in text


def test_no_loss_at_all():
    with pytest.raises(InputError, match="at least one loss"):
        drafts([])


def test_a_loss_is_a_loss_though_a_folder_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "triplet").mkdir()
    (tmp_path / "triplet" / "mine.toml").write_text('loss = "contrastive"\n')
    assert list(by_name("triplet", "triplet+hard")) == ["triplet", "triplet+hard"]
    assert list(by_name("./triplet")) == ["mine"]
    entries = drafts(["circle", "triplet+hard", "./triplet"])
    assert notes_on_names(["circle", "triplet", "./triplet"], entries) == (
        "triplet is the loss; the folder of that name is ./triplet.",
    )


def test_a_loss_without_its_miner_is_told_unless_that_is_what_is_compared(tmp_path):
    (tmp_path / "mine.toml").write_text('loss = "margin"\n')
    ways = [
        "triplet",
        "multi_similarity",
        "multi_similarity+valid_triplets",
        "triplet+ccp",
        "circle",
        tmp_path / "mine.toml",
    ]
    (note,) = notes_on_names([], drafts(ways))
    assert note.startswith("triplet uses all pairs; its paper uses the semi_hard miner")


@pytest.mark.parametrize("protocol", ["fixed-validation", "k-fold"])
def test_a_protocol_with_validation_classes_is_not_chosen_by_test_classes(protocol):
    base = read_tables("pair-weighting/cub")
    assert base["select_on_test"]
    recipes = [one.recipe for one in by_name("raw", "binomial_deviance", base=base, protocol=protocol).values()]
    trained = Recipe.read("pair-weighting/cub", protocol=protocol)
    assert [recipe.select_on_test for recipe in [*recipes, trained]] == [False] * 3
    kept = by_name("raw", base=base, protocol=protocol, select_on_test=True)["raw"].recipe  # which planning refuses
    assert kept.select_on_test
    assert by_name("raw", base=base)["raw"].recipe.select_on_test
    # A file that is laid over another does as a flag.
    assert not laid_over(base, {"protocol": protocol})["select_on_test"]


def test_a_loss_recipe_that_is_whole_follows_the_flag(tmp_path):
    (tmp_path / "whole.toml").write_text('loss = "raw"\nprotocol = "default"\nselect_on_test = true\n')
    assert not by_name(str(tmp_path / "whole.toml"), protocol="fixed-validation")["whole"].recipe.select_on_test
