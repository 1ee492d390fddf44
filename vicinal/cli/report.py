"""`vicinal report`: write a page about comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vicinal.cli.options import AllowCode, Progress, Quiet, words
from vicinal.cli.output import print_json

__all__ = ["report"]


def report(
    folder: Annotated[
        list[Path],
        typer.Argument(
            help="Folders written by `vicinal compare`, also parts of one comparison from several machines."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write.", show_default="report.html in the first folder")
    ] = None,
    losses: Annotated[
        str, typer.Option(help="Losses to include, by their names in the table.", show_default="all")
    ] = "",
    chapters: Annotated[str, typer.Option(help="Custom chapters to append: my_module:my_chapter.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the paths as JSON.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Write a report on comparisons: one self-contained HTML page, and the same as Markdown."""
    from vicinal.report import write_report

    page = write_report(
        folder,
        out,
        losses=words(losses) or None,
        chapters=words(chapters),
        progress=progress,
        allow_code=allow_code or (),
    )
    if as_json:
        print_json({"page": str(page), "markdown": str(page.with_suffix(".md"))})
        return
    Console().print(f"Wrote {page} and {page.with_suffix('.md')}", highlight=False, soft_wrap=True)
