"""One vocabulary for all verbs: panels, what stands for a value, and `--quiet`.

A verb's own file says what its options mean; what is the same everywhere is said here.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from vicinal._util.code import Trust
from vicinal.cli.output import quietly

__all__ = ["InPlainWords", "in_panels", "without_types"]

# The panel that an option is shown in, in every verb that has it.
PANELS = {
    "Method": (
        "loss",
        "losses",
        "mining",
        "ccp",
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
        *("storage", "chapters", "figures", "theme"),
    ),
    "Running": (
        *("jobs", "ray", "workers", "batch_size", "engine", "precision", "resume", "retry_failed", "progress"),
        "quiet",
    ),
}
# What stands for the words that an option takes in the help; the rest are named by their kind.
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
    "k": "NUMBER,...",
    "budget": "STEPS|IMAGES|TIME",
    "protocol": "PROTOCOL",
    "sampler": "SAMPLER",
    "score": "SCORE",
    "storage": "FILE|ADDRESS",
    "space": "SPACE",
    "fix": "SETTING",
    "ray": "ADDRESS",
    "check": "HOW",
    "domain": "DOMAIN",
    "data": "DATA",
    "ccp": "code|paper",
    "geometry": "GEOMETRY",
    "dataset": "DATASET",
    "method": "METHOD",
    "chapters": "CHAPTER,...",
    "scores": "SCORE,...",
    "few_shot": "WAYSxSHOTS,...",
}
KINDS: dict[Any, str] = {Path: "PATH", str: "TEXT", bool: ""}  # a flag has no value
# What may come from somebody else, with the names of code in it.
NAMES_CODE = {"recipe", "model", "index", "what", "folder"}
Verb = Callable[..., None]


def in_panels(verb: Verb) -> Verb:
    """Return a verb whose options are in panels, with readable words for values, and which can be `--quiet`.

    A verb with a parameter `trust` gets what was typed and what `--allow-code` names.
    """
    signature = inspect.signature(verb, eval_str=True)

    @functools.wraps(verb)
    def run(*, quiet: bool, allow_code: list[str] | None = None, **values: Any) -> None:
        if "trust" in signature.parameters:
            values["trust"] = Trust.of(allow_code or []) | Trust.typed(_words_of(values))
        if quiet and "progress" in values:
            values["progress"] = False
        with warnings.catch_warnings(), quietly(quiet):
            if quiet:
                warnings.simplefilter("ignore")
            verb(**values)

    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    shown = [parameter for name, parameter in signature.parameters.items() if name != "trust"]
    parameters = [_shown(parameter, panel_of) for parameter in shown]
    flag = typer.Option("--quiet", "-q", help="Results only: no progress, no notes.", rich_help_panel="Running")
    parameters.append(
        inspect.Parameter(
            "quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, copy.copy(flag)]
        )
    )
    if signature.parameters.keys() & NAMES_CODE:
        flag = typer.Option(
            "--allow-code",
            metavar="MODULE",
            help="Let a recipe or a model's folder run code of this module or file; what you type yourself may.",
            rich_help_panel="Running",
        )
        parameters.append(
            inspect.Parameter(
                "allow_code", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, flag]
            )
        )
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    )
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _words_of(values: Mapping[str, Any]) -> list[str]:
    """Return all that was typed, word by word: "a,b" and "name=value" are two each."""
    typed = [text for value in values.values() for text in (value if isinstance(value, list) else [value])]
    return [word for text in typed if isinstance(text, str) for word in re.split("[,=]", text)]


def _shown(parameter: inspect.Parameter, panel_of: dict[str, str]) -> inspect.Parameter:
    if get_origin(parameter.annotation) is not Annotated:
        return parameter
    kind, info = get_args(parameter.annotation)[:2]
    info = copy.copy(info)
    if not isinstance(info, OptionInfo):
        info.metavar = info.metavar or parameter.name.upper().replace("_", "-")
        return parameter.replace(annotation=Annotated[kind, info])
    info.rich_help_panel = info.rich_help_panel or panel_of.get(parameter.name)
    if info.metavar is None:
        info.metavar = _stands_for(parameter.name, _plain(kind))
    return parameter.replace(annotation=Annotated[kind, info])


def _stands_for(name: str, kind: Any) -> str | None:
    """What stands for the value of an option in the help."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if kind in (int, float):
        return "NUMBER"
    return METAVARS.get(name) or KINDS.get(kind)


def _plain(kind: Any) -> Any:
    """The kind of one value: of `list[str] | None` it is str."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    return get_args(kind)[0] if get_origin(kind) is list else kind


class InPlainWords(TyperCommand):
    """A verb whose help shows no type of Python: a flag has no value, and the name of an argument says what it is."""

    def get_params(self, ctx: Any) -> Any:
        """Return arguments and options, `--help` among them."""
        return without_types(super().get_params(ctx))


def without_types(parameters: Iterable[Any]) -> list[Any]:
    """Take `<bool>` from the flags and `<str>` from the arguments that are shown in a help."""
    shown = list(parameters)
    for parameter in shown:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.param_type_name == "argument":  # typer shows their type beside their metavar
            parameter.display_type_rich = _nothing
    return shown


def _nothing(ctx: Any) -> str:
    return ""
