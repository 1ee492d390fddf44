"""Contestants: one recipe per loss from the names on a command line, with equal conditions for all losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from vicinal._util.code import NO_TRUST, Trust, is_code, known_name, short_name
from vicinal.errors import InputError, UnknownName, VicinalError
from vicinal.mining import MINERS
from vicinal.objectives import ALIASES, OBJECTIVES, find_objective, without_alias
from vicinal.recipes import expand
from vicinal.runs.paper_settings import BATCHES, TERMS, USUAL
from vicinal.runs.recipe import Recipe, flat, laid_over, read_tables, without_choice_on_test
from vicinal.runs.record import Record

__all__ = ["Contestant", "Draft", "demands_after_search", "described", "drafts", "is_recipe", "memory_of", "needs"]

# Settings of a loss; everything else is a condition that all losses share.
OF_THE_LOSS = (
    "loss",
    "loss_options",
    "mining",
    "mining_options",
    "memory",
    "memory_start",
    "cover",
    "cover_pool",
    "cover_every",
    "hierarchy",
    "hierarchy_weight",
    "proxies_per_class",
    "proxy_multiplier",
    "ccp",
)
SINGLE = ("loss", "loss_options", "mining", "mining_options", "ccp")  # settings that cannot be given for all losses
# Conditions that the recipe file of a loss may change for that loss only; the report lists them.
DEMANDS = (
    "normalisation",
    "sampler",
    "classes_per_batch",
    "samples_per_class",
    "optimiser",
    "learning_rate",
    "head_multiplier",
    "betas",
    "weight_decay",
    "decay_before_clipping",
    "schedule",
    "schedule_every",
    "schedule_patience",
    "schedule_factor",
    "warm_up",
    "clip_norm",
    "clip_value",
)
MEMORY_BATCHES = 25
# Additions to a loss by name, and their settings.
EXTRAS: dict[str, dict[str, Any]] = {
    "memory": {"memory": True},
    "cover": {"cover": 4},
    "hierarchy": {"hierarchy": 25},
    "ccp": {"ccp": "code"},
}


@final
@dataclass(frozen=True)
class Draft:
    """A requested loss while its open settings are being filled in.

    Attributes:
        name: Name in tables.
        recipe: Recipe so far.
        chosen: Names of the settings that the user chose, so that neither the data nor the loss decides them: those of
            its own recipe, and those given for all losses except the composition of batches.
        differences: Settings that differ from those of the other losses, in words, without the needs of its recipe.
    """

    name: str
    recipe: Recipe
    chosen: frozenset[str] = frozenset()
    differences: tuple[str, ...] = ()

    def changed(self, **settings: Any) -> Draft:
        """Return the draft with other settings, which do not count as chosen."""
        return replace(self, recipe=self.recipe.changed(settings))

    @property
    def demands(self) -> tuple[str, ...]:
        """Special requirements of the loss, in words."""
        return (*needs(self.recipe), *self.differences)

    def contestant(self) -> Contestant:
        """Return the finished contestant."""
        return Contestant(self.name, self.recipe, self.demands, chosen=self.chosen)


@final
@dataclass(frozen=True)
class Contestant:
    """One run of a comparison; the runs of all seeds and folds form a row of its leaderboard.

    Attributes:
        name: Name in tables.
        recipe: Recipe of the run.
        demands: Special requirements of the loss, in words.
        role: "run"; "rung" for a run that only tries a learning rate; "baseline" for a run without training.
        tuning_trials: Number of trials that chose its settings.
        tuning_images: Number of images seen in those trials, without its own.
        rates: Validation score of each learning rate that was tried; None for one that failed.
        curve: Validation scores of its recipe by step, if it was already tried.
        validated: Fields of its record that cross-validation determined before the run.
        folds: Records of the cross-validation of its settings.
        chosen: Names of the settings that the user chose, as in `Draft`.
    """

    name: str
    recipe: Recipe
    demands: tuple[str, ...] = ()
    role: Literal["run", "rung", "baseline"] = "run"
    tuning_trials: int = 0
    tuning_images: int = 0
    rates: Mapping[float, float | None] = field(default_factory=dict)
    curve: Mapping[int, float] = field(default_factory=dict)
    validated: Mapping[str, Any] = field(default_factory=dict)
    folds: tuple[Record, ...] = ()
    chosen: frozenset[str] = frozenset()

    def __str__(self) -> str:
        recipe = self.recipe
        fold = "" if recipe.fold is None else f", fold {recipe.fold}"
        rate = f", rate {recipe.training.learning_rate:g}" if self.role == "rung" else ""
        dim = "" if recipe.dim is None else f"-{recipe.dim}"
        return f"{self.name} ({recipe.network}{dim}, seed {recipe.training.seed}{fold}{rate})"


def drafts(
    losses: Sequence[str | Path],
    base: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    trust: Trust = NO_TRUST,
) -> list[Draft]:
    """Return the draft of every loss; the problems of all losses are reported together.

    Args:
        losses: "triplet", "triplet+semi_hard" (with a miner), "contrastive+memory" (with past batches),
            "contrastive+cover" (with points that cover each class), "proxy_anchor+hierarchy" (with groups of classes),
            "contrastive+ccp" (with chance-constrained proxies), a recipe by its name or path, or a folder of them.
        base: Shared settings, as `read_tables` returns them; if empty, those of the first recipe among the losses.
            Settings of a loss apply to that loss only.
        flags: Settings that override everything, including recipes of single losses.
        trust: Code that any of them may name.

    Example:
        >>> [draft.name for draft in drafts(["triplet+semi_hard", "proxy_anchor"])]
        ['triplet+semi_hard', 'proxy_anchor']
    """
    if not losses:
        raise InputError("A comparison needs at least one loss: see `vicinal losses`.")
    texts = [single for text in map(str, losses) for single in (expand(text) if is_recipe(text) else [text])]
    shared, over = flat(base or {}), flat(flags or {})
    mistakes: list[str] = []
    if not shared and is_recipe(texts[0]):  # a complete recipe also states the conditions
        shared = {name: value for name, value in flat(read_tables(texts[0])).items() if name not in OF_THE_LOSS}
    mistakes += [f"{name} is a setting of single losses, and not for all of them" for name in over if name in SINGLE]
    over = {name: value for name, value in over.items() if name not in SINGLE}
    shared = without_choice_on_test(shared, over)
    common = _attempt(shared | over, mistakes, trust) or Recipe()
    made: list[Draft] = []
    names: list[str] = []
    for text in texts:
        try:
            name, own = described(text)
        except VicinalError as error:
            mistakes.append(str(error))
            continue
        names.append(name)
        draft = _draft(name, own, _Layers(shared, over, common), mistakes)
        if draft is not None:
            stated = {"mining"} if is_recipe(text) else set()  # a recipe states the miner along with the loss
            made.append(replace(draft, chosen=draft.chosen | stated))
    mistakes += [f"{name} is listed twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    if mistakes:
        raise InputError("The comparison has errors:\n" + "\n".join(f"  - {line}" for line in mistakes))
    return made


class _Layers(NamedTuple):
    """Settings below and above those of a loss: shared settings, and settings that override everything."""

    shared: Mapping[str, Any]
    over: Mapping[str, Any]
    common: Recipe


def _draft(name: str, own: Mapping[str, Any], layers: _Layers, mistakes: list[str]) -> Draft | None:
    """Return the draft of one loss, or record what is wrong with it.

    Args:
        name: Name in tables.
        own: Settings from its description.
        layers: Settings of all losses.
        mistakes: List that problems are appended to.
    """
    shared, over, common = layers
    inherited = {}
    if shared.get("loss") == own.get("loss"):
        inherited = {setting: shared[setting] for setting in OF_THE_LOSS if setting in shared}
    # From lowest to highest priority: conditions, defaults of the loss, the base's settings for it, its own, overrides.
    conditions = {setting: value for setting, value in shared.items() if setting not in OF_THE_LOSS}
    usual = USUAL.get(without_alias(str(own.get("loss"))), {})
    below = {**conditions, **usual, **inherited, "data": common.data}
    values = {**without_choice_on_test(laid_over(below, own), over), **over}
    chosen = {*own, *inherited, *(over.keys() - TERMS["batch"])}  # shared batch settings only fix the batch size
    if values.get("memory") is True:
        values["memory"] = shared.get("memory") or memory_of(common)
        chosen -= {"memory"}  # its size was not chosen
    wrong: list[str] = []
    recipe = _attempt(values, wrong, common.trust)
    draft = None
    if recipe is not None:
        find_objective(recipe.loss, recipe.trust)  # code that may not run is refused here, before any data is opened
        wrong += _differing(recipe, common)
        draft = Draft(name, recipe, frozenset(chosen), tuple(_differences(recipe, common)))
    mistakes += [f"{name}: {line}" for line in wrong if line not in mistakes]
    return draft


def memory_of(recipe: Recipe) -> int:
    """Return the default number of past embeddings in a memory: those of 25 batches."""
    return MEMORY_BATCHES * recipe.classes_per_batch * recipe.samples_per_class


def is_recipe(text: str) -> bool:
    """Whether a text names a recipe or a folder of recipes, and not a loss.

    A name of a loss always means the loss; write a folder of that name with a slash (`./triplet`). A name that ends in
    .toml is always a file.
    """
    if text.endswith(".toml"):
        return True
    loss = text.split("+")[0]
    if loss in OBJECTIVES or loss in ALIASES:
        return False
    return ("/" in text and not is_code(loss)) or Path(text).is_dir()


def described(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a contestant, and the settings that its description implies."""
    if is_recipe(text):
        return Path(text).stem, flat(read_tables(text))
    loss, *extras = text.split("+")
    known_name("loss", loss, {**OBJECTIVES, **ALIASES})
    own: dict[str, Any] = {"loss": loss}
    for extra in extras:
        if extra in EXTRAS:
            own |= EXTRAS[extra]
        else:
            try:
                own["mining"] = known_name("miner", extra, MINERS)
            except UnknownName:
                raise UnknownName(f"addition to {loss}", extra, [*EXTRAS, *MINERS]) from None
    return "+".join(map(short_name, [loss, *extras])), own


def _attempt(values: Mapping[str, Any], mistakes: list[str], trust: Trust) -> Recipe | None:
    """Return a recipe, or record what is wrong with it."""
    try:
        return Recipe.of(values, trust)
    except InputError as error:
        mistakes += str(error).split("\n  - ")[1:] or [str(error)]
        return None


def _differing(recipe: Recipe, common: Recipe) -> list[str]:
    """Return a message for each shared condition that a loss would change."""
    mine, theirs = flat(recipe.model_dump()), flat(common.model_dump())
    return [
        f"{name} is {mine[name]!r} here and {theirs[name]!r} for the others; all losses are compared under the same "
        "conditions: leave it out, or give it for all"
        for name in mine
        if name not in (*OF_THE_LOSS, *DEMANDS) and mine[name] != theirs[name]
    ]


def needs(recipe: Recipe) -> list[str]:
    """Describe what a loss requires: its miner, memory or proxies."""
    words = []
    if recipe.mining is not None:
        words.append(f"the {recipe.mining} miner")
    if recipe.memory:
        words.append(f"a memory of {recipe.memory} past embeddings")
    if recipe.cover:
        words.append(f"a cover of {recipe.cover} items per class")
    if recipe.hierarchy:
        words.append(f"{recipe.hierarchy} groups of classes")
    if recipe.ccp is not None:
        words.append(f"chance-constrained proxies, {recipe.ccp.proxies_per_class} per class")
    elif recipe.traits.usual == "proxies":
        rate = recipe.proxy_multiplier * recipe.training.learning_rate
        words.append(f"proxies, {recipe.proxies_per_class} per class, with learning rate {rate:.3g}")
    return words


def demands_after_search(contestant: Contestant, best: Recipe) -> tuple[str, ...]:
    """Return the requirements of a contestant after a search, which may have changed its needs and its batches."""
    own = contestant.recipe
    words_left = [words for words in contestant.demands if words not in needs(own)]
    if best.batch != own.batch:
        words_left = [words for words in words_left if not words.startswith(BATCHES)]
        shape = f"{best.classes_per_batch} classes x {best.samples_per_class}"
        words_left.append(f"{BATCHES} {shape}, which scored better in the search than {own.batch.replace('x', ' x ')}")
    return (*needs(best), *words_left)


def _differences(recipe: Recipe, common: Recipe) -> list[str]:
    mine, others = flat(recipe.model_dump()), flat(common.model_dump())
    return [f"{name} {mine[name]} instead of {others[name]}" for name in DEMANDS if mine[name] != others[name]]
