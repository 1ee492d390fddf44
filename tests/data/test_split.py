from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.data import PROTOCOLS, Dataset, Split, split
from vicinal.errors import InputError, UnknownName


def toy(classes: int = 20, each: int = 2) -> Dataset:
    labels = np.repeat(np.arange(classes), each)
    names = tuple(f"c{label:02}" for label in range(classes))
    return Dataset(np.arange(len(labels) * 2.0).reshape(-1, 2), labels, names, name="toy")


def with_roles(*roles: str, each: int = 2) -> Dataset:
    return replace(toy(len(roles), each), roles=np.repeat(np.array(roles), each))


def names(view: Dataset | None) -> set[str]:
    return set() if view is None else {view.class_names[label] for label in view.classes}


def test_default_halves_the_classes_in_order() -> None:
    parts = split(toy(5))
    assert parts.train.class_names == ("c00", "c01", "c02")
    assert parts.test is not None
    assert parts.test.class_names == ("c03", "c04")
    assert parts.test.labels.tolist() == [0, 0, 1, 1]
    assert parts.validation is None


def test_an_empty_class_does_not_move_the_border() -> None:
    data = toy(6)
    parts = split(data.subset(np.flatnonzero(data.labels != 1)))
    assert parts.train.class_names == ("c00", "c02")
    assert names(parts.test) == {"c03", "c04", "c05"}


def test_official_roles_come_before_halves() -> None:
    parts = split(with_roles("test", "train", "train", "test"))
    assert parts.train.class_names == ("c01", "c02")
    assert names(parts.test) == {"c00", "c03"}


def test_fixed_validation_is_a_tenth_by_seed() -> None:
    data = toy(200, each=1)
    parts = [split(data, "fixed-validation", seed=seed) for seed in (0, 0, 1)]
    for part in parts:
        assert len(part.train.classes) == 90
        assert len(names(part.validation)) == 10
        assert len(names(part.test)) == 100
    assert names(parts[0].validation) == names(parts[1].validation) != names(parts[2].validation)
    assert parts[0].hash() == parts[1].hash() != parts[2].hash()


@pytest.mark.parametrize(("training", "held"), [(5, 0), (6, 3), (9, 4), (12, 6), (34, 6), (70, 7)])
def test_six_classes_validate_or_half_of_them_or_none(training: int, held: int) -> None:
    parts = split(toy(2 * training), "fixed-validation")
    assert len(names(parts.validation)) == held
    assert len(parts.train.classes) == training - held
    assert parts.usable_validation is parts.validation


def test_a_share_that_is_three_classes_is_taken_at_its_word() -> None:
    parts = split(toy(10), "fixed-validation", validation=0.6)
    assert (len(parts.train.classes), len(names(parts.validation))) == (2, 3)


@pytest.mark.parametrize(("classes", "folds", "chooses"), [(22, 4, False), (24, 4, True), (10, 2, False)])
def test_folds_choose_all_or_none(classes: int, folds: int, chooses: bool) -> None:
    for fold in range(folds):
        parts = split(toy(classes), "reality-check", fold=fold, folds=folds)
        assert parts.validation is not None  # the paper's folds are as they are
        assert (parts.usable_validation is not None) == chooses


def test_two_official_validation_classes_choose_nothing() -> None:
    parts = split(with_roles("train", "validation", "validation", "train", "test"), "fixed-validation")
    assert names(parts.validation) == {"c01", "c02"}
    assert parts.usable_validation is None


def test_official_validation_classes_are_used() -> None:
    data = with_roles("train", "validation", "train", "test")
    assert names(split(data, "fixed-validation").validation) == {"c01"}
    assert names(split(data, "default").train) == {"c00", "c01", "c02"}
    folds = [split(data, "reality-check", fold=f, folds=3) for f in range(3)]
    assert [names(f.validation) for f in folds] == [{"c00"}, {"c01"}, {"c02"}]


def test_reality_check_folds_are_contiguous() -> None:
    for fold in range(4):
        parts = split(toy(200, each=1), "reality-check", fold=fold)
        assert parts.validation is not None
        assert parts.validation.class_names == tuple(f"c{c:02}" for c in range(25 * fold, 25 * fold + 25))


def test_k_fold_validates_each_class_once_at_random() -> None:
    data = toy(200, each=1)
    folds = [split(data, "k-fold", fold=f, seed=3) for f in range(10)]
    validated = [name for f in folds for name in f.validation.class_names]
    assert sorted(validated) == [f"c{c:02}" for c in range(100)]
    assert validated != sorted(validated)
    assert len({f.hash() for f in folds}) == 10


def test_query_and_gallery() -> None:
    data = with_roles(*["train"] * 6, "query", "gallery", each=4)
    labels = data.labels.copy()
    labels[28:] = 6
    parts = split(replace(data, labels=labels), "query-gallery", validation=0.5)
    assert parts.query is not None
    assert parts.gallery is not None
    assert parts.query.items[0, 0] == 48
    assert parts.query.labels.tolist() == parts.gallery.labels.tolist() == [0] * 4
    assert len(parts.train.classes) == len(names(parts.validation)) == 3
    with pytest.raises(InputError, match="needs items with the roles 'query' and 'gallery'; toy has no roles"):
        split(toy(), "query-gallery")


def test_without_a_gallery_the_test_items_search_each_other() -> None:
    parts = split(toy())
    assert parts.query is parts.test
    assert parts.gallery is None


def test_without_test_nothing_of_the_test_is_left() -> None:
    parts = split(toy(), "fixed-validation").without_test()
    assert (parts.test, parts.query, parts.gallery) == (None, None, None)
    assert parts.hash() != split(toy(), "fixed-validation").hash()


def test_the_hash_of_the_data_stands_for_its_content() -> None:
    data = toy(12)
    other = replace(data, items=data.items + 1)
    parts = split(data, "reality-check", fold=1)
    known = parts.hash(data=data.hash())
    assert known == split(data, "reality-check", fold=1).hash(data=data.hash())
    different = [
        parts.hash(),
        split(other, "reality-check", fold=1).hash(data=other.hash()),
        split(data, "reality-check", fold=2).hash(data=data.hash()),
        split(data, "reality-check", fold=1, seed=3).hash(data=data.hash()),
        split(data, "k-fold", fold=1, folds=4).hash(data=data.hash()),
        split(data, "reality-check", fold=1, folds=5).hash(data=data.hash()),
        parts.without_test().hash(data=data.hash()),
    ]
    assert len({known, *different}) == 1 + len(different)


def test_a_split_knows_its_folds() -> None:
    data = toy()
    assert [split(data, protocol, fold=1).folds for protocol in ("k-fold", "reality-check")] == [10, 4]
    assert split(data, "k-fold", fold=1, folds=3).folds == 3
    assert split(data, "fixed-validation").folds is None


def test_a_class_on_both_sides_is_refused() -> None:
    data = toy(4)
    with pytest.raises(InputError, match=r"1 class is on both sides.*c01 \(train and test\)"):
        Split(data.of_classes([0, 1]), None, data.of_classes([1, 2]))
    with pytest.raises(InputError, match=r"c02 \(train and validation\)"):
        Split(data.of_classes([2]), data.of_classes([2]), None)
    mixed = replace(toy(2), roles=np.array(["train", "test", "test", "test"]))
    with pytest.raises(InputError, match="both sides of the split: c00"):
        split(mixed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"protocol": "k-fold"}, r"needs fold in 0\.\.9; got None"),
        ({"protocol": "reality-check", "fold": 4}, r"needs fold in 0\.\.3; got 4"),
        ({"protocol": "k-fold", "fold": 0, "folds": 11}, r"folds must lie in 2\.\.10"),
        ({"protocol": "default", "fold": 0}, "has no folds"),
        ({"protocol": "fixed-validation", "validation": 0.0}, r"share in \(0, 1\)"),
        ({"protocol": "fixed-validation", "validation": 0.99}, "leaves a class to train on"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        split(toy(), **arguments)


def test_bad_data() -> None:
    with pytest.raises(UnknownName, match="did you mean 'k-fold'"):
        split(toy(), "kfold")
    with pytest.raises(InputError, match="too few classes"):
        split(toy(1))
    with pytest.raises(InputError, match="2 training and 0 test classes"):
        split(with_roles("train", "train"))


@given(
    st.integers(8, 40), st.sampled_from(["default", "fixed-validation", "k-fold", "reality-check"]), st.integers(0, 99)
)
@settings(max_examples=60, deadline=None)
def test_views_are_disjoint_and_complete(classes: int, protocol: str, seed: int) -> None:
    data = toy(classes)
    folds = {"fold": seed % 3, "folds": 3} if PROTOCOLS[protocol] else {}
    parts = split(data, protocol, seed=seed, **folds)
    sides = [names(view) for view in (parts.train, parts.validation, parts.test)]
    assert sum(map(len, sides)) == classes
    assert set().union(*sides) == set(data.class_names)
    assert sum(len(view) for view in (parts.train, parts.validation, parts.test) if view) == len(data)
    assert names(parts.test) == names(split(data).test)
    for view in (parts.train, parts.validation, parts.test):
        if view:
            assert view.classes.tolist() == list(range(len(view.class_names)))
            original = {row[0]: data.class_names[label] for row, label in zip(data.items, data.labels, strict=True)}
            assert all(
                original[row[0]] == view.class_names[label] for row, label in zip(view.items, view.labels, strict=True)
            )
