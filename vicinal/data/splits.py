"""Class-disjoint train, validation and test views of a Dataset."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, final

import numpy as np
import numpy.typing as npt

from vicinal._util.html import html_page, html_table
from vicinal._util.text import counted
from vicinal.data.dataset import Dataset, first_of_each_label
from vicinal.data.foreign import as_dataset
from vicinal.errors import InputError, look_up

# Default number of folds of each protocol; None for protocols without folds.
PROTOCOLS: dict[str, int | None] = {
    "default": None,
    "fixed-validation": None,
    "cross-validation": None,
    "k-fold": 10,
    "reality-check": 4,
    "query-gallery": None,
}
CROSS_VALIDATION = "cross-validation"
CHOOSING_FOLDS = 4  # default number of folds that choose the settings under "cross-validation"

# With fewer validation classes, the result is mostly chance: no step, rate or loss is chosen by them.
FEWEST_VALIDATION = 3
USUAL_SHARE = 0.1  # share of the training classes that are held out for validation
USUAL_FEWEST = 6  # validation classes that are held out even if the share is less, of at least twice as many

Classes = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Split:
    """Views of one Dataset that share no class; each view labels its classes from 0.

    Args:
        train: Data to train on.
        validation: Data to choose models by, or None.
        test: Data for the reported scores, or None if it was removed (`without_test`).
        protocol: Name of the protocol of the split.
        seed: Seed of the random choice of classes.
        fold: Index of the validation fold, or None.
        folds: Number of folds, or None.

    Raises:
        InputError: If a class is in two of the views.
    """

    train: Dataset
    validation: Dataset | None
    test: Dataset | None
    protocol: str = "custom"
    seed: int = 0
    fold: int | None = None
    folds: int | None = None

    def _repr_html_(self) -> str:
        """Return a table of the views as HTML, for notebooks."""
        views = {"train": self.train, "validation": self.validation, "test": self.test}
        rows = [
            [side, len(view.classes), len(view), ", ".join(view.class_names[label] for label in view.classes[:8])]
            for side, view in views.items()
            if view is not None
        ]
        title = f"{self.train.name}, {self.protocol}, seed {self.seed}"
        return html_page(title, html_table(["", "classes", "items", "first classes"], rows))

    def __post_init__(self) -> None:
        views = {"train": self.train, "validation": self.validation, "test": self.test}
        names = {
            side: {view.class_names[label] for label in view.classes}
            for side, view in views.items()
            if view is not None
        }
        shared = [
            f"{name} ({side} and {other})"
            for side, other in combinations(names, 2)
            for name in sorted(names[side] & names[other])
        ]
        if shared:
            raise InputError(
                f"{counted(len(shared), 'class is', 'classes are')} on both sides of the split: "
                f"{', '.join(shared[:10])}{', ...' if len(shared) > 10 else ''}. Give every class to one side only."
            )

    @property
    def query(self) -> Dataset | None:
        """Queries: the test items with the role "query", or all of them."""
        return self.test.with_role("query") if self.test is not None and self._has_gallery else self.test

    @property
    def gallery(self) -> Dataset | None:
        """Gallery to search: the test items with the role "gallery"; None means the queries themselves."""
        return self.test.with_role("gallery") if self.test is not None and self._has_gallery else None

    @property
    def _has_gallery(self) -> bool:
        return self.test is not None and self.test.has_gallery

    @property
    def usable_validation(self) -> Dataset | None:
        """Validation data for choosing steps and settings; None if it has fewer than three classes.

        All folds are treated alike: if the smallest has fewer than three classes, none of them is used. Under
        "cross-validation" scores are averaged over all folds, so that all training classes count.

        Example:
            >>> from vicinal.data import digits
            >>> split(digits(), "k-fold", fold=0, folds=2).usable_validation is None  # folds of 3 and 2 classes
            True
        """
        return self.validation if self.held_out >= FEWEST_VALIDATION else None

    @property
    def distractors(self) -> Dataset | None:
        """Training data that validation queries are searched among, together with the validation data.

        Validation classes are few. Among themselves they are an easier task than the test, which ranks methods
        differently. None for "reality-check", whose paper scores validation classes alone, for "default", and for items
        with sets of labels, which may share labels with the queries.
        """
        alone = self.protocol in ("default", "reality-check") or self.train.has_sets
        return None if self.usable_validation is None or alone else self.train

    @property
    def held_out(self) -> int:
        """Number of validation classes; for folds, of the smallest fold; for cross-validation, of all folds."""
        count = 0 if self.validation is None else len(self.validation.classes)
        if self.folds is None or self.validation is None:
            return count
        every = count + len(self.train.classes)
        return every if self.protocol == CROSS_VALIDATION else every // self.folds

    def without_test(self) -> Split:
        """Return the same split without the test classes, for tuning."""
        return replace(self, test=None)

    def hash(self, data: str | None = None) -> str:
        """Return the SHA-256 of the protocol and of the content of the views.

        Args:
            data: Hash of the dataset that was split, if known; the classes of the views then determine their content.
        """
        contents = [
            None if view is None else view.hash() if data is None else [data, *view.class_names]
            for view in (self.train, self.validation, self.test)
        ]
        parts = [self.protocol, self.seed, self.fold, *contents]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def split(
    data: Any,
    protocol: str = "default",
    *,
    seed: int = 0,
    fold: int | None = None,
    folds: int | None = None,
    validation: float = USUAL_SHARE,
) -> Split:
    """Split a Dataset (or anything `vicinal.data.as_dataset` converts to one) by classes, according to a protocol.

    The first half of the classes (rounded up) is for training and the second half for testing, unless the data
    has official roles. Of the training classes

    - "default" (Oh Song et al. 2016) holds out none;
    - "fixed-validation" holds out a share `validation`, at random by `seed`, or the official
      validation classes if there are any; at least six classes, or half of them if there are fewer than twelve, and
      none if there are fewer than six;
    - "cross-validation" divides them into `folds` (4) at random by `seed`, and holds out number `fold` to choose
      settings; without a `fold` it holds out none, for the model that is fitted with the chosen settings;
    - "k-fold" divides them into `folds` (10) at random by `seed`, and holds out number `fold`;
    - "reality-check" (Musgrave et al. 2020) divides them into `folds` (4) contiguous runs, and holds out
      number `fold`;
    - "query-gallery" (In-shop) holds out classes as "fixed-validation" does; queries are searched in the
      gallery only.

    If items have sets of labels, classes connected by items with several labels count as one here, so that no label
    is on two sides.

    Args:
        data: Data to split.
        protocol: One of `PROTOCOLS`.
        seed: Seed of the random choice of classes.
        fold: Index of the validation fold, from 0; for "k-fold", "reality-check" and "cross-validation".
        folds: Number of folds; by default that of the protocol.
        validation: Share of the training classes to hold out for validation; for "fixed-validation" and
            "query-gallery", if the data has no official validation classes.

    Example:
        >>> from vicinal.data import digits
        >>> halves = split(digits())
        >>> halves.train.class_names, halves.test.class_names
        (('0', '1', '2', '3', '4'), ('5', '6', '7', '8', '9'))
    """
    data = as_dataset(data)
    usual = look_up("protocol", protocol, PROTOCOLS)
    has_folds = usual is not None or protocol == CROSS_VALIDATION
    if not has_folds and (fold is not None or folds is not None):
        raise InputError(f"protocol {protocol!r} has no folds; got fold={fold}, folds={folds}.")
    first = first_of_each_label(data)
    train, held_out, test = _official_sides(data, first) if data.roles is not None else _halves(data, first)
    if protocol == "query-gallery":
        _need_query_and_gallery(data)
    pool = np.sort(np.concatenate([train, held_out]))
    if protocol == "default" or (protocol == CROSS_VALIDATION and fold is None):
        train, held_out = pool, held_out[:0]
    elif has_folds:
        folds = folds or usual or min(CHOOSING_FOLDS, len(pool))
        held_out = _fold_of(pool, protocol, seed, fold, folds)
        train = np.setdiff1d(pool, held_out)
    elif not len(held_out):
        held_out = _random_share(train, validation, seed)
        train = np.setdiff1d(train, held_out)

    def view(chosen: Classes) -> Dataset:
        return data.of_classes(np.flatnonzero(np.isin(first, chosen)))

    return Split(
        train=view(train),
        validation=view(held_out) if len(held_out) else None,
        test=view(test),
        protocol=protocol,
        seed=seed,
        fold=fold,
        folds=folds,
    )


def _halves(data: Dataset, first: Classes) -> tuple[Classes, Classes, Classes]:
    # By name, so that a class without any readable image does not move the boundary.
    every, present = np.unique(first), np.unique(first[data.classes])
    half = np.isin(present, every[: (len(every) + 1) // 2])
    if half.all() or not half.any():
        raise InputError(
            f"{data.name} has too few classes to split: {half.sum()} to train, {(~half).sum()} to test."
            f"{_sets_hint(data)}"
        )
    return present[half], present[:0], present[~half]


def _sets_hint(data: Dataset) -> str:
    if not data.has_sets:
        return ""
    return (
        " Labels that share an item count as one class. To train on items that share labels with others, "
        "split the items yourself: fit(Split(data.subset(...), None, None)), and evaluate on the rest."
    )


def _official_sides(data: Dataset, first: Classes) -> tuple[Classes, Classes, Classes]:
    train, held_out, test = (
        np.unique(first[data.with_role(*roles).classes])
        for roles in (("train",), ("validation",), ("test", "query", "gallery"))
    )
    shared = sorted({*np.intersect1d(train, test), *np.intersect1d(train, held_out), *np.intersect1d(held_out, test)})
    if shared:
        raise InputError(
            f"{counted(len(shared), f'class of {data.name} has', f'classes of {data.name} have')} roles on both "
            "sides of the split: "
            f"{', '.join(data.class_names[c] for c in shared[:10])}. "
            f"Give every class to one side only.{_sets_hint(data)}"
        )
    if not len(train) or not len(test):
        raise InputError(
            f"{data.name} has roles, but {len(train)} training and {len(test)} test classes; both are needed."
        )
    return train, held_out, test


def _need_query_and_gallery(data: Dataset) -> None:
    if not data.has_gallery:
        roles = set() if data.roles is None else set(data.roles.tolist())
        raise InputError(
            f"protocol 'query-gallery' needs items with the roles 'query' and 'gallery'; {data.name} has "
            f"{', '.join(sorted(roles)) or 'no roles'}. Use 'default' or 'fixed-validation'."
        )


def _random_share(classes: Classes, share: float, seed: int) -> Classes:
    count = max(round(share * len(classes)), min(USUAL_FEWEST, len(classes) // 2))
    if count < FEWEST_VALIDATION:
        count = 0
    if not 0 < share < 1 or count >= len(classes):
        raise InputError(
            f"validation must be a share in (0, 1) that leaves a class to train on; got {share} of "
            f"{len(classes)} training classes."
        )
    return np.sort(np.random.default_rng(seed).permutation(classes)[:count])


def _fold_of(classes: Classes, protocol: str, seed: int, fold: int | None, folds: int) -> Classes:
    if not 2 <= folds <= len(classes):
        raise InputError(f"folds must lie in 2..{len(classes)} (the training classes); got {folds}.")
    if fold is None or not 0 <= fold < folds:
        raise InputError(f"protocol {protocol!r} needs fold in 0..{folds - 1}; got {fold}.")
    if protocol != "reality-check":
        classes = np.random.default_rng(seed).permutation(classes)
    return np.sort(np.array_split(classes, folds)[fold])
