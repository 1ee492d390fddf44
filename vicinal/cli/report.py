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
        typer.Argument(help="Folders that `vicinal compare` wrote; several machines' parts of one are put together."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where the page goes, by default report.html in the first folder.")
    ] = None,
    losses: Annotated[
        str, typer.Option(help="Losses to report, by the names of the leaderboard, separated by commas; default: all.")
    ] = "",
    chapters: Annotated[
        str, typer.Option(help="Chapters of your own at the end, separated by commas: my_module:my_chapter.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print where they are as JSON, for scripts.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Write a self-contained page about comparisons, and its twin in Markdown beside it."""
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
    Console().print(f"Written to {page} and {page.with_suffix('.md')}", highlight=False, soft_wrap=True)
