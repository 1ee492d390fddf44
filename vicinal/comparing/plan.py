"""Plan of a comparison: all of its runs, built from the caller's request and checked before anything runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

from vicinal._util.code import NO_TRUST, Trust, handed_over, name_of, works_elsewhere
from vicinal.comparing.contestants import Contestant, Draft, drafts, is_recipe, memory_of
from vicinal.data import PROTOCOLS, READERS, Dataset, Split, as_dataset, is_foreign, load
from vicinal.data._load import reader_of
from vicinal.data.dataset import need_one_label
from vicinal.data.splits import CHOOSING_FOLDS, CROSS_VALIDATION
from vicinal.errors import InputError, VicinalError
from vicinal.mining import MINERS
from vicinal.objectives import OBJECTIVES
from vicinal.runs.build import build_criterion, build_sampler, groups_that_fit, with_fitting_batches
from vicinal.runs.draft import Budget, budgeted, evaluation_interval, images_per_step, steps_that_see, suited_settings
from vicinal.runs.notes import batch_note, miner_note
from vicinal.runs.paper_settings import TERMS, paper_settings_of
from vicinal.runs.recipe import Recipe, flat, read_tables

__all__ = [
    "PANEL",
    "Method",
    "Splits",
    "as_names",
    "notes_on_names",
    "panel_in_words",
    "plan",
    "states_conditions",
    "with_batches_that_fit",
    "with_equal_images",
    "with_groups_that_fit",
    "with_paper_settings",
    "with_patience",
]


SEEDS_OF_HEADS = 3  # default number of seeds of heads on fixed features

# Default losses of a comparison: a few of different kinds.


class PanelMethod(NamedTuple):
    """A loss as `compare` takes it, its kind, and what the literature says about it."""

    loss: str
    kind: str
    literature: str


PANEL: tuple[PanelMethod, ...] = (
    PanelMethod(
        "contrastive",
        "pairs",
        "the oldest and simplest; when tuned, close to later losses (Musgrave et al. 2020).",
    ),
    PanelMethod(
        "triplet+semi_hard",
        "triplets",
        "the usual choice since FaceNet (Schroff et al. 2015); sensitive to the learning rate.",
    ),
    PanelMethod(
        "multi_similarity+valid_triplets",
        "weighted pairs",
        "weights pairs by their neighbours (Wang et al. 2019); among the best pair losses.",
    ),
    PanelMethod(
        "proxy_anchor",
        "proxies",
        "one learned vector per class (Kim et al. 2020); learns fast, needs many classes per batch.",
    ),
    PanelMethod(
        "normalised_softmax",
        "classification",
        "a normalised classifier (Zhai and Wu 2019); a strong baseline without mining.",
    ),
)


def panel_in_words() -> list[str]:
    """Return a line on each loss of the panel."""
    return [f"{method.loss} ({method.kind}): {method.literature}" for method in PANEL]


# Defaults for settings that the user did not choose: network, batches, groups, budget, and settings from the paper.


def states_conditions(base: Mapping[str, Any], losses: Sequence[Any]) -> bool:
    """Whether a recipe, shared or of a loss, states the conditions; otherwise the data determines them."""
    return bool(base) or any(is_recipe(str(loss)) for loss in losses)


def with_settings_of_the_data(draft: Draft, suited: Mapping[str, Any], chosen: Mapping[str, Any]) -> Draft:
    """Return a draft with the network and training settings that suit the data, unless the user chose them.

    Args:
        draft: Draft of a loss that is named without a recipe.
        suited: Settings that suit the data.
        chosen: Settings that override everything.
    """
    fitted = draft.changed(**suited).changed(**chosen)
    if fitted.recipe.memory and "memory" not in fitted.chosen:
        return fitted.changed(memory=memory_of(fitted.recipe))
    return fitted


def with_cross_validation(drafts: Sequence[Draft], data: Dataset, splits: Splits, *, usual: bool) -> list[Draft]:
    """Return drafts that choose settings by cross-validation if that is cheap, with a number of folds that fits.

    Chance-constrained proxies need validation classes in every run, so they exclude it.

    Args:
        drafts: One of each loss.
        data: The whole dataset.
        splits: Its splits.
        usual: Whether the protocol is the default one, because the user chose none.
    """
    first = drafts[0].recipe
    alternating = any(draft.recipe.ccp is not None for draft in drafts)
    if usual and first.trains_head_only and not first.select_on_test and not alternating and not data.has_sets:
        drafts = [draft.changed(protocol=CROSS_VALIDATION) for draft in drafts]
    if not drafts[0].recipe.cross_validated:
        return list(drafts)
    if alternating:
        raise InputError(
            f"Protocol {CROSS_VALIDATION!r} fits the model on all training classes, and chance-constrained proxies "
            "need validation classes in every run: choose protocol 'fixed-validation' or 'reality-check'."
        )
    pool = len(splits.of(drafts[0].recipe).train.classes)
    folds = drafts[0].recipe.folds or min(CHOOSING_FOLDS, pool)
    return [draft.changed(folds=folds) for draft in drafts]


def usual_seeds(recipe: Recipe) -> int:
    """Return the default number of seeds: several where only heads are trained."""
    return SEEDS_OF_HEADS if recipe.cross_validated and recipe.trains_head_only else 1


def with_groups_that_fit(draft: Draft, sets: Sequence[Dataset]) -> Draft:
    """Return a draft with no more groups of classes than the classes of every seed and fold allow."""
    if not draft.recipe.hierarchy:
        return draft
    classes = min(len(train.classes) for train in sets)
    return draft.changed(hierarchy=groups_that_fit(draft.recipe.hierarchy, classes))


def with_batches_that_fit(draft: Draft, sets: Sequence[Dataset]) -> tuple[Draft, str | None]:
    """Return a draft whose batches the training items of every seed and fold can fill, and a note if they shrank.

    Args:
        draft: Draft of one loss.
        sets: Training items of all seeds and folds.
    """
    fitting = with_fitting_batches(draft.recipe, *sets)
    return replace(draft, recipe=fitting), batch_note(draft.recipe, fitting, sets[0])


def with_default_budget(draft: Draft, chosen: Mapping[str, Any], train: Dataset) -> Draft:
    """Return a draft with a number of images that suits the data, unless the caller chose a budget."""
    return replace(draft, recipe=budgeted(draft.recipe, train, chosen))


def with_paper_settings(draft: Draft, train: Dataset) -> Draft:
    """Return a draft with the settings from the paper where the user chose none, and the same number of images."""
    own = paper_settings_of(draft.recipe, train, draft.chosen)
    return replace(draft, recipe=own.recipe, differences=(*draft.differences, *own.words))


def notes_on_names(ways: Collection[str], drafts: Sequence[Draft]) -> tuple[str, ...]:
    """Return notes on ambiguous names: a loss without its usual miner, or a loss with the name of a folder.

    Args:
        ways: Losses as requested.
        drafts: One of each loss.
    """
    folders = [loss for loss in ways if not is_recipe(loss) and Path(loss).is_dir()]
    notes = [f"{loss} is the loss; the folder of that name is ./{loss}." for loss in folders]
    mined = {draft.recipe.loss for draft in drafts if draft.recipe.mining is not None}
    notes += [
        note
        for draft in drafts
        if draft.recipe.loss not in mined and (note := miner_note(draft.recipe, draft.chosen)) is not None
    ]
    return tuple(notes)


# Training length: the same number of images, and the same patience, for all losses.

# A run stops early only if it is long enough to distinguish a plateau from convergence: it has at least `LONG`
# evaluations, and a share `IN_VAIN` of them in a row brings no improvement. The share is half, since a cosine schedule
# often raises the score again after a plateau.
LONG, IN_VAIN = 20, 0.5


def with_equal_images(
    drafts: Sequence[Draft], images: int | None, chosen: Mapping[str, Any] | None = None
) -> list[Draft]:
    """Return drafts that all see the same number of images, whatever their batch sizes.

    That number is the largest common multiple of all batch sizes up to the requested one. If there is none, the
    numbers differ by less than a batch.

    Args:
        drafts: One of each loss.
        images: Number of images; None for the number that the first loss with shared batches sees in its steps.
        chosen: Requested settings; without `evaluate_every` among them, the evaluation interval is adapted to the
            number of images. None leaves it unchanged.
    """
    sizes = [images_per_step(draft.recipe) for draft in drafts]
    shared = next((draft.recipe for draft in drafts if not TERMS["batch"] & draft.chosen), drafts[0].recipe)
    steps, size = shared.training.steps, images_per_step(shared)
    if images is None and (len(set(sizes)) == 1 or steps is None):
        return list(drafts)
    wanted = (steps or 0) * size if images is None else images
    whole = math.lcm(*sizes)
    if wanted >= whole:
        wanted -= wanted % whole
    every = shared.training.evaluate_every
    if chosen is not None and "evaluate_every" not in chosen:
        every = evaluation_interval(wanted // size)
    ends = {} if images is None else {"seconds": None}  # images are the only budget, whatever a recipe says
    return [
        draft.changed(**ends, steps=steps_that_see(wanted, own), evaluate_every=_as_often(every, size, own))
        for draft, own in zip(drafts, sizes, strict=True)
    ]


def _as_often(every: int, size: int, own: int) -> int:
    """Return the evaluation interval in steps of another batch size, equal in images; 0 (never) stays 0."""
    return max(1, round(every * size / own)) if every else 0


def with_patience(drafts: Sequence[Draft]) -> list[Draft]:
    """Return drafts that stop early after half of all evaluations in a row without improvement, if there are many.

    A time budget is always used up, since its number of evaluations is not known in advance.
    """
    training = drafts[0].recipe.training
    if training.steps is None or not training.evaluate_every:
        return list(drafts)
    evaluations = training.steps // training.evaluate_every
    if evaluations < LONG:
        return list(drafts)
    patience = math.ceil(IN_VAIN * evaluations)
    return [draft.changed(patience=patience) for draft in drafts]


# A requested loss: a name or recipe, a function, or a pair of loss and miner.
Method = str | Path | Callable[..., Any] | tuple[str | Callable[..., Any], str | Callable[..., Any]]


@final
class Splits:
    """The splits of a dataset that a comparison uses, each computed once.

    Args:
        data: The whole dataset.
    """

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._made: dict[tuple[object, ...], Split] = {}

    def of(self, recipe: Recipe) -> Split:
        """Return the split of a recipe."""
        wanted = recipe.protocol, recipe.training.seed, recipe.fold, recipe.folds, recipe.validation
        if wanted not in self._made:
            self._made[wanted] = recipe.split(self._data)
        return self._made[wanted]


@final
@dataclass(frozen=True)
class Plan:
    """All runs of a comparison.

    Attributes:
        data: The whole dataset.
        grid: All runs, ordered such that every loss has its first result before any has its second.
        shared: Recipe of one of them, to read the shared settings.
        notes: Notes that apply to all scores.
        splits: Splits of all seeds and folds.
        networks: Other pretrained networks, which are scored without training.
    """

    data: Dataset
    grid: list[Contestant]
    shared: Recipe
    notes: tuple[str, ...]
    splits: Splits
    networks: tuple[str, ...] = ()

    @property
    def can_choose(self) -> bool:
        """Whether there are validation classes, separate from the test classes, to choose learning rates by."""
        first = self.grid[0].recipe
        return not first.select_on_test and self.splits.of(first.by_fold()[0]).usable_validation is not None

    @property
    def stays_here(self) -> list[str]:
        """Custom functions that other processes cannot import."""
        return [name for name in _code_names(self.grid) if not works_elsewhere(name)]


def as_names(losses: Sequence[Method] | None) -> list[str]:
    """Return losses as the command line names them; None stands for the panel.

    Example:
        >>> as_names(["triplet", ("contrastive", "hard")])
        ['triplet', 'contrastive+hard']
    """
    if losses is None:
        return [method.loss for method in PANEL]
    named = []
    for method in losses:
        loss, *miners = method if isinstance(method, tuple) else (method,)
        parts = [str(loss) if isinstance(loss, Path) else name_of("loss", loss, OBJECTIVES)]
        named.append("+".join([*parts, *(name_of("miner", miner, MINERS) for miner in miners)]))
    return named


@final
@dataclass(frozen=True)
class Access:
    """How the names of data and code are opened.

    Attributes:
        trust: Code that may be imported.
        check: Information to store about image files when they are read, as in `vicinal.data.checks`.
        choose_network: Function from data, splits, suited settings and chosen settings to the network to use; None for
            the usual one.
    """

    trust: Trust = NO_TRUST
    check: str = "content"
    choose_network: Callable[..., Any] | None = None


def plan(
    data: Any,
    ways: Sequence[str],
    *,
    recipe: Recipe | str | Path | Sequence[str | Path] | None,
    dims: Sequence[int],
    backbones: Sequence[Any],
    seeds: int | None,
    same_batches: bool,
    budget: Budget,
    changes: Mapping[str, Any],
    access: Access | None = None,
) -> Plan:
    """Return all runs of a comparison; arguments are those of `vicinal.compare`, and `access`.

    Raises:
        InputError: If any recipe is invalid; lists all problems of all recipes.
    """
    access = access or Access()
    trust = access.trust | (recipe.trust if isinstance(recipe, Recipe) else Trust.none())
    data = as_dataset(data) if is_foreign(data) else data
    networks = [network_settings(backbone, flat(changes)) for backbone in backbones]
    base = _tables(recipe)
    changes = {**changes, **budget.settings()}
    if "seconds" in flat(changes) and "steps" not in flat(changes):  # time is the only budget, whatever a recipe says
        changes = {**changes, "steps": None}
    if flat(changes).get("fold") is not None:
        raise InputError(
            f"A comparison runs all folds of its protocol; got fold = {flat(changes)['fold']}: leave it out."
        )
    first = drafts(ways, base, changes if data is None else {**changes, "data": _name(data)}, trust)
    whole = data if isinstance(data, Dataset) else _load(first[0].recipe, access.check)
    need_one_label(whole, "A comparison")
    wishes = Wishes(
        chosen=flat(changes),
        network=networks[0] if networks else {},
        images=budget.images,
        seeds=seeds,
        follow_data=not states_conditions(base, ways),
        same_batches=same_batches,
        choose_network=access.choose_network,
    )
    splits = Splits(whole)
    completed, notes, others = complete(first, whole, splits, wishes)
    seeds = usual_seeds(completed[0].recipe) if seeds is None else seeds
    grid = _grid([draft.contestant() for draft in completed], dims, networks, seeds)
    ours = handed_over(_code_names(grid))  # code that other processes have to import
    grid = [replace(contestant, recipe=contestant.recipe.trusting(ours)) for contestant in grid]
    _check(grid, splits)
    return Plan(whole, grid, completed[0].recipe, (*notes, *notes_on_names(ways, completed)), splits, others)


@final
@dataclass(frozen=True, kw_only=True)
class Wishes:
    """Settings of a caller for all losses of a comparison.

    Attributes:
        chosen: Settings that override those of all recipes.
        network: Settings of the first network to compare; empty for that of the recipes or the default for the data.
        images: Budget of each run in images; None for a budget in steps or time.
        seeds: Number of seeds; None for the usual one.
        follow_data: Whether network and budget follow the data, because no recipe states conditions.
        same_batches: Whether all losses use the same composition of batches.
        choose_network: Function that chooses the network, as in `Access`.
    """

    chosen: Mapping[str, Any]
    network: Mapping[str, Any]
    images: int | None
    seeds: int | None
    follow_data: bool
    same_batches: bool
    choose_network: Callable[..., Any] | None = None


def complete(
    first: Sequence[Draft], data: Dataset, splits: Splits, wishes: Wishes
) -> tuple[list[Draft], list[str], tuple[str, ...]]:
    """Fill in the settings that the user did not choose.

    Returns:
        Complete drafts, notes on the network and on batches that shrank, and other networks to score without training.

    Args:
        first: Draft of each loss.
        data: The whole dataset.
        splits: Its splits.
        wishes: Settings of the caller for all losses.
    """
    ready = list(first)
    others: tuple[str, ...] = ()
    network_notes: list[str] = []
    # 1. Network and training settings.
    if wishes.follow_data:
        suited = suited_settings(data, {**wishes.chosen, **wishes.network})
        if wishes.choose_network is not None and not wishes.network:
            network = wishes.choose_network(data, splits, suited, wishes.chosen)
            if network is not None:
                suited, others = suited | network.settings, network.others
                network_notes.append(network.note)
        ready = [with_settings_of_the_data(draft, suited, wishes.chosen) for draft in ready]
    ready = [draft.changed(**wishes.network) for draft in ready]
    # 2. How settings are chosen.
    ready = with_cross_validation(ready, data, splits, usual=wishes.follow_data and "protocol" not in wishes.chosen)
    # 3. Groups and batches that the training items of every seed and fold can fill.
    seeds = usual_seeds(ready[0].recipe) if wishes.seeds is None else wishes.seeds
    tried = [recipe for cell in _grid([ready[0].contestant()], (), (), seeds) for recipe in cell.recipe.by_fold()]
    cells = [splits.of(recipe).train for recipe in tried]
    fitted = [with_batches_that_fit(with_groups_that_fit(draft, cells), cells) for draft in ready]
    ready = [draft for draft, _ in fitted]
    notes = network_notes + list(dict.fromkeys(note for _, note in fitted if note is not None))
    # 4. The budget: images that suit the data, the same number for all losses, and the same patience.
    if wishes.follow_data:
        ready = [with_default_budget(draft, wishes.chosen, cells[0]) for draft in ready]
    ready = with_equal_images(ready, wishes.images, wishes.chosen if wishes.follow_data else None)
    if wishes.follow_data and "patience" not in wishes.chosen:
        ready = with_patience(ready)
    # 5. Settings from the paper of each loss.
    if not wishes.same_batches:
        ready = [with_paper_settings(draft, cells[0]) for draft in ready]
    return ready, notes, others


def network_settings(backbone: Any, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a network to compare.

    Args:
        backbone: Its name or class, or a tuple of that and its options.
        chosen: Settings for all networks; its options apply to a network without its own.

    Example:
        >>> network_settings(("timm", {"model": "vit_small_patch16_224"}), {})
        {'backbone': 'timm', 'backbone_options': {'model': 'vit_small_patch16_224'}}
        >>> network_settings("transformers", {"backbone_options.model": "dinov2-small"})
        {'backbone': 'transformers', 'backbone_options.model': 'dinov2-small'}
    """
    backbone, options = backbone if isinstance(backbone, tuple) else (backbone, {})
    name = Recipe.of({"backbone": backbone}).backbone
    shared = {setting: value for setting, value in chosen.items() if setting.partition(".")[0] == "backbone_options"}
    return {"backbone": name, **({"backbone_options": dict(options)} if options else shared)}


def _tables(recipe: Recipe | str | Path | Sequence[str | Path] | None) -> Mapping[str, Any]:
    if isinstance(recipe, Recipe):
        return recipe.model_dump()
    return read_tables(*([recipe] if isinstance(recipe, str | Path) else recipe or []))


def _name(data: str | Path | Dataset | Callable[..., Dataset]) -> str:
    if isinstance(data, Dataset):
        return data.name
    return str(data) if isinstance(data, Path) else name_of("dataset", data, READERS)


def _load(recipe: Recipe, check: str) -> Dataset:
    if recipe.data is None:
        raise InputError("No dataset given. Pass one, by name or path, or a recipe that names one.")
    reader = reader_of(recipe.data, recipe.trust)
    checks: dict[str, Any] = {}
    if "check" in inspect.signature(reader).parameters:  # a reader of files
        checks["check"] = check
    return load(recipe.data, skip_bad=recipe.skip_bad, allow_code=recipe.trust.sources, **checks)


def _code_names(grid: Sequence[Contestant]) -> list[str]:
    """Return the names in the recipes of runs that may refer to code."""
    recipes = [contestant.recipe for contestant in grid]
    named = [name for each in recipes for name in (each.data, each.loss, each.mining, each.backbone) if name]
    return list(dict.fromkeys(named))


def _grid(
    entries: Sequence[Contestant], dims: Sequence[int], networks: Sequence[Mapping[str, Any]], seeds: int
) -> list[Contestant]:
    """Return all runs, ordered such that every loss has its first result before any has its second."""
    first = entries[0].recipe
    count = None if first.cross_validated else first.folds or PROTOCOLS[first.protocol]
    folds: Sequence[int | None] = [None] if count is None else range(count)
    sizes: Sequence[int | None] = dims or [first.dim]
    return [
        replace(entry, recipe=entry.recipe.changed(network, seed=seed, fold=fold, dim=dim))
        for seed in range(seeds)
        for fold in folds
        for network in networks or [{}]
        for dim in sizes
        for entry in entries
    ]


def _check(grid: Sequence[Contestant], splits: Splits) -> None:
    """Build every loss on the data before anything runs, and report all problems at once."""
    first = grid[0].recipe
    if first.select_on_test and first.protocol != "default":
        raise InputError(
            f"Selecting steps on test classes needs protocol 'default', not {first.protocol!r}, which has "
            "validation classes for it."
        )
    train = splits.of(first.by_fold()[0]).train
    wrong: dict[str, None] = {}
    for contestant in {contestant.name: contestant for contestant in grid}.values():
        try:
            build_criterion(contestant.recipe, train, contestant.recipe.dim or 8)
            build_sampler(contestant.recipe, train)
        except VicinalError as error:
            wrong[f"{contestant.name}: {error}"] = None
    if wrong:
        raise InputError("The comparison has errors:\n" + "\n".join(f"  - {line}" for line in wrong))
