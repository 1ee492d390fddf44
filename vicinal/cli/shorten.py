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
    model: Annotated[Path, typer.Argument(help="Folder of a saved embedder, of a run or of a comparison.")],
    out: Annotated[Path, typer.Option(help="The folder of the shortened model.")],
    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Numbers of an embedding that are kept, the first ones.", show_default="all"),
    ] = None,
    numbers: Annotated[
        Literal["float32", "int8", "bits"], typer.Option(help="What each number is kept in: 4 bytes, 1 byte or a bit.")
    ] = "float32",
    middle: Annotated[
        Path | None,
        typer.Option(
            help="For bits: embeddings by this model, in a file, whose medians the bits are about.",
            show_default="bits are signs",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON, for scripts.")] = False,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Make a model whose embeddings take fewer bytes: a point of the curve of score against bytes per item.

    vicinal evaluate --sizes draws the curve. The shortened model is a model as any other: score it, calibrate it,
    embed with it, index with it.
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
            raise InputError(f"{middle} has the embeddings of another model than {model}; embed with this one.")
        rows = file.vectors
    short = whole.shortened(dim, numbers, middle=rows)
    short.save(out)
    kind, entries = row_shape(short.numbers, short.dim)
    size, before = kind.itemsize * entries, 4 * whole.dim
    if as_json:
        print_json({"model": str(out), "dim": short.dim, "numbers": short.numbers, "bytes": size, "before": before})
        return
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    console.print(f"{out}: {short.dim} numbers in {short.numbers}, {size:,} bytes an embedding ({before:,} before)")
    if whole.calibration is not None:
        console.print(f"its threshold is that of other similarities, and is left out: vicinal calibrate {out} DATA")
