"""`vicinal recipes`: list the recipes that come with vicinal, with their data, protocol and cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from vicinal._util.reading import read_text
from vicinal.cli.options import AsJson, Quiet
from vicinal.recipes import RecipeSummary, describe_recipe, expand, find_recipe, losses_beside, recipe_names

__all__ = ["recipes"]


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="Recipe to print, or group to list (such as thesis or ccp/losses)."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """List the built-in recipes with their data, protocol, network and cost, or print one."""
    chosen = recipe_names() if name is None else expand(name)
    summaries = [describe_recipe(each) for each in chosen]
    if as_json:
        listed = [asdict(summary) for summary in summaries]
        typer.echo(json.dumps(listed[0] if chosen == [name] else listed, indent=2))
    elif name is not None and chosen == [name]:
        typer.echo(read_text(find_recipe(name)), nl=False)
    else:
        whole = [summary for summary in summaries if summary.data is not None]
        _print(sorted(whole, key=_study), Console())
        _print_losses([summary for summary in summaries if summary.data is None], Console())


def _print(conditions: list[RecipeSummary], console: Console) -> None:
    """Print conditions by study, with the losses that can be combined with them."""
    for _, group in groupby(conditions, key=_study):
        members = list(group)
        table = Table(box=box.SIMPLE_HEAD)
        for column in ("recipe", "data, protocol", "network", "images seen"):
            table.add_column(column, justify="right" if column == "images seen" else "left", overflow="fold")
        for summary in members:
            chosen = ", best on test" if summary.select_on_test else ""
            frozen = "frozen, " if summary.freeze else ""
            most = "at most" if summary.stops_early else ""
            table.add_row(
                f"{escape(summary.name)}\n[dim]{escape(summary.about)}[/]",
                f"{escape(summary.data or '')}\n[dim]{summary.protocol}{chosen}[/]",
                f"{summary.backbone}\n[dim]{frozen}{summary.dim or 'all'} dimensions[/]",
                f"{summary.images_seen:,}\n[dim]{most}[/]" if summary.images_seen else "",
            )
        console.print(table)
        losses = losses_beside(members[0].name)
        if losses:
            folder = losses[0].rpartition("/")[0]
            short = ", ".join(loss.rpartition("/")[2].removesuffix(".toml") for loss in losses)
            console.print(Padding(f"losses to combine it with, in {escape(folder)}: {escape(short)}", (0, 2)))
    if conditions:
        console.print(
            "\nImages seen: steps x batch size of one run. Protocols with folds train one run per fold.",
            highlight=False,
        )


def _print_losses(losses: list[RecipeSummary], console: Console) -> None:
    """Print losses that were requested by their folder; the full list shows them with their study."""
    if len(set(map(_study, losses))) != 1:
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("recipe", "loss", "about"):
        table.add_column(column, no_wrap=column == "recipe")
    for loss in losses:
        table.add_row(escape(loss.name), loss.loss, escape(loss.about))
    console.print(table)


def _study(summary: RecipeSummary) -> str:
    """Return the folder of a recipe; recipes without a folder sort first."""
    return summary.name.rpartition("/")[0]
