"""What a comparison starts from: what was asked for, and what suits the data where nothing was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vicinal.build import with_fitting_batches
from vicinal.comparing.contestants import Contestant, flat, is_recipe
from vicinal.data import Dataset
from vicinal.defaults import budgeted
from vicinal.results.run_notes import batch_note

__all__ = ["in_fitting_batches", "states_conditions", "under_default_budget"]


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


def under_default_budget(entries: Sequence[Contestant], changes: Mapping[str, Any], train: Dataset) -> list[Contestant]:
    """Return contestants that see as many images as suit the data, unless the caller says how many."""
    return [replace(entry, recipe=budgeted(entry.recipe, train, flat(changes))) for entry in entries]
