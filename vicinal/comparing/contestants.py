"""What is compared: from the words of a command line to one recipe per loss, equal in all that is not the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from vicinal._util.code import NO_TRUST, Trust, is_code, known_name, short_name
from vicinal.errors import InputError, UnknownName, VicinalError
from vicinal.mining import MINERS
from vicinal.objectives import ALIASES, OBJECTIVES
from vicinal.recipes import expand
from vicinal.runs.paper_settings import BATCHES, TERMS, USUAL
from vicinal.runs.recipe import Recipe, flat, laid_over, read_tables, without_choice_on_test

__all__ = ["Contestant", "contestants", "demands_after_search", "described", "is_recipe", "needs"]

# What belongs to a loss; everything else is a condition that all losses share.
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
SINGLE = ("loss", "loss_options", "mining", "mining_options", "ccp")  # that cannot be given for all of them
# Conditions that the recipe file of a loss may change for it alone; the report says so.
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
# What may be added to a loss by name, and the settings that this makes.
EXTRAS: dict[str, dict[str, Any]] = {
    "memory": {"memory": True},
    "cover": {"cover": 4},
    "hierarchy": {"hierarchy": 25},
    "ccp": {"ccp": "code"},
}


@final
@dataclass(frozen=True)
class Contestant:
    """One line of a leaderboard.

    Attributes:
        name: What tables call it.
        recipe: Its settings.
        demands: What it asks for that others do not, in words.
        role: "run"; "rung" for one that is tried for its learning rate alone; "baseline" for what costs no training.
        tuning_trials: How many trials chose its settings.
        tuning_images: Seen in those trials, beyond its own.
        rates: The learning rates that were tried, and the validation score of each; None for one that failed.
        curve: Steps and validation scores of its recipe, where it was tried already.
        said: Names of the settings that somebody chose for it, so that its loss does not: those of its own recipe, and
            what is given for all but for how batches are composed.
    """

    name: str
    recipe: Recipe
    demands: tuple[str, ...] = ()
    role: Literal["run", "rung", "baseline"] = "run"
    tuning_trials: int = 0
    tuning_images: int = 0
    rates: Mapping[float, float | None] = field(default_factory=dict)
    curve: Mapping[int, float] = field(default_factory=dict)
    said: frozenset[str] = frozenset()

    def __str__(self) -> str:
        recipe = self.recipe
        fold = "" if recipe.fold is None else f", fold {recipe.fold}"
        rate = f", rate {recipe.training.learning_rate:g}" if self.role == "rung" else ""
        return f"{self.name} ({recipe.backbone}-{recipe.dim}, seed {recipe.training.seed}{fold}{rate})"


def contestants(
    losses: Sequence[str | Path],
    base: Mapping[str, Any] | None = None,
    flags: Mapping[str, Any] | None = None,
    trust: Trust = NO_TRUST,
) -> list[Contestant]:
    """Return the recipe of every loss; all mistakes of all of them are reported together.

    Args:
        losses: "triplet", "triplet+semi_hard" (with a miner), "contrastive+memory" (with past batches),
            "contrastive+cover" (with points that cover each class), "proxy_anchor+hierarchy" (with groups of classes),
            "contrastive+ccp" (with chance-constrained proxies), a recipe by its name or path, or a folder of them.
        base: Settings that all share, as `read_tables` returns them; where there are none, those of the first recipe
            among the losses. Those of a loss are kept for that loss alone.
        flags: Settings that override everything, recipes of single losses included.
        trust: The code that any of them may name.

    Example:
        >>> [one.name for one in contestants(["triplet+semi_hard", "proxy_anchor"])]
        ['triplet + semi_hard', 'proxy_anchor']
    """
    if not losses:
        raise InputError("A comparison needs at least one loss: see `vicinal losses`.")
    texts = [single for text in map(str, losses) for single in (expand(text) if is_recipe(text) else [text])]
    shared, over = flat(base or {}), flat(flags or {})
    mistakes: list[str] = []
    if not shared and is_recipe(texts[0]):  # a whole recipe states the conditions, too
        shared = {name: value for name, value in flat(read_tables(texts[0])).items() if name not in OF_THE_LOSS}
    mistakes += [f"{name} is a setting of single losses, and not for all of them" for name in over if name in SINGLE]
    over = {name: value for name, value in over.items() if name not in SINGLE}
    shared = without_choice_on_test(shared, over)
    common = _attempt(shared | over, mistakes, trust) or Recipe()
    found: list[Contestant] = []
    names: list[str] = []
    for text in texts:
        wrong: list[str] = []
        try:
            name, own = described(text)
        except VicinalError as error:
            mistakes.append(str(error))
            continue
        names.append(name)
        same_loss = shared.get("loss") == own.get("loss")
        inherited = {setting: shared[setting] for setting in OF_THE_LOSS if same_loss and setting in shared}
        values = {setting: value for setting, value in shared.items() if setting not in OF_THE_LOSS}
        values |= USUAL.get(ALIASES.get(str(own.get("loss")), str(own.get("loss"))), {}) | inherited
        values = without_choice_on_test(laid_over({**values, "data": common.data}, own), over) | over
        if values.get("memory") is True:
            batch = common.classes_per_batch * common.samples_per_class
            values["memory"] = shared.get("memory") or MEMORY_BATCHES * batch
        recipe = _attempt(values, wrong, trust)
        if recipe is not None:
            wrong += _differing(recipe, common)
            # Of batches what is given for all is how many images they have.
            said = {*own, *inherited, *(over.keys() - TERMS["batch"])}
            said |= {"mining"} if is_recipe(text) else set()  # which says with the loss whether it mines
            found.append(Contestant(name, recipe, tuple(_demands(recipe, common)), said=frozenset(said)))
        mistakes += [f"{name}: {line}" for line in wrong if line not in mistakes]
    mistakes += [f"{name} is there twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    if mistakes:
        raise InputError("The comparison has mistakes:\n" + "\n".join(f"  - {line}" for line in mistakes))
    return found


def is_recipe(text: str) -> bool:
    """Whether a person named a recipe or a folder of them, and not a loss.

    A folder that is called as a loss is not meant: with a slash (`./triplet`) it is. A name that ends in .toml is that
    of a file, whatever else it looks like.
    """
    if text.endswith(".toml"):
        return True
    loss = text.split("+")[0]
    if loss in OBJECTIVES or loss in ALIASES:
        return False
    return ("/" in text and not is_code(loss)) or Path(text).is_dir()


def described(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a contestant, and the settings that its description makes."""
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
    return " + ".join(map(short_name, [loss, *extras])), own


def _attempt(values: Mapping[str, Any], mistakes: list[str], trust: Trust) -> Recipe | None:
    """Make a recipe, or note what is wrong with it."""
    try:
        return Recipe.of(values, trust)
    except InputError as error:
        mistakes += str(error).split("\n  - ")[1:] or [str(error)]
        return None


def _differing(recipe: Recipe, common: Recipe) -> list[str]:
    """Return a line on each condition that a loss would change for itself."""
    mine, theirs = flat(recipe.model_dump()), flat(common.model_dump())
    return [
        f"{name} is {mine[name]!r} here and {theirs[name]!r} for the others; all losses are compared under the same "
        "conditions: leave it out, or give it for all"
        for name in mine
        if name not in (*OF_THE_LOSS, *DEMANDS) and mine[name] != theirs[name]
    ]


def needs(recipe: Recipe) -> list[str]:
    """Return in words what a loss brings along: its miner, memory or proxies."""
    words = []
    if recipe.mining is not None:
        words.append(f"miner {recipe.mining}")
    if recipe.memory:
        words.append(f"memory of {recipe.memory} past embeddings")
    if recipe.cover:
        words.append(f"cover of {recipe.cover} items per class")
    if recipe.hierarchy:
        words.append(f"{recipe.hierarchy} groups of classes")
    if recipe.ccp is not None:
        words.append(f"chance-constrained proxies, {recipe.ccp.proxies_per_class} per class")
    elif recipe.traits.usual == "proxies":
        rate = recipe.proxy_multiplier * recipe.training.learning_rate
        words.append(f"proxies, {recipe.proxies_per_class} per class, at a learning rate of {rate:.3g}")
    return words


def demands_after_search(contestant: Contestant, best: Recipe) -> tuple[str, ...]:
    """What a contestant asks for after a search, which may have changed what it brings along and its batches."""
    own = contestant.recipe
    kept = [words for words in contestant.demands if words not in needs(own)]
    if best.batch != own.batch:
        kept = [words for words in kept if not words.startswith(BATCHES)]
        shape = f"{best.classes_per_batch} classes x {best.samples_per_class}"
        kept.append(f"{BATCHES} {shape}, which the search found better than {own.batch.replace('x', ' x ')}")
    return (*needs(best), *kept)


def _demands(recipe: Recipe, common: Recipe) -> list[str]:
    mine, theirs = flat(recipe.model_dump()), flat(common.model_dump())
    return needs(recipe) + [
        f"{name} {mine[name]} instead of {theirs[name]}" for name in DEMANDS if mine[name] != theirs[name]
    ]
