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
from vicinal.cli.options import VerbCommand, write_help
from vicinal.errors import Interrupted, VicinalError

__all__ = ["VERBS", "app", "command_of", "main"]

INTERRUPTED, UNFORESEEN = 130, 70  # exit codes of shells for Ctrl-C, and of sysexits.h for a software error
START, COMPARE, INSIDE, WORK = "Start here", "Compare", "Inspect", "Use"


class Verb(NamedTuple):
    """A verb: the panel it is shown in, its description, and an example."""

    panel: str
    help: str
    example: str = ""


# Each verb is a function of that name (with _ for -), or a Typer app, in the module of that name in `vicinal.cli`.
VERBS = {
    "demo": Verb(START, "Compare five losses on synthetic characters, in a few minutes.", "vicinal demo"),
    "data": Verb(START, "Check a dataset: content, problems, split.", "vicinal data photos/ --preview sheet.png"),
    "losses": Verb(START, "List all losses with their requirements and papers.", "vicinal losses proxy_anchor"),
    "recipes": Verb(START, "List the built-in recipes.", "vicinal recipes thesis"),
    "train": Verb(
        START,
        "Train an embedder and score it on unseen classes.",
        "vicinal train photos/ --loss proxy_anchor --out runs/first",
    ),
    "compare": Verb(
        COMPARE,
        "Train several losses under equal conditions; find the best.",
        "vicinal compare photos/ --out runs/which",
    ),
    "report": Verb(COMPARE, "Write an HTML report on comparisons.", "vicinal report runs/which"),
    "tune": Verb(
        COMPARE,
        "Search for the best settings of a loss.",
        "vicinal tune photos/ --loss proxy_anchor --trials 30 --out tuned.toml",
    ),
    "tournament": Verb(
        COMPARE,
        "Rank methods over several experiments.",
        "vicinal tournament runs/which --plot ranks.png",
    ),
    "evaluate": Verb(INSIDE, "Score embeddings, or a model on a dataset.", "vicinal evaluate runs/first photos/"),
    "weights": Verb(
        INSIDE,
        "Plot the pair weights of a loss.",
        "vicinal weights triplet multi_similarity --out weights.png",
    ),
    "audit": Verb(
        INSIDE,
        "Test whether a loss is a metric.",
        "vicinal audit metric_cross_entropy -o p=0.9",
    ),
    "audit-claims": Verb(
        INSIDE,
        "Find unfair comparisons in papers.",
        "vicinal audit-claims --published --dataset cub --method margin",
    ),
    "duplicates": Verb(
        INSIDE,
        "Find duplicates and leaks between train and test.",
        "vicinal duplicates photos/ --model runs/first --sheet duplicates.png",
    ),
    "mislabelled": Verb(
        INSIDE,
        "List items whose label is probably wrong.",
        "vicinal mislabelled photos.index --sheet suspects.png --out suspects.csv",
    ),
    "outliers": Verb(
        INSIDE,
        "List items that are far from all others.",
        "vicinal outliers photos.index --sheet outliers.png",
    ),
    "clusters": Verb(
        INSIDE,
        "Propose clusters of unlabelled items.",
        "vicinal clusters unsorted/ --model runs/first --names names.csv --sheet clusters.png",
    ),
    "shorten": Verb(
        WORK,
        "Make a model with smaller embeddings.",
        "vicinal shorten runs/first --dim 64 --numbers int8 --out short",
    ),
    "calibrate": Verb(
        WORK,
        "Set a same/different threshold with a known false-match rate.",
        "vicinal calibrate runs/first/model photos/",
    ),
    "index": Verb(
        WORK,
        "Build, update and maintain a search index.",
        "vicinal index runs/comparison/best photos/ --out photos.index",
    ),
    "classify": Verb(
        WORK,
        "Label images by their nearest item in an index.",
        "vicinal classify photos.index unknown/ --out names.csv",
    ),
    "search": Verb(
        WORK,
        "Find the nearest items in an index.",
        "vicinal search photos.index unknown.jpg --k 10",
    ),
    "serve": Verb(
        WORK,
        "Serve an index in the browser and over HTTP.",
        "vicinal serve photos.index",
    ),
    "embed": Verb(
        WORK,
        "Write embeddings to an .npz file.",
        "vicinal embed runs/first photos/ --out embeddings.npz",
    ),
}


class Verbs(TyperGroup):
    """Lists all verbs from the table, and imports only the one that is called: most need torch, a slow import."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, verb in VERBS.items():
            self.commands[name] = TyperCommand(name, help=verb.help, rich_help_panel=verb.panel)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of verbs."""
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the list of verbs if there are no arguments."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit(2)
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

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


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"vicinal {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _verbs(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
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
    message = f"{type(error).__name__}: {reason or 'no message'}. This is a bug in vicinal"
    if isinstance(error, MemoryError):
        message = "Out of memory. If you did not expect this, it may be a bug in vicinal"
    try:
        number, path = tempfile.mkstemp(prefix="vicinal-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(masked(shlex.join(["vicinal", *sys.argv[1:]])) + "\n\n")
            file.write(masked("".join(traceback.format_exception(error))))
    except OSError:  # the failure may be a full disk
        return f"{message}; please report it."
    return f"{message}; please report it and attach {path}."
