"""Options of the verbs: their sections of `--help`, their placeholders, and the options that several verbs share.

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
    "given",
    "loss_settings",
    "parse_pairs",
    "requested_budget",
    "typed_settings",
    "ways_and_shots",
    "whole_numbers",
    "words",
    "write_help",
]


NAME_WIDTH, SHORT_HELP = 24, 66  # most letters of an option's name in its column, and of a verb's description
# Rare options, which `--help` lists in a section of their own; the same in all verbs.
ADVANCED = {
    *("allow_code", "any_count", "augment", "batch_size", "ccp", "chapters", "confidence", "draws", "engine"),
    *("expand", "fix", "fold", "folds", "full_ranking", "geometry", "keep_map", "max_concurrent", "max_k"),
    *("max_reranked", "max_upload", "middle", "mining", "models", "name", "precision"),
    *("private", "progress", "protocol", "prune", "rate", "rates", "ray", "report", "rerank", "retry_failed", "root"),
    *("same_batches", "sampler", "scores", "seed", "select_on_test", "skip_bad", "space", "storage"),
    *("store", "tensorboard", "theme", "timeout", "triples", "validation", "whiten", "with_ccp", "workers"),
    *("install_completion", "show_completion"),
}
# Placeholder of each option's value in `--help`.
METAVARS = {
    name: metavar
    for metavar, names in {
        "N": (
            *("seeds", "steps", "fold", "folds", "dim", "trials", "rates", "tune", "jobs", "workers", "batch_size"),
            *("seed", "draws", "augment", "expand", "k", "neighbours", "shown", "triples", "items"),
            *("port", "max_k", "max_reranked", "max_concurrent", "max_upload"),
        ),
        "X": (
            *("learning_rate", "validation", "confidence", "threshold", "least", "level", "rate", "timeout"),
            *("false_matches",),
        ),
        "N,...": ("dims",),
        "FILE": (
            "plot",
            "preview",
            "sheet",
            "names",
            "labels",
            "gallery",
            "gallery_labels",
            "sizes",
            "middle",
            "whiten",
        ),
        "FOLDER": ("root", "model"),
        "PATH": ("out",),
        "LOSS": ("loss",),
        "LOSS,...": ("losses",),
        "MINER": ("mining",),
        "RECIPE": ("recipe",),
        "NAME=VALUE": ("option",),
        "NETWORK": ("backbone",),
        "NETWORK,...": ("backbones",),
        "WEIGHTS": ("weights",),
        "BUDGET": ("budget",),
        "PROTOCOL": ("protocol",),
        "SAMPLER": ("sampler",),
        "SCORE": ("score",),
        "SCORE,...": ("scores",),
        "URL": ("storage", "store"),
        "SPACE": ("space",),
        "SETTING": ("fix",),
        "ADDRESS": ("ray", "host"),
        "DOMAIN": ("domain",),
        "DATA": ("data",),
        "GEOMETRY": ("geometry",),
        "DATASET": ("dataset",),
        "METHOD": ("method",),
        "CHAPTER,...": ("chapters",),
        "WAYSxSHOTS,...": ("few_shot",),
        "MODULE": ("allow_code",),
        "FILTER": ("where",),
        "code|paper": ("ccp",),
        "cosine|euclidean": ("distance",),
        "light|dark": ("theme",),
        "decode|header": ("check",),
        "float32|bfloat16": ("precision",),
        "float32|int8|bits": ("numbers",),
        "experiments|methods": ("drop",),
        "ENGINE": ("engine",),
    }.items()
    for name in names
}
# Options of many verbs. `--quiet` and `--allow-code` are handled by `VerbCommand`; `allow_code` also holds the code
# that the user named elsewhere in the command.
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results only.")]
AllowCode = Annotated[
    list[str] | None,
    typer.Option(help="Allow recipes and models to run code of this module."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Progress = Annotated[bool, typer.Option(help="Hide progress.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip images that cannot be read.")]


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the help of a verb or of a group of verbs: plain sections, rare options last.

    Args:
        command: Verb, or group of verbs.
        ctx: Context of the call.
        formatter: Formatter to write to.
    """
    command.format_usage(ctx, formatter)
    command.format_help_text(ctx, formatter)
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    advanced: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        if parameter.param_type_name == "argument":
            sections["Arguments"].append((_argument_name(parameter), parameter.help or ""))
        elif not parameter.hidden:
            rows = advanced if parameter.name in ADVANCED else sections["Options"]
            rows.append((_option_name(parameter), _option_help(parameter)))
    for name, verb in getattr(command, "commands", {}).items():
        title = verb.rich_help_panel or "Commands"
        sections.setdefault(title, []).append((name, verb.get_short_help_str(limit=SHORT_HELP)))
    for title, rows in {**sections, "Advanced": advanced}.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows, col_max=NAME_WIDTH)
    command.format_epilog(ctx, formatter)


def _argument_name(parameter: Any) -> str:
    return f"{parameter.metavar}..." if parameter.nargs != 1 else str(parameter.metavar)


def _option_name(parameter: Any) -> str:
    """Return the flags of an option and its placeholder; of `--x/--no-x`, the flag that changes the default."""
    short = [flag for flag in parameter.opts if not flag.startswith("--")]
    flags = [*short, next(flag for flag in parameter.opts if flag.startswith("--"))]
    if parameter.is_flag:
        return ", ".join(parameter.secondary_opts if parameter.default else flags)
    return f"{', '.join(flags)} {parameter.metavar or METAVARS[parameter.name]}"


def _option_help(parameter: Any) -> str:
    """Return the description of an option with its default, if it has one that is worth showing."""
    default = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    shown = parameter.show_default and not parameter.is_flag and default not in (None, "", (), [])
    return f"{parameter.help or ''}{f' [default: {default}]' if shown else ''}{' [required]' * parameter.required}"


class VerbCommand(TyperCommand):
    """A verb: sorts its options into sections, trusts code that the user named, and implements `--quiet`."""

    context_class = typer.Context  # type of the context that verbs receive

    def get_params(self, ctx: Any) -> Any:
        """Return arguments and options; errors name an argument as the help does."""
        parameters = super().get_params(ctx)
        for each in parameters:
            if each.param_type_name == "argument" and each.metavar is None:
                each.metavar = each.name.upper().replace("_", "-")
        return parameters

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the name of the verb; brackets mark optional arguments."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        names = [(_argument_name(each), each.required) for each in arguments]
        return ["[OPTIONS]", *(name if required else f"[{name}]" for name, required in names)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text."""
        write_help(self, ctx, formatter)

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


# Options that `train`, `tune` and `compare` share: most set the recipe setting of the same name.

Data = Annotated[
    str | None,
    typer.Argument(
        help="Folder with one subfolder per class, table, .npz file, or dataset name (such as digits). Optional if "
        "the recipe names it."
    ),
]
Recipes = Annotated[
    list[str] | None,
    typer.Option(help="Recipe, by name or TOML file; may be repeated, later ones override."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("-o", "--option", help="Any other setting of the recipe or the loss."),
]
Loss = Annotated[str | None, typer.Option(help="Loss, such as proxy_anchor or triplet+semi_hard.")]
Mining = Annotated[str | None, typer.Option(help="Miner, such as semi_hard.")]
Ccp = Annotated[str | None, typer.Option(help="Use chance-constrained proxies, as in the authors' code or paper.")]
LearningRate = Annotated[float | None, typer.Option(help="Learning rate of the backbone.")]
Backbone = Annotated[str | None, typer.Option(help="Network, such as resnet50 or convnet.")]
Weights = Annotated[str | None, typer.Option(help="Pretrained weights: imagenet, a file or a URL.")]
Dim = Annotated[int | None, typer.Option(help="Embedding dimension.")]
Freeze = Annotated[bool, typer.Option("--freeze", help="Freeze the network; train only a head.")]
BudgetText = Annotated[
    str | None,
    typer.Option(help="Training budget per run: 500 (steps), 64kimages, 90s or 5m.", show_default="by data size"),
]
Steps = Annotated[int | None, typer.Option(help="Training budget per run, in steps.")]
Protocol = Annotated[
    str | None,
    typer.Option(
        help="Split of the classes: default, fixed-validation, cross-validation, k-fold, reality-check or "
        "query-gallery.",
        show_default="fixed-validation",
    ),
]
Fold = Annotated[int | None, typer.Option(help="Validation fold, for k-fold and reality-check.")]
Validation = Annotated[float | None, typer.Option(help="Share of training classes to validate on.")]

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


def networks(text: str) -> list[Any]:
    """Parse comma-separated networks, each with its options in brackets if it has any.

    Example:
        >>> networks("timm[model=vit_small_patch16_224;pretrained=true],resnet50")
        [('timm', {'model': 'vit_small_patch16_224', 'pretrained': True}), 'resnet50']
    """
    parsed: list[Any] = []
    for word in words(re.sub(r"\[[^]]*\]", lambda options: options[0].replace(",", ";"), text)):
        name, bracket, options = word.partition("[")
        parsed.append((name, parse_pairs(options.rstrip("]").split(";"), "--backbones")) if bracket else word)
    return parsed


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
        raise InputError(f"--loss {loss} already names a miner; drop it there, or drop --mining {mining}.")
    return {"mining": mining, **own}


def requested_budget(text: str | None, changes: Mapping[str, Any]) -> Budget:
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
        raise InputError(
            "--budget, --steps, -o steps=... and -o seconds=... set the same limit: give only one of them."
        )
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
        raise InputError(f"{flag} must be integers separated by commas, such as 64,128; got {text!r}.") from None


def ways_and_shots(text: str, flag: str) -> list[tuple[int, int]]:
    """Parse comma-separated pairs of numbers with an x in between.

    Example:
        >>> ways_and_shots("5x1,20x5", "--few-shot")
        [(5, 1), (20, 5)]
    """
    pairs = [word.lower().split("x") for word in words(text)]
    if not all(len(pair) == 2 and all(number.isdecimal() for number in pair) for pair in pairs):
        raise InputError(f"{flag} must be WAYSxSHOTS, such as 5x1 or 5x1,5x5; got {text!r}.")
    return [(int(ways), int(shots)) for ways, shots in pairs]
