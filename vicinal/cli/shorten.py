"""`vicinal shorten`: make a model whose embeddings take fewer bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from vicinal.cli.options import AllowCode, Quiet
from vicinal.cli.output import print_json

__all__ = ["shorten"]


def shorten(
    model: Annotated[Path, typer.Argument(help="Folder of a model, run or comparison.")],
    out: Annotated[Path, typer.Option(help="Folder of the new model.")],
    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Keep the first N dimensions.", show_default="all"),
    ] = None,
    numbers: Annotated[
        Literal["float32", "int8", "bits"], typer.Option(help="Storage of each number: 4 bytes, 1 byte or 1 bit.")
    ] = "float32",
    middle: Annotated[
        Path | None,
        typer.Option(
            help="For bits: threshold at the medians of the embeddings in this file.",
            show_default="threshold at 0",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Make a model with smaller embeddings: fewer dimensions, int8 or bits.

    `vicinal evaluate --sizes` shows the scores of each size. Use the new model like any other.
    """
    from vicinal.embedder import Embedder
    from vicinal.errors import InputError
    from vicinal.index.exchange import read_vectors
    from vicinal.neighbours.rounding import row_shape

    whole = Embedder.load(model, allow_code=allow_code or ())
    rows = None
    if middle is not None:
        file = read_vectors(middle)
        if file.embedder and file.embedder != whole.identity():
            raise InputError(f"{middle} holds embeddings of another model, not of {model}; embed with {model} first.")
        rows = file.vectors
    short = whole.shortened(dim, numbers, middle=rows)
    short.save(out)
    kind, entries = row_shape(short.numbers, short.dim)
    size, before = kind.itemsize * entries, 4 * whole.dim
    if as_json:
        print_json({"model": str(out), "dim": short.dim, "numbers": short.numbers, "bytes": size, "before": before})
        return
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    console.print(f"{out}: {short.dim} dimensions in {short.numbers}, {size:,} bytes per embedding ({before:,} before)")
    if whole.calibration is not None:
        console.print(f"The same/different threshold no longer applies. To set one: vicinal calibrate {out} DATA")
