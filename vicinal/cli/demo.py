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
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Training steps per run.")] = 300,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
) -> None:
    """Compare five losses on synthetic characters; takes a few minutes.

    Test characters are from alphabets not seen in training. Run it again to resume.
    """
    from rich.console import Console

    from vicinal._util.text import counted
    from vicinal.cli.output import print_json
    from vicinal.comparing import compare
    from vicinal.report import write_report

    console = Console(stderr=as_json)  # standard output is reserved for the JSON
    effort = f"{len(LOSSES)} losses with {counted(seeds, 'seed')} and {counted(steps, 'step')}"
    console.print(f"Training {effort} each. This takes a few minutes on two cores.", highlight=False)
    board = compare("glyphs", list(LOSSES), recipe="glyphs", seeds=seeds, steps=steps, out=out, progress=progress)
    if as_json:
        print_json(board.to_dict())
    else:
        board.print(console)
    page = write_report(board, out / "report.html", progress=progress)
    console.print(f"Report: {page} (open it in a browser)", highlight=False, soft_wrap=True)
    console.print("Next, your own images, one subfolder per class: vicinal data photos/", highlight=False)
