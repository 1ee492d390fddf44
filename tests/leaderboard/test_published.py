"""The shipped numbers: complete, in vicinal's words, and possible."""

from __future__ import annotations

from collections import Counter
from statistics import correlation

import pytest

from vicinal.backbones import BACKBONES
from vicinal.errors import UnknownName
from vicinal.literature import published, same_method, thesis_tables
from vicinal.mining import MINERS
from vicinal.objectives import ALIASES, OBJECTIVES
from vicinal.runs.recipe import Recipe

pytestmark = pytest.mark.unit


def test_every_number_is_named_once_in_the_words_of_vicinal():
    rows = published()
    assert len(rows) == 1755
    names = {(row.source, row.dataset, row.backbone, row.dim, row.method, row.score, row.part) for row in rows}
    assert len(names) == 1755
    assert {row.dataset for row in rows} == {"cub", "cars196", "sop", "inshop"}
    assert {row.protocol for row in rows} == {"default", "fixed-validation", "k-fold", "reality-check"}
    assert {row.backbone for row in rows} <= {*BACKBONES, ""}
    assert all(0.1 < row.value < 1 for row in rows if row.score != "steps")


def test_recall_never_falls_as_k_grows_but_in_two_rows_of_the_thesis():
    curves = {}
    for row in published():
        if row.score.startswith("R@") and not row.part:
            where = (row.source, row.dataset, row.backbone, row.dim, row.method)
            curves.setdefault(where, []).append((int(row.score[2:]), row.value, row.note))
    for where, points in curves.items():
        values = [value for _, value, _ in sorted(points)]
        assert (values == sorted(values)) != any(note for _, _, note in points), where
    wrong = [where for where, points in curves.items() if points[0][2]]
    assert [(where[0], where[4]) for where in wrong] == [
        ("Psomas 2020, Table 10b", "arcface"),
        ("Psomas 2020, Table 10d", "arcface"),
    ]


def test_the_folds_of_the_thesis_are_its_mean_and_say_how_little_validation_tells():
    rows = [row for row in published("cub") if row.source == "Psomas 2020, Table 13"]
    test = [row.value for row in rows if row.score == "R@1"]
    validation = [row.value for row in rows if row.score == "validation R@1"]
    assert sum(test) / 10 == pytest.approx(0.63605)
    assert correlation(validation, test) == pytest.approx(-0.36, abs=0.005)


# What no name of `compare` stands for, and why.
OUT_OF_REACH = {
    "hdc": "an ensemble, whose networks are not in vicinal",
    "abier": "an ensemble, whose networks are not in vicinal",
    "clustering": "structured clustering is not in vicinal",
    "htl": "triplets by a tree of classes are not in vicinal",
    "smart_mining": "its miner is not in vicinal",
    "margin+class boundaries": "a learned boundary for each class is not in vicinal",
    "snr_contrastive": "the signal-to-noise distance is not in vicinal",
}


def test_every_published_method_is_one_that_compare_can_be_asked_for():
    """The recipe that a name stands for says the same name again."""
    without = {}
    for method in sorted({row.method for row in published()}):
        loss, *extras = method.split("+")
        miners = [extra for extra in extras if extra in MINERS]
        if loss not in {*OBJECTIVES, *ALIASES} or set(extras) - {*MINERS, "memory", "hierarchy", "ccp"}:
            without[method] = len(published(method=method))
            continue
        additions = {"memory": 64 * ("memory" in extras), "hierarchy": 5 * ("hierarchy" in extras)}
        recipe = Recipe(loss=loss, mining=next(iter(miners), None), **additions)
        recipe = recipe.changed(ccp="code") if "ccp" in extras else recipe
        assert recipe.method == method
        assert same_method(recipe.method, method)
    assert set(without) == set(OUT_OF_REACH)


def test_a_miner_counts_only_where_the_source_names_one():
    assert same_method("multi_similarity+valid_triplets", "multi_similarity")
    assert not same_method("multi_similarity", "multi_similarity+valid_triplets")
    assert not same_method("raw+semi_hard", "raw+valid_triplets")
    assert not same_method("triplet+semi_hard", "triplet+ccp")
    assert not same_method("triplet+memory", "triplet")
    assert same_method("triplet+semi_hard+ccp", "triplet+ccp")


def test_how_many_numbers_each_source_has():
    sources = Counter(row.source.split(",")[0] for row in published())
    assert sources == {
        "Psomas 2020": 4 * (7 * 40 + 3) + 6 + 20 + 8,
        "Gürbüz et al. 2024": 14 * 24 - 6 + 20,
        "Musgrave et al. 2020": 14 * 3 + 13 * 3,
        "A unified view of deep metric learning via gradient analysis": 7 * 4 + 82 + 48,
    }


def test_precision_is_ordered_as_it_must_be_and_joined_models_are_better():
    """MAP@R never exceeds P@R, which is below P@1 here; four models joined to 512 dimensions beat one of 128."""
    rows = [row for row in published(source="Gürbüz") if row.score != "steps"]
    value = {(row.dataset, row.method, row.dim, row.score): row.value for row in rows}
    for dataset, loss, dim, _ in value:
        assert value[dataset, loss, dim, "MAP@R"] < value[dataset, loss, dim, "P@R"] < value[dataset, loss, dim, "P@1"]
    for dataset, loss, _, metric in value:
        assert value[dataset, loss, 512, metric] > value[dataset, loss, 128, metric]


@pytest.mark.parametrize(
    ("dataset", "settings", "expected"),
    [
        ("cub", {"method": "contrastive_c2+ccp", "score": "MAP@R", "dim": 512}, 0.2802),
        ("inshop", {"method": "raw+valid_triplets", "score": "R@50"}, 0.992),
        ("sop", {"method": "proxy_gram", "score": "R@1"}, 0.7792),
        ("cars196", {"method": "cosface", "score": "MAP@R"}, 0.276),
        ("cub", {"method": "soft_triple", "protocol": "k-fold"}, 0.6409),
        ("cub", {"method": "n_pair", "backbone": "googlenet", "dim": 64, "score": "R@1"}, 0.4876),
        ("sop", {"method": "multi_similarity+ccp", "score": "steps"}, 91_000),
    ],
)
def test_single_numbers(dataset: str, settings: dict, expected: float):
    (found,) = published(dataset, **settings)
    assert found.value == expected


def test_nothing_matches_a_dataset_that_nobody_published():
    assert published("glyphs") == []


def test_the_tables_of_the_thesis():
    assert len(thesis_tables()) == 12
    assert all(len(row) == 10 for row in thesis_tables("cars196").values())
    assert list(thesis_tables("sop")) == [f"bn_inception {dim}" for dim in (64, 128, 512, 1024)]
    sums = {"resnet50": (59.68, 62.41, 65.57, 66.06), "bn_inception": (57.31, 60.84, 63.92, 64.59)}
    sums["googlenet"] = (53.72, 56.46, 59.77, 60.43)
    for backbone, means in sums.items():
        for dim, mean in zip((64, 128, 512, 1024), means, strict=True):
            assert 10 * sum(thesis_tables()[f"{backbone} {dim}"].values()) == pytest.approx(mean, abs=0.0051)
    with pytest.raises(UnknownName, match="Unknown dataset of the thesis 'cubs'; did you mean 'cub'"):
        thesis_tables("cubs")
