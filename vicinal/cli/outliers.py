"""`vicinal outliers`: list items that are far from all others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vicinal._util.code import Trust
from vicinal._util.text import counted
from vicinal.cli.inputs import DATA_OR_INDEX, MODEL, prepare_outputs, read_collection, write_rows, write_sheet
from vicinal.cli.options import AllowCode, Progress, Quiet, SkipBad

__all__ = ["outliers"]


def outliers(
    what: Annotated[str, DATA_OR_INDEX],
    model: Annotated[Path | None, MODEL] = None,
    least: Annotated[
        float, typer.Option(help="Lowest distance from the class's median, in robust standard deviations.")
    ] = 3.5,
    neighbours: Annotated[
        int | None,
        typer.Option(min=1, help="Measure the distance to the Nth neighbour.", show_default="5"),
    ] = None,
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write all outliers to this .csv file.")] = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Draw outliers with their neighbours to this .png or .jpg file.")
    ] = None,
    shown: Annotated[int, typer.Option(min=1, help="Most outliers to print and draw.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per item.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """List items that are unusually far from their neighbours, the farthest first."""
    from vicinal.collection import find_outliers
    from vicinal.data.sheets import RED

    trust = Trust.of(allow_code or ())

    prepare_outputs(out, sheet)
    collection = read_collection(what, model, skip_bad=skip_bad, progress=progress, trust=trust)
    remote = find_outliers(
        collection.embedded(), collection.labels, k=neighbours, distance=collection.distance, least=least
    )
    for outlier in remote[:shown]:
        name = collection.names[outlier.index]
        if as_json:
            near = [collection.names[index] for index in outlier.nearest]
            typer.echo(json.dumps(outlier.as_dict() | {"item": name, "nearest": near}))
        else:
            label = "" if outlier.label is None else str(outlier.label)
            typer.echo(f"{outlier.score:.2f}\t{label}\t{outlier.distance:.4f} (usual {outlier.usual:.4f})\t{name}")
    if not as_json:
        are = "is an outlier" if len(remote) == 1 else "are outliers"
        typer.echo(f"{len(remote):,} of {counted(len(collection), 'item')} {are}.")
    if out is not None:
        rows = [
            [
                collection.names[each.index],
                "" if each.label is None else each.label,
                f"{each.score:.4f}",
                f"{each.distance:.6f}",
                f"{each.usual:.6f}",
            ]
            for each in remote
        ]
        write_rows(out, ("item", "label", "score", "distance", "usual"), rows)
    if sheet is not None:
        pictures = [
            [
                collection.cell(each.index, f"{each.score:.2f}", frame=RED),
                *(collection.cell(index, "nearest") for index in each.nearest),
            ]
            for each in remote[:shown]
        ]
        write_sheet(sheet, pictures)
