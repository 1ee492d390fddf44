"""`vicinal demo`: a complete comparison on a dataset that comes with vicinal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.options import AsJson, Progress, Quiet

__all__ = ["demo"]

LOSSES = ("contrastive", "triplet+semi_hard", "multi_similarity+valid_triplets", "proxy_anchor", "n_pair")


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the comparison.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How often all of it is repeated.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps of each run.")] = 300,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
) -> None:
    """Compare five losses on drawn characters of alphabets that none of them has seen, in a few minutes.

    Stop it at any moment and start it again: it goes on where it was.
    """
    from rich.console import Console

    from vicinal._util.text import counted
    from vicinal.cli.output import print_json
    from vicinal.comparing import compare
    from vicinal.report import write_report

    console = Console(stderr=as_json)  # standard output is reserved for the JSON
    effort = f"{len(LOSSES)} losses, {counted(seeds, 'seed')}, {counted(steps, 'step')}"
    console.print(f"{effort}: a few minutes on two cores.", highlight=False)
    board = compare("glyphs", list(LOSSES), recipe="glyphs", seeds=seeds, steps=steps, out=out, progress=progress)
    if as_json:
        print_json(board.to_dict())
    else:
        board.print(console)
    page = write_report(board, out / "report.html", progress=progress)
    console.print(f"The report is {page}: open it in a browser.", highlight=False, soft_wrap=True)
    console.print("Now your own photographs, one sub-folder per class: vicinal data photos/", highlight=False)
