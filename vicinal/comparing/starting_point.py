"""What a comparison starts from: what was asked for, and what suits the data where nothing was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vicinal.build import groups_that_fit, with_fitting_batches
from vicinal.comparing.contestants import Contestant, is_recipe, needs
from vicinal.data import Dataset
from vicinal.defaults import budgeted
from vicinal.own_terms import on_own_terms
from vicinal.recipe import Recipe, flat
from vicinal.results.run_notes import batch_note, miner_note

__all__ = [
    "in_fitting_batches",
    "in_fitting_groups",
    "in_own_terms",
    "notes_on_names",
    "states_conditions",
    "under_default_budget",
]


def states_conditions(base: Mapping[str, Any], losses: Sequence[Any]) -> bool:
    """Whether a recipe, of all or of a loss, says under what conditions is compared; else they follow the data."""
    return bool(base) or any(is_recipe(str(loss)) for loss in losses)


def in_fitting_batches(
    entries: Sequence[Contestant], sets: Sequence[Dataset]
) -> tuple[list[Contestant], tuple[str, ...]]:
    """Return contestants whose batches the training items of every seed and fold can fill, and what shrank.

    Args:
        entries: One of each loss.
        sets: The training items of all seeds and folds.
    """
    fitting = [with_fitting_batches(entry.recipe, *sets) for entry in entries]
    notes = [batch_note(entry.recipe, recipe, sets[0]) for entry, recipe in zip(entries, fitting, strict=True)]
    said = tuple(dict.fromkeys(note for note in notes if note is not None))
    return [replace(entry, recipe=recipe) for entry, recipe in zip(entries, fitting, strict=True)], said


def in_fitting_groups(entries: Sequence[Contestant], sets: Sequence[Dataset]) -> list[Contestant]:
    """Return contestants that ask for no more groups of classes than those of every seed and fold make."""
    classes = min(len(train.classes) for train in sets)
    return [
        _with_recipe(entry, entry.recipe.changed(hierarchy=groups_that_fit(entry.recipe.hierarchy, classes)))
        if entry.recipe.hierarchy
        else entry
        for entry in entries
    ]


def under_default_budget(entries: Sequence[Contestant], changes: Mapping[str, Any], train: Dataset) -> list[Contestant]:
    """Return contestants that see as many images as suit the data, unless the caller says how many."""
    return [replace(entry, recipe=budgeted(entry.recipe, train, flat(changes))) for entry in entries]


def in_own_terms(entries: Sequence[Contestant], train: Dataset) -> list[Contestant]:
    """Return contestants that are trained as their losses declare, with as many images as before."""
    return [_in_own_terms(entry, train) for entry in entries]


def _in_own_terms(entry: Contestant, train: Dataset) -> Contestant:
    own = on_own_terms(entry.recipe, train, entry.said)
    changed = _with_recipe(entry, own.recipe)
    return replace(changed, demands=(*changed.demands, *own.words))


def _with_recipe(entry: Contestant, recipe: Recipe) -> Contestant:
    """Return a contestant with another recipe; what it needs is said anew, since it may be other things now."""
    former = needs(entry.recipe)
    demands = [*needs(recipe), *(word for word in entry.demands if word not in former)]
    return replace(entry, recipe=recipe, demands=tuple(demands))


def notes_on_names(ways: Sequence[str], entries: Sequence[Contestant]) -> tuple[str, ...]:
    """What names stand for where one might think otherwise: a loss without its miner, or not the folder of its name.

    Args:
        ways: As they were asked for.
        entries: One of each loss.
    """
    folders = [way for way in ways if not is_recipe(way) and Path(way).is_dir()]
    notes = [f"{way} is the loss; the folder of that name is ./{way}." for way in folders]
    mined = {entry.recipe.loss for entry in entries if entry.recipe.mining is not None}
    notes += [
        note
        for entry in entries
        if entry.recipe.loss not in mined and (note := miner_note(entry.recipe, entry.said)) is not None
    ]
    return tuple(notes)
