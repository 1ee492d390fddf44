"""Options of the verbs: their help panels, their metavars, and the options that several verbs share.

The options of a single verb are defined in its own file.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from vicinal._util.code import Trust
from vicinal.cli.output import quietly
from vicinal.errors import InputError

if TYPE_CHECKING:
    from vicinal.runs.draft import Budget

__all__ = [
    "AllowCode",
    "AsJson",
    "Backbone",
    "BudgetText",
    "Ccp",
    "Data",
    "Dim",
    "Fold",
    "Freeze",
    "LearningRate",
    "Loss",
    "Mining",
    "Options",
    "Progress",
    "Protocol",
    "Quiet",
    "Recipes",
    "SkipBad",
    "Steps",
    "Validation",
    "VerbCommand",
    "Weights",
    "asked_budget",
    "given",
    "in_panels",
    "loss_settings",
    "parse_pairs",
    "typed_settings",
    "ways_and_shots",
    "whole_numbers",
    "words",
]


# Help panel of each option, the same in all verbs.
PANELS = {
    "Method": (
        "loss",
        "losses",
        "mining",
        "ccp",
        "with_ccp",
        "recipe",
        "option",
        "same_batches",
        "learning_rate",
        "space",
        "fix",
        "geometry",
    ),
    "Network": ("backbone", "backbones", "weights", "freeze", "dim", "dims", "model"),
    "Data": (
        *("protocol", "validation", "fold", "folds", "skip_bad", "root", "any_count", "check", "labels", "gallery"),
        *("gallery_labels", "select_on_test", "domain", "items", "data"),
    ),
    "Neighbours": (
        *("distance", "k", "where", "whiten", "augment", "plain", "expand", "rerank"),
        *("neighbours", "least", "threshold"),
    ),
    "Scores": ("score", "scores", "confidence", "level", "sizes", "identify", "few_shot"),
    "Effort": ("budget", "steps", "seeds", "seed", "rates", "tune", "trials", "sampler", "prune", "draws", "triples"),
    "Results": (
        *("out", "as_json", "json", "plot", "preview", "sheet", "shown", "names", "report", "models", "tensorboard"),
        *("storage", "chapters", "theme"),
    ),
    "Running": (
        *("jobs", "ray", "workers", "batch_size", "engine", "precision", "resume", "retry_failed", "progress"),
        *("quiet", "allow_code"),
    ),
}
PANEL_OF = {option: panel for panel, options in PANELS.items() for option in options}
# Metavars of text options; typer names the other types itself.
METAVARS = {
    "loss": "LOSS",
    "losses": "LOSS,LOSS,...",
    "mining": "MINER",
    "recipe": "RECIPE",
    "option": "NAME=VALUE",
    "backbone": "NETWORK",
    "backbones": "NETWORK,...",
    "weights": "WEIGHTS",
    "dims": "NUMBER,...",
    "budget": "STEPS|IMAGES|TIME",
    "protocol": "PROTOCOL",
    "sampler": "SAMPLER",
    "score": "SCORE",
    "storage": "FILE|ADDRESS",
    "space": "SPACE",
    "fix": "SETTING",
    "ray": "ADDRESS",
    "domain": "DOMAIN",
    "data": "DATA",
    "ccp": "code|paper",
    "geometry": "GEOMETRY",
    "dataset": "DATASET",
    "method": "METHOD",
    "chapters": "CHAPTER,...",
    "scores": "SCORE,...",
    "few_shot": "WAYSxSHOTS,...",
    "allow_code": "MODULE",
}
# Options of many verbs. `--quiet` and `--allow-code` are handled by `VerbCommand`; `allow_code` also holds the code
# that the user named elsewhere in the command.
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Results only: no progress, no notes.")]
AllowCode = Annotated[
    list[str] | None,
    typer.Option(help="Let a recipe or a model's folder run code of this module or file; what you type yourself may."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Progress = Annotated[bool, typer.Option(help="Show progress.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")]


class VerbCommand(TyperCommand):
    """A verb: shows its options in panels, trusts code that the user named, and implements `--quiet`."""

    context_class = typer.Context  # type of the context that verbs receive

    def get_params(self, ctx: Any) -> Any:
        """Return arguments and options, including `--help`, with the panels and metavars of this file."""
        return in_panels(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        if "allow_code" in ctx.params:
            ctx.params["allow_code"] = list(typed_code(ctx.params).sources)
        quiet = ctx.params.get("quiet", False)
        if quiet and "progress" in ctx.params:
            ctx.params["progress"] = False
        with warnings.catch_warnings(), quietly(quiet):
            if quiet:
                warnings.simplefilter("ignore")
            return super().invoke(ctx)


def typed_code(parameters: Mapping[str, Any]) -> Trust:
    """Return the code that the user named, by `--allow-code` or anywhere else in the command.

    Only this function turns command-line arguments into trust; a verb receives it as `allow_code`.

    Args:
        parameters: Command-line values by the name of the verb's parameter.
    """
    typed = [
        text
        for name, value in parameters.items()
        for text in (value if isinstance(value, list) else [value])
        if isinstance(text, str) and name != "allow_code"
    ]
    words = [word for text in typed for word in re.split("[,=]", text)]  # "a,b" and "name=value" hold two words each
    return Trust.of(parameters.get("allow_code") or []) | Trust.typed(words)


def in_panels(parameters: Iterable[Any]) -> list[Any]:
    """Set the panel and the metavar of each parameter, the same in all verbs; a flag has no metavar."""
    shown = list(parameters)
    for parameter in shown:
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper().replace("_", "-")
            continue
        parameter.rich_help_panel = parameter.rich_help_panel or PANEL_OF.get(parameter.name)
        if parameter.is_flag:
            parameter.metavar = ""
        elif parameter.metavar is None:
            parameter.metavar = METAVARS.get(parameter.name)
    return shown


# Options that `train`, `tune` and `compare` share: most set the recipe setting of the same name.

Data = Annotated[
    str | None,
    typer.Argument(
        help="A dataset's name (glyphs, digits), a folder, a table or an .npz file; not needed where the recipe names "
        "it."
    ),
]
Recipes = Annotated[
    list[str] | None,
    typer.Option(help="A recipe's name or TOML file; several are laid over each other, and flags over them."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", help="Any other setting of a recipe, or option of the loss: name=value."),
]
Loss = Annotated[str | None, typer.Option(help="See `vicinal losses`; with a miner: triplet+semi_hard.")]
Mining = Annotated[str | None, typer.Option(help="A miner, such as valid_triplets.")]
Ccp = Annotated[
    str | None, typer.Option(help="Chance-constrained proxies: as their authors' 'code' or 'paper' has them.")
]
LearningRate = Annotated[float | None, typer.Option(help="Learning rate of the backbone; a search starts from it.")]
Backbone = Annotated[str | None, typer.Option(help="convnet, resnet50, mobilenet_v2, linear, ...")]
Weights = Annotated[str | None, typer.Option(help="'imagenet', or a file or address of weights.")]
Dim = Annotated[int | None, typer.Option(help="Length of the embeddings.")]
Freeze = Annotated[bool, typer.Option("--freeze", help="Compute features once and train only the head.")]
BudgetText = Annotated[
    str | None,
    typer.Option(
        help="Training of each run: 500 (steps), 64000images, 64kimages, 90s, 5m or 1h; by default by data size."
    ),
]
Steps = Annotated[int | None, typer.Option(help="The same as a number of steps alone.")]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="How classes are divided: default, fixed-validation (by default), k-fold, reality-check or query-gallery."
    ),
]
Fold = Annotated[int | None, typer.Option(help="Which fold validates, for k-fold and reality-check.")]
Validation = Annotated[
    float | None, typer.Option(help="Share of the training classes that validate, where the protocol draws them.")
]

# Options of these verbs that are recipe settings of the same name.
SETTINGS = (
    *("data", "protocol", "fold", "folds", "validation", "select_on_test", "skip_bad"),
    *("ccp", "backbone", "weights", "dim", "freeze", "steps", "learning_rate", "seed", "score"),
)


def typed_settings(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recipe settings from the command line: from their flags, overridden by `--option`.

    Args:
        parameters: Parameters of a verb, as in `typer.Context.params`.

    Example:
        >>> typed_settings({"loss": "triplet+semi_hard", "dim": 8, "steps": None, "option": ["steps=5"], "out": "x"})
        {'mining': 'semi_hard', 'loss': 'triplet', 'dim': 8, 'steps': 5}
    """
    flags = loss_settings(parameters.get("loss"), parameters.get("mining"))
    return given(flags | {name: parameters.get(name) for name in SETTINGS}, parameters.get("option"))


# Parsing of flag values.


def parse_pairs(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """Parse name=value pairs; values are parsed as JSON if possible, otherwise they are strings.

    Example:
        >>> parse_pairs(["margin=0.1", "which=hard"], "--option")
        {'margin': 0.1, 'which': 'hard'}
    """
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{flag} must be name=value, such as margin=0.2; got {text!r}.")
        try:
            pairs[name] = json.loads(value)
        except (ValueError, RecursionError):
            pairs[name] = value
    return pairs


def given(flags: Mapping[str, Any], options: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the settings of the flags that were given, overridden by those of `--option name=value`.

    Example:
        >>> given({"dim": 8, "loss": None, "freeze": False}, ["steps=5"])
        {'dim': 8, 'steps': 5}
    """
    named = {name: value for name, value in flags.items() if value is not None and value is not False}
    return named | parse_pairs(options or [], "--option")


def loss_settings(loss: str | None, mining: str | None) -> dict[str, Any]:
    """Return the settings of `--loss` and `--mining`; a loss may include its miner, as in tables and `--losses`.

    Example:
        >>> loss_settings("triplet + semi_hard", None)
        {'mining': 'semi_hard', 'loss': 'triplet'}
    """
    if loss is None or "+" not in loss:
        return {"loss": loss, "mining": mining}
    from vicinal.comparing.contestants import described

    own = described(loss.replace(" ", ""))[1]
    if mining is not None and "mining" in own:
        raise InputError(f"--loss {loss} names a miner, and so does --mining {mining}: give one of them.")
    return {"mining": mining, **own}


def asked_budget(text: str | None, changes: Mapping[str, Any]) -> Budget:
    """Return the budget of `--budget`; raise an error if other flags contradict it.

    Args:
        text: Value of the flag; None if it was not given.
        changes: Recipe settings of the other flags.
    """
    from vicinal.runs.draft import Budget, read_budget
    from vicinal.runs.recipe import flat

    if text is None:
        return Budget()
    if {"steps", "seconds"} & flat(changes).keys():
        raise InputError("--budget and --steps say the same, and so do steps and seconds after -o: give one of them.")
    return read_budget(text)


def words(text: str) -> list[str]:
    """Parse a comma-separated list.

    Example:
        >>> words("triplet, circle,")
        ['triplet', 'circle']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def whole_numbers(text: str, flag: str) -> list[int]:
    """Parse comma-separated integers.

    Example:
        >>> whole_numbers("64,128", "--dims")
        [64, 128]
    """
    try:
        return [int(word) for word in words(text)]
    except ValueError:
        raise InputError(f"{flag} must be whole numbers separated by commas, such as 64,128; got {text!r}.") from None


def ways_and_shots(text: str, flag: str) -> list[tuple[int, int]]:
    """Parse comma-separated pairs of numbers with an x in between.

    Example:
        >>> ways_and_shots("5x1,20x5", "--few-shot")
        [(5, 1), (20, 5)]
    """
    pairs = [word.lower().split("x") for word in words(text)]
    if not all(len(pair) == 2 and all(number.isdecimal() for number in pair) for pair in pairs):
        raise InputError(f"{flag} must be ways x shots, such as 5x1 or 5x1,5x5; got {text!r}.")
    return [(int(ways), int(shots)) for ways, shots in pairs]
