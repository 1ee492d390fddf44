"""From what was asked of a comparison to all of its runs, checked before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from vicinal.budget import Budget
from vicinal.build import build_criterion, build_sampler
from vicinal.comparing.contestants import Contestant, contestants
from vicinal.comparing.equal_budgets import with_equal_images, with_patience
from vicinal.comparing.panel import PANEL
from vicinal.comparing.starting_point import (
    in_fitting_batches,
    in_fitting_groups,
    in_own_terms,
    notes_on_names,
    states_conditions,
    under_default_budget,
)
from vicinal.data import PROTOCOLS, READERS, Dataset, is_foreign, load, of
from vicinal.data.label_sets import need_one_label
from vicinal.defaults import suited_settings
from vicinal.errors import InputError, VicinalError
from vicinal.mining import MINERS
from vicinal.named_code import name_of, told, works_elsewhere
from vicinal.objectives import OBJECTIVES
from vicinal.recipe import Recipe, flat, read_tables

__all__ = ["Plan", "Way", "as_names", "plan"]

# A loss as it is asked for: by name or recipe, as a function, or as a loss and its miner.
Way = str | Path | Callable[..., Any] | tuple[str | Callable[..., Any], str | Callable[..., Any]]


@final
@dataclass(frozen=True)
class Plan:
    """What a comparison is going to run.

    Attributes:
        data: The whole dataset.
        grid: All runs, such that every loss has its first result before any has its second.
        shared: The recipe of one of them, for what all have in common.
        notes: What a reader of any of the scores has to know.
    """

    data: Dataset
    grid: list[Contestant]
    shared: Recipe
    notes: tuple[str, ...]

    @property
    def can_choose(self) -> bool:
        """Whether there are classes to choose learning rates by that are not tested on."""
        first = self.grid[0].recipe
        return not first.select_on_test and first.split(self.data).chooser is not None

    @property
    def stays_here(self) -> list[str]:
        """The user's own functions that no other process can import."""
        recipes = [contestant.recipe for contestant in self.grid]
        named = [name for each in recipes for name in (each.data, each.loss, each.mining, each.backbone) if name]
        return [name for name in dict.fromkeys(named) if not works_elsewhere(name)]


def as_names(losses: Sequence[Way] | None) -> list[str]:
    """Return losses as the command line names them; none are those of the panel.

    Example:
        >>> as_names(["triplet", ("contrastive", "hard")])
        ['triplet', 'contrastive+hard']
    """
    if losses is None:
        return [way.loss for way in PANEL]
    named = []
    for way in losses:
        loss, *miners = way if isinstance(way, tuple) else (way,)
        parts = [str(loss) if isinstance(loss, Path) else name_of("loss", loss, OBJECTIVES)]
        named.append("+".join([*parts, *(name_of("miner", miner, MINERS) for miner in miners)]))
    return named


def plan(
    data: Any,
    ways: Sequence[str],
    *,
    recipe: Recipe | str | Path | Sequence[str | Path] | None,
    dims: Sequence[int],
    backbones: Sequence[Any],
    seeds: int,
    same_batches: bool,
    budget: Budget,
    changes: Mapping[str, Any],
) -> Plan:
    """Return all runs of a comparison; the words are those of `vicinal.compare`.

    Raises:
        InputError: Listing all mistakes of all recipes.
    """
    told(*ways, *backbones, *changes.values(), data)
    data = of(data) if is_foreign(data) else data
    backbones = [Recipe.of({"backbone": backbone}).backbone for backbone in backbones]  # as names
    base = _tables(recipe)
    changes = {**changes, **budget.settings()}
    if "seconds" in flat(changes) and "steps" not in flat(changes):  # time is the whole budget, whatever a recipe says
        changes = {**changes, "steps": None}
    if flat(changes).get("fold") is not None:
        raise InputError(
            f"A comparison runs all folds of its protocol; got fold = {flat(changes)['fold']}: leave it out."
        )
    flags = changes if data is None else {**changes, "data": _name(data)}
    entries = contestants(ways, base, flags)
    whole = data if isinstance(data, Dataset) else _load(entries[0].recipe)
    need_one_label(whole, "A comparison")
    follows_data = not states_conditions(base, ways)
    if follows_data:
        said = {**flat(changes), **({"backbone": backbones[0]} if backbones else {})}
        entries = contestants(ways, suited_settings(whole, said), flags)
    cells = [cell.recipe.split(whole).train for cell in _grid(entries[:1], (), (), seeds)]
    entries, notes = in_fitting_batches(in_fitting_groups(entries, cells), cells)
    if follows_data:
        entries = under_default_budget(entries, changes, cells[0])
    entries = with_equal_images(entries, budget.images, flat(changes) if follows_data else None)
    if follows_data and "patience" not in flat(changes):
        entries = with_patience(entries)
    if not same_batches:
        entries = in_own_terms(entries, cells[0])
    grid = _grid(entries, dims, backbones, seeds)
    _check(grid, whole)
    return Plan(whole, grid, entries[0].recipe, (*notes, *notes_on_names(ways, entries)))


def _tables(recipe: Recipe | str | Path | Sequence[str | Path] | None) -> Mapping[str, Any]:
    if isinstance(recipe, Recipe):
        return recipe.model_dump()
    return read_tables(*([recipe] if isinstance(recipe, str | Path) else recipe or []))


def _name(data: str | Path | Dataset | Callable[..., Dataset]) -> str:
    if isinstance(data, Dataset):
        return data.name
    return str(data) if isinstance(data, Path) else name_of("dataset", data, READERS)


def _load(recipe: Recipe) -> Dataset:
    if recipe.data is None:
        raise InputError("What is to be compared on? Give a dataset, its name or its path, or a recipe that names one.")
    return load(recipe.data, skip_bad=recipe.skip_bad)


def _grid(entries: Sequence[Contestant], dims: Sequence[int], backbones: Sequence[str], seeds: int) -> list[Contestant]:
    """Return all runs, such that every loss has its first result before any has its second."""
    first = entries[0].recipe
    count = first.folds or PROTOCOLS[first.protocol]
    folds: Sequence[int | None] = [None] if count is None else range(count)
    sizes: Sequence[int | None] = dims or [first.dim]
    return [
        replace(entry, recipe=entry.recipe.changed(seed=seed, fold=fold, backbone=backbone, dim=dim))
        for seed in range(seeds)
        for fold in folds
        for backbone in backbones or [first.backbone]
        for dim in sizes
        for entry in entries
    ]


def _check(grid: Sequence[Contestant], data: Dataset) -> None:
    """Build every loss on the data before anything runs, and report all that is wrong at once."""
    first = grid[0].recipe
    if first.select_on_test and first.protocol != "default":
        raise InputError(
            f"Choosing steps by the test classes goes with protocol 'default', not {first.protocol!r}, which has "
            "validation classes for it."
        )
    train = first.split(data).train
    wrong: dict[str, None] = {}
    for contestant in {contestant.name: contestant for contestant in grid}.values():
        try:
            build_criterion(contestant.recipe, train, contestant.recipe.dim or 8)
            build_sampler(contestant.recipe, train)
        except VicinalError as error:
            wrong[f"{contestant.name}: {error}"] = None
    if wrong:
        raise InputError("The comparison has mistakes:\n" + "\n".join(f"  - {line}" for line in wrong))
