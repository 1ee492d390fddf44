"""`vicinal VERB ...`: the table of verbs."""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.markup import escape

from vicinal.cli.audit import audit
from vicinal.cli.compare import compare
from vicinal.cli.data import data
from vicinal.cli.embed import embed
from vicinal.cli.evaluate import evaluate
from vicinal.cli.losses import losses
from vicinal.cli.report import report
from vicinal.cli.tournament import tournament
from vicinal.cli.train import train
from vicinal.cli.tune import tune
from vicinal.cli.weights import weights
from vicinal.errors import Interrupted, VicinalError

app = typer.Typer(
    name="vicinal",
    help="Deep metric learning: train, compare, inspect and search embeddings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

for verb in (audit, compare, data, embed, evaluate, losses, report, tournament, train, tune, weights):
    app.command()(verb)


def main() -> None:
    """Run the command line; an expected error is one message on standard error, not a traceback."""
    try:
        app()
    except Interrupted as interrupted:
        Console(stderr=True).print(escape(str(interrupted)), highlight=False, soft_wrap=True)
        sys.exit(130)  # as shells have it for Ctrl-C
    except VicinalError as error:
        console = Console(stderr=True)
        console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
