"""`vicinal losses`: list all losses, or show the data sheet of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vicinal._util.code import Trust
from vicinal.cli.options import AllowCode, AsJson, Quiet
from vicinal.cli.output import print_json

__all__ = ["losses"]


def losses(
    name: Annotated[str | None, typer.Argument(help="Loss to describe in detail.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """List all losses with their requirements and papers, or describe one in detail."""
    from vicinal.comparing.plan import PANEL
    from vicinal.objectives import ALIASES, OBJECTIVES, find_objective

    trust = Trust.of(allow_code or ())

    console = Console()
    if name is not None:
        function = find_objective(name, trust)
        if as_json:
            print_json(_row(function.__name__, function) | {"data sheet": inspect.getdoc(function)})
            return
        console.print(f"{function.__name__}\n\n{function.__doc__}", markup=False, highlight=False)
        return
    why = {member.loss.partition("+")[0]: f"as {member.loss}: {member.literature}" for member in PANEL}
    rows = [_row(loss, OBJECTIVES[loss]) | {"try first": why.get(loss)} for loss in sorted(OBJECTIVES)]
    if as_json:
        print_json(rows)
        return
    table = Table(box=box.SIMPLE_HEAD, caption="vicinal losses NAME shows its formula, weights, options and reference")
    for column in ("loss", "geometry, references", "needs, paper"):
        table.add_column(column, no_wrap=column == "loss")
    for row in rows:
        rest = [name for name in row["references"] if name != row["usual"]]
        others = "or any" if len(rest) > 1 else "".join(f"or {name}" for name in rest)
        where = f"{row['geometry']}\n[dim]{row['usual']} {others}[/]"
        table.add_row(row["loss"], where, f"{escape(row['needs'])}\n[dim]{escape(row['paper'])}[/]")
    console.print(table)
    console.print("Try these first; `vicinal compare DATA` compares them:", highlight=False)
    for member in PANEL:
        console.print(f"  [bold]{escape(member.loss)}[/] ({member.kind}): {escape(member.literature)}", highlight=False)
    console.print("Aliases: " + ", ".join(f"{alias} = {loss}" for alias, loss in ALIASES.items()))


def _row(loss: str, function: Callable[..., Any]) -> dict[str, Any]:
    from vicinal.objectives import options_of, traits_or_default

    traits = traits_or_default(function)
    return {
        "loss": loss,
        "geometry": traits.geometry,
        "references": list(traits.references),
        "usual": traits.usual,
        "needs": _section(function, "Needs"),
        "options": options_of(function),
        "paper": traits.paper,
    }


def _section(function: Callable[..., Any], name: str) -> str:
    """Return the first sentence of a section of a docstring."""
    lines = (inspect.getdoc(function) or "").split(f"{name}:\n", 1)[-1].split("\n\n", 1)[0].split("\n")
    return " ".join(line.strip() for line in lines).split("; ")[0].split(". ")[0].rstrip(".")
