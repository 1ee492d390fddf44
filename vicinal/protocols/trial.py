"""Trials: one loss under one set of conditions, on one split."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, final

from vicinal.data import PROTOCOLS, Dataset, Split, split
from vicinal.errors import look_up
from vicinal.recipe import Recipe

__all__ = ["Trial", "folds_of"]


@final
@dataclass(frozen=True)
class Trial:
    """Everything that defines one trial.

    Attributes:
        name: What tables call it: the loss, with what distinguishes it.
        dataset: As it was asked for.
        data: Hash of the dataset's content.
        protocol: How classes are divided.
        seed: Of the split; the recipe's training has the same.
        fold: Which fold validates, or None.
        folds: How many there are, if not the protocol's own number.
        recipe: What to train.
        demands: What the loss asks for that others do not, in words.
        tuning_trials: How many trials chose the recipe's settings.
        select_on_test: Choose the step by the test classes, which leaks; for comparison with papers that did.
    """

    name: str
    dataset: str
    data: str
    protocol: str
    seed: int
    fold: int | None
    recipe: Recipe
    folds: int | None = None
    demands: tuple[str, ...] = ()
    tuning_trials: int = 0
    select_on_test: bool = False

    @property
    def key(self) -> str:
        """Hash of all that the result depends on; the same on every machine, wherever the weights' file lies."""
        recipe = self.recipe.model_dump(mode="json")
        if recipe["weights"] is not None:
            recipe["weights"] = Path(recipe["weights"]).name
        parts = [self.name, self.data, self.protocol, self.seed, self.fold, self.folds, self.select_on_test, recipe]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def split(self, data: Dataset) -> Split:
        """Divide the data as the trial's protocol, seed and fold have it."""
        return split(data, self.protocol, seed=self.seed, fold=self.fold, folds=self.folds)

    def visible(self, whole: Split) -> Split:
        """Return what training may see: no test classes, unless the step is to be chosen by them."""
        return replace(whole, validation=whole.test, test=None) if self.select_on_test else whole.without_test()

    @property
    def selected_on(self) -> Literal["validation", "test", "last"]:
        """What chooses the step that is reported."""
        if self.select_on_test:
            return "test"
        return "last" if self.protocol == "default" else "validation"


def folds_of(protocol: str, folds: int | None = None) -> list[int | None]:
    """Return the folds that a protocol runs: all of them, or None alone where it has none.

    Example:
        >>> folds_of("reality-check"), folds_of("k-fold", 2), folds_of("default")
        ([0, 1, 2, 3], [0, 1], [None])
    """
    usual = look_up("protocol", protocol, PROTOCOLS)
    return [None] if usual is None else list(range(folds or usual))
