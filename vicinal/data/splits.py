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
from vicinal.data.foreign import of
from vicinal.errors import InputError, look_up

# Each protocol's number of folds; None where there are none.
PROTOCOLS: dict[str, int | None] = {
    "default": None,
    "fixed-validation": None,
    "k-fold": 10,
    "reality-check": 4,
    "query-gallery": None,
}

# Fewer validation classes than this are a toss of a coin: no step, rate or loss is chosen by them.
FEWEST_VALIDATION = 3
USUAL_SHARE = 0.1  # of the training classes that validate

Classes = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Split:
    """Views of one Dataset that share no class; each view labels its classes from 0.

    Args:
        train: What is trained on.
        validation: What models are chosen by, or None.
        test: What is reported, or None where it was taken away (`without_test`).
        protocol: Name of the protocol that made the split.
        seed: Seed of what was drawn at random.
        fold: Which fold validates, or None.
        folds: How many there are, or None.

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
        """The views, for notebooks."""
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
            f"{name} ({one} and {other})"
            for one, other in combinations(names, 2)
            for name in sorted(names[one] & names[other])
        ]
        if shared:
            raise InputError(
                f"{counted(len(shared), 'class is', 'classes are')} on both sides of the split: "
                f"{', '.join(shared[:10])}{', ...' if len(shared) > 10 else ''}. Give every class to one side only."
            )

    @property
    def query(self) -> Dataset | None:
        """What is searched for: the test items with the role "query", or all of them."""
        return self.test.with_role("query") if self.test is not None and self._has_gallery else self.test

    @property
    def gallery(self) -> Dataset | None:
        """What is searched in: the test items with the role "gallery"; None means the queries themselves."""
        return self.test.with_role("gallery") if self.test is not None and self._has_gallery else None

    @property
    def _has_gallery(self) -> bool:
        return self.test is not None and self.test.has_gallery

    @property
    def chooser(self) -> Dataset | None:
        """What steps and settings may be chosen by: the validation classes, or None where they are fewer than three.

        Of folds all are used alike: where the smallest holds fewer than three classes, none of them chooses.

        Example:
            >>> from vicinal.data import digits
            >>> split(digits(), "k-fold", fold=0, folds=2).chooser is None  # folds of three and of two classes
            True
        """
        return self.validation if self.held_out >= FEWEST_VALIDATION else None

    @property
    def held_out(self) -> int:
        """How many classes validate; of folds, in the smallest."""
        count = 0 if self.validation is None else len(self.validation.classes)
        return count if self.folds is None else (count + len(self.train.classes)) // self.folds

    def without_test(self) -> Split:
        """The same split with the test classes removed: what tuning is given."""
        return replace(self, test=None)

    def hash(self, data: str | None = None) -> str:
        """SHA-256 of the protocol and of the content of the views.

        Args:
            data: Hash of the dataset that the views are of, where it is known: the views' classes then say the rest.
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
    """Divide a Dataset (or what `vicinal.data.of` makes one of) by classes, as a protocol has it.

    The first half of the classes (rounded up) trains and the second half tests, unless the data has
    official roles. Of the training classes

    - "default" (Oh Song et al. 2016) holds out none;
    - "fixed-validation" holds out a share `validation`, at random by `seed`, or the official
      validation classes if there are any; where the share is fewer than three classes it holds out three, and
      where that would leave fewer than three to train on, none;
    - "k-fold" deals them into `folds` (10) at random by `seed`, and holds out number `fold`;
    - "reality-check" (Musgrave et al. 2020) cuts them into `folds` (4) contiguous runs, and holds out
      number `fold`;
    - "query-gallery" (In-shop) holds out as "fixed-validation" does; queries are searched in the
      gallery only.

    Where items have sets of labels, classes that hang together by items that have several count as one here, so that
    no side knows a label of another.

    Args:
        data: What to divide.
        protocol: One of `PROTOCOLS`.
        seed: Of the random choice of classes.
        fold: Which fold validates, from 0; for "k-fold" and "reality-check".
        folds: How many there are, if not the protocol's own number.
        validation: Share of the training classes that validate; for "fixed-validation" and "query-gallery", of data
            that has no official validation classes.

    Example:
        >>> from vicinal.data import digits
        >>> halves = split(digits())
        >>> halves.train.class_names, halves.test.class_names
        (('0', '1', '2', '3', '4'), ('5', '6', '7', '8', '9'))
    """
    data = of(data)
    usual = look_up("protocol", protocol, PROTOCOLS)
    if usual is None and (fold is not None or folds is not None):
        raise InputError(f"protocol {protocol!r} has no folds; got fold={fold}, folds={folds}.")
    first = first_of_each_label(data)
    train, held_out, test = _official_sides(data, first) if data.roles is not None else _halves(data, first)
    if protocol == "query-gallery":
        _need_query_and_gallery(data)
    if usual is not None:
        folds = usual if folds is None else folds
        pool = np.sort(np.concatenate([train, held_out]))
        held_out = _fold_of(pool, protocol, seed, fold, folds)
        train = np.setdiff1d(pool, held_out)
    elif protocol == "default":
        train, held_out = np.sort(np.concatenate([train, held_out])), held_out[:0]
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
    # By name, so that a class whose every image was left out does not move the border.
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
        " Labels that hang together by items with several count as one class. To train on items whose labels others "
        "share, divide the items yourself: fit(Split(data.subset(...), None, None)), and evaluate on the rest."
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
    count = round(share * len(classes))
    if count < FEWEST_VALIDATION:
        count = FEWEST_VALIDATION if len(classes) >= 2 * FEWEST_VALIDATION else 0
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
    if protocol == "k-fold":
        classes = np.random.default_rng(seed).permutation(classes)
    return np.sort(np.array_split(classes, folds)[fold])
