"""`vicinal mislabelled`: list items whose label is probably wrong, with a proposed label and the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vicinal._util.code import Trust
from vicinal._util.text import counted
from vicinal.cli.inputs import DATA_OR_INDEX, MODEL, prepare_outputs, read_collection, write_rows, write_sheet
from vicinal.cli.options import AllowCode, Progress, Quiet, SkipBad

__all__ = ["mislabelled"]


def mislabelled(
    what: Annotated[str, DATA_OR_INDEX],
    model: Annotated[Path | None, MODEL] = None,
    least: Annotated[
        float, typer.Option(min=0, max=1, help="Lowest estimated probability that the label is wrong.")
    ] = 0.5,
    neighbours: Annotated[int, typer.Option(min=1, help="Number of neighbours that vote.")] = 200,
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write all suspects to this .csv file.")] = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Draw suspects with neighbours of both labels to this .png or .jpg file.")
    ] = None,
    shown: Annotated[int, typer.Option(min=1, help="Most suspects to print and draw.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per item.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """List items whose label is probably wrong, the most suspicious first, with a proposed label.

    Each row of --sheet has the item, its nearest items of the same label, and those of the proposed label.
    """
    from vicinal.collection import find_mislabelled
    from vicinal.data.sheets import BLUE, RED

    trust = Trust.of(allow_code or ())

    prepare_outputs(out, sheet)
    items = read_collection(what, model, skip_bad=skip_bad, progress=progress, trust=trust)
    suspects = find_mislabelled(items.embedded(), items.labelled(), k=neighbours, distance=items.distance, least=least)
    for suspect in suspects[:shown]:
        name = items.names[suspect.index]
        if as_json:
            near = {side: [items.names[index] for index in getattr(suspect, side)] for side in ("own", "other")}
            typer.echo(json.dumps(suspect.as_dict() | {"item": name} | near))
        else:
            typer.echo(f"{suspect.score:.3f}\t{suspect.label}\t-> {suspect.proposed}\t{name}")
    if not as_json:
        typer.echo(
            f"{len(suspects):,} of {counted(len(items), 'label')} {'is' if len(suspects) == 1 else 'are'} suspicious."
        )
    if out is not None:
        rows = [
            [
                items.names[each.index],
                each.label,
                each.proposed,
                f"{each.score:.6f}",
                items.names[each.other[0]],
            ]
            for each in suspects
        ]
        write_rows(out, ("item", "label", "proposed", "score", "nearest_of_proposed"), rows)
    if sheet is not None:
        pictures = [
            [
                items.cell(each.index, f"{each.score:.3f}", frame=RED),
                *(items.cell(index, "same label") for index in each.own),
                *(items.cell(index, "proposed", frame=BLUE) for index in each.other),
            ]
            for each in suspects[:shown]
        ]
        write_sheet(sheet, pictures)
