"""`vicinal VERB ...`: the table of verbs; the module of a verb is imported when it is called."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import traceback
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from vicinal import __version__
from vicinal._util.reading import printable
from vicinal._util.secrets import masked
from vicinal._util.warnings import warn_plainly
from vicinal.cli.options import VerbCommand, in_panels
from vicinal.errors import Interrupted, VicinalError

__all__ = ["VERBS", "app", "command_of", "main"]

INTERRUPTED, UNFORESEEN = 130, 70  # exit codes of shells for Ctrl-C, and of sysexits.h for a software error
START, COMPARE, INSIDE, WORK = "Start here", "Compare", "Look inside", "Put to work"


class Verb(NamedTuple):
    """A verb: the panel it is shown in, its description, and an example."""

    panel: str
    help: str
    example: str = ""


# Each verb is a function of that name (with _ for -), or a Typer app, in the module of that name in `vicinal.cli`.
VERBS = {
    "demo": Verb(START, "Compare five losses on drawn characters, in a few minutes.", "vicinal demo"),
    "data": Verb(START, "Read data, check it, and say what is in it.", "vicinal data photos/ --preview sheet.png"),
    "losses": Verb(
        START, "List every loss with its geometry, what it needs, and its paper.", "vicinal losses proxy_anchor"
    ),
    "recipes": Verb(
        START, "List the recipes that come with vicinal, with their data, protocol and cost.", "vicinal recipes thesis"
    ),
    "train": Verb(
        START,
        "Train an embedder and score it on the classes it has not seen.",
        "vicinal train photos/ --loss proxy_anchor --out runs/first",
    ),
    "compare": Verb(
        COMPARE,
        "Train losses under equal conditions and say which one wins, with intervals.",
        "vicinal compare photos/ --out runs/which",
    ),
    "report": Verb(COMPARE, "Write a page about comparisons, and its twin in Markdown.", "vicinal report runs/which"),
    "tune": Verb(
        COMPARE,
        "Search for the settings of a loss that score best on validation classes.",
        "vicinal tune photos/ --loss proxy_anchor --trials 30 --out tuned.toml",
    ),
    "tournament": Verb(
        COMPARE,
        "Rank methods over several experiments, and say which differences are real.",
        "vicinal tournament runs/which --plot ranks.png",
    ),
    "evaluate": Verb(
        INSIDE, "Score embeddings, or a model on a dataset, with intervals.", "vicinal evaluate runs/first photos/"
    ),
    "weights": Verb(
        INSIDE,
        "Draw the weight of a pair over its similarity.",
        "vicinal weights triplet multi_similarity --out weights.png",
    ),
    "audit": Verb(
        INSIDE,
        "Say whether a loss is a metric, with the worst triple; for a run also bounds.",
        "vicinal audit metric_cross_entropy -o p=0.9",
    ),
    "audit-claims": Verb(
        INSIDE,
        "Say which comparisons of papers are unfair, and what is left of them.",
        "vicinal audit-claims --published --dataset cub --method margin",
    ),
    "duplicates": Verb(
        INSIDE,
        "Find what is in a collection more than once, leaks between train and test first.",
        "vicinal duplicates photos/ --model runs/first --sheet twice.png",
    ),
    "mislabelled": Verb(
        INSIDE,
        "List the items whose label is probably wrong, with the label proposed and why.",
        "vicinal mislabelled photos.index --sheet doubtful.png --out doubtful.csv",
    ),
    "outliers": Verb(
        INSIDE,
        "List the items that are near nothing.",
        "vicinal outliers photos.index --sheet far.png",
    ),
    "clusters": Verb(
        INSIDE,
        "Propose clusters of unlabelled items, with names to fill in.",
        "vicinal clusters unsorted/ --model runs/first --names names.csv --sheet clusters.png",
    ),
    "shorten": Verb(
        WORK,
        "Make a model whose embeddings take fewer bytes.",
        "vicinal shorten runs/first --dim 64 --numbers int8 --out short",
    ),
    "calibrate": Verb(
        WORK,
        "Choose from which similarity on two items are the same, with a promise about new classes.",
        "vicinal calibrate runs/first/model photos/ --false-matches 0.01",
    ),
    "index": Verb(
        WORK,
        "Put images and their embeddings into a folder that can be searched.",
        "vicinal index runs/comparison/best photos/ --out photos.index",
    ),
    "classify": Verb(
        WORK,
        "Name images by the nearest item of an index, or say that they are none of these.",
        "vicinal classify photos.index unknown/ --out names.csv",
    ),
    "search": Verb(
        WORK,
        "Find the items of an index that are nearest to an image, an item or a vector.",
        "vicinal search photos.index unknown.jpg --k 10",
    ),
    "serve": Verb(
        WORK,
        "Search an index in a browser, and by HTTP.",
        "vicinal serve photos.index",
    ),
    "embed": Verb(
        WORK,
        "Write the embeddings of images or feature vectors to one .npz file.",
        "vicinal embed runs/first photos/ --out embeddings.npz",
    ),
}


class Verbs(TyperGroup):
    """Lists all verbs from the table, and imports only the one that is called: most need torch, a slow import."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, verb in VERBS.items():
            self.commands[name] = TyperCommand(name, help=verb.help, rich_help_panel=verb.panel)

    def get_params(self, ctx: Any) -> Any:
        """Return the options that may precede a verb."""
        return in_panels(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb to run."""
        name, shown, rest = super().resolve_command(ctx, args)
        if name is None or shown is None:
            return name, shown, rest
        return name, command_of(name), rest


def command_of(name: str) -> Any:
    """Return the command of a verb, or the group of its commands."""
    example = VERBS[name].example
    epilog = f"Example: {example}" if example else None
    function = name.replace("-", "_")
    verb = getattr(import_module(f"vicinal.cli.{function}"), function)
    if isinstance(verb, typer.Typer):
        group = typer.main.get_command(verb)
        group.name, group.epilog = name, epilog
        return group
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, cls=VerbCommand, epilog=epilog)(verb)
    return typer.main.get_command(single)


app = typer.Typer(
    name="vicinal",
    cls=Verbs,
    help="Deep metric learning: train, compare, inspect and search embeddings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"vicinal {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _verbs(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Deep metric learning: train, compare, inspect and search embeddings."""


def main() -> None:
    """Run the command line; an error is one message on standard error, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # file names may contain bytes that are not valid text
            stream.reconfigure(errors="backslashreplace")
    warn_plainly()
    try:
        app()
    except (Interrupted, KeyboardInterrupt) as interrupted:
        _say(escape(str(interrupted) or "Stopped."))
        sys.exit(INTERRUPTED)
    except VicinalError as error:
        _say(f"[bold red]error:[/] {escape(masked(printable(error)))}")
        sys.exit(2)
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        _say(f"[bold red]error:[/] {escape(_unforeseen(error))}")
        sys.exit(UNFORESEEN)


def _say(text: str) -> None:
    Console(stderr=True).print(text, highlight=False, soft_wrap=True)


def _unforeseen(error: Exception) -> str:
    """Save the traceback of an unexpected error, and return a one-line message with its path."""
    reason = masked(printable(error)).strip().partition("\n")[0][:300].rstrip(".")
    message = f"{type(error).__name__}: {reason or 'without a reason'}. This is a bug in vicinal"
    if isinstance(error, MemoryError):
        message = "There is not enough memory for this. If that is not to be expected, it is a bug in vicinal"
    try:
        number, path = tempfile.mkstemp(prefix="vicinal-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(masked(shlex.join(["vicinal", *sys.argv[1:]])) + "\n\n")
            file.write(masked("".join(traceback.format_exception(error))))
    except OSError:  # the failure may be a full disk
        return f"{message}; please report it."
    return f"{message}; please report it with the file {path}."
