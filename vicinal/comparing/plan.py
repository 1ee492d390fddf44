"""From what was asked of a comparison to all of its runs, checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

from vicinal._util.code import Trust, handed_over, name_of, works_elsewhere
from vicinal.comparing.contestants import Contestant, contestants, is_recipe, needs
from vicinal.data import PROTOCOLS, READERS, Dataset, is_foreign, load, of
from vicinal.data.dataset import need_one_label
from vicinal.errors import InputError, VicinalError
from vicinal.mining import MINERS
from vicinal.objectives import OBJECTIVES
from vicinal.runs.build import build_criterion, build_sampler, groups_that_fit, with_fitting_batches
from vicinal.runs.draft import Budget, budgeted, evaluation_interval, images_per_step, steps_that_see, suited_settings
from vicinal.runs.notes import batch_note, miner_note
from vicinal.runs.paper_settings import TERMS, on_own_terms
from vicinal.runs.recipe import Recipe, flat, read_tables

__all__ = [
    "PANEL",
    "Method",
    "as_names",
    "in_fitting_batches",
    "in_fitting_groups",
    "in_own_terms",
    "notes_on_names",
    "panel_in_words",
    "plan",
    "states_conditions",
    "with_equal_images",
    "with_patience",
]


# The ways that are compared where none is named: few, and different in kind.


class PanelMethod(NamedTuple):
    """A loss as `compare` takes it, what kind it is of, and what the literature says of it."""

    loss: str
    kind: str
    literature: str


PANEL: tuple[PanelMethod, ...] = (
    PanelMethod(
        "contrastive",
        "pairs",
        "the oldest and simplest; well tuned it is hardly behind any later loss (Musgrave et al. 2020).",
    ),
    PanelMethod(
        "triplet+semi_hard",
        "triplets",
        "the customary choice since FaceNet (Schroff et al. 2015); sensitive to its learning rate.",
    ),
    PanelMethod(
        "multi_similarity+valid_triplets",
        "all pairs, weighed",
        "weighs pairs by their neighbours (Wang et al. 2019); among the best of the losses on pairs.",
    ),
    PanelMethod(
        "proxy_anchor",
        "proxies",
        "a learned vector for each class (Kim et al. 2020); learns fast, and wants many classes in a batch.",
    ),
    PanelMethod(
        "normalised_softmax",
        "classification",
        "a classifier whose weights are class vectors (Zhai and Wu 2019); a strong baseline that needs no mining.",
    ),
)


def panel_in_words() -> list[str]:
    """A line on each way of the panel."""
    return [f"{way.loss} ({way.kind}): {way.literature}" for way in PANEL]


# What a comparison starts from: what was asked for, and what suits the data where nothing was.


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


# How long the runs of a comparison train: the same number of images, and the same patience, for all losses.

# A run ends early only where it is long enough to tell a pause from the end: so many evaluations, half of them in vain.
# Half, since rates that fall along a cosine often lift a score again after it stood still.
LONG, IN_VAIN = 20, 0.5


def with_equal_images(
    entries: Sequence[Contestant], images: int | None, said: Mapping[str, Any] | None = None
) -> list[Contestant]:
    """Return contestants all of which see the same number of images, whatever the size of their batches.

    That number is the largest up to the wanted one of which every batch is a part; where batches are too different for
    one, the numbers differ by less than a batch.

    Args:
        entries: One of each loss.
        images: To be seen; None for those that the steps of the first loss in shared batches see.
        said: Settings that were asked for; with `evaluate_every` not among them, evaluations suit the number of images.
            None leaves evaluations as they are.
    """
    sizes = [images_per_step(entry.recipe) for entry in entries]
    shared = next((entry.recipe for entry in entries if not TERMS["batch"] & entry.said), entries[0].recipe)
    steps, size = shared.training.steps, images_per_step(shared)
    if images is None and (len(set(sizes)) == 1 or steps is None):
        return list(entries)
    wanted = (steps or 0) * size if images is None else images
    whole = math.lcm(*sizes)
    wanted -= wanted % whole if wanted >= whole else 0
    every = shared.training.evaluate_every
    if said is not None and "evaluate_every" not in said:
        every = evaluation_interval(wanted // size)
    ends = {} if images is None else {"seconds": None}  # images are the whole budget, whatever a recipe says
    return [
        replace(
            entry,
            recipe=entry.recipe.changed(
                **ends,
                steps=steps_that_see(wanted, own),
                evaluate_every=every if own == size else max(bool(every), round(every * size / own)),
            ),
        )
        for entry, own in zip(entries, sizes, strict=True)
    ]


def with_patience(entries: Sequence[Contestant]) -> list[Contestant]:
    """Return contestants that end early where half of all evaluations in a row bring nothing, if those are many.

    A time is spent to its end: how many evaluations it has room for is not known before.
    """
    training = entries[0].recipe.training
    if training.steps is None or not training.evaluate_every:
        return list(entries)
    evaluations = training.steps // training.evaluate_every
    if evaluations < LONG:
        return list(entries)
    patience = math.ceil(IN_VAIN * evaluations)
    return [replace(entry, recipe=entry.recipe.changed(patience=patience)) for entry in entries]


# A loss as it is asked for: by name or recipe, as a function, or as a loss and its miner.
Method = str | Path | Callable[..., Any] | tuple[str | Callable[..., Any], str | Callable[..., Any]]


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
        return [name for name in _code_names(self.grid) if not works_elsewhere(name)]


def as_names(losses: Sequence[Method] | None) -> list[str]:
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
    trust: Trust,
) -> Plan:
    """Return all runs of a comparison; the words are those of `vicinal.compare`, and `trust` is the code to import.

    Raises:
        InputError: Listing all mistakes of all recipes.
    """
    trust |= recipe.trust if isinstance(recipe, Recipe) else Trust.none()
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
    entries = contestants(ways, base, flags, trust)
    whole = data if isinstance(data, Dataset) else _load(entries[0].recipe)
    need_one_label(whole, "A comparison")
    follows_data = not states_conditions(base, ways)
    if follows_data:
        said = {**flat(changes), **({"backbone": backbones[0]} if backbones else {})}
        entries = contestants(ways, suited_settings(whole, said), flags, trust)
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
    ours = handed_over(_code_names(grid))  # which other processes have to import
    grid = [replace(contestant, recipe=contestant.recipe.trusting(ours)) for contestant in grid]
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
    return load(recipe.data, skip_bad=recipe.skip_bad, allow_code=recipe.trust.sources)


def _code_names(grid: Sequence[Contestant]) -> list[str]:
    """Return what the recipes of runs name that may be code."""
    recipes = [contestant.recipe for contestant in grid]
    named = [name for each in recipes for name in (each.data, each.loss, each.mining, each.backbone) if name]
    return list(dict.fromkeys(named))


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
