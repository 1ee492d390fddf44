"""`vicinal clusters`: propose clusters of unlabelled items, with names to fill in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from vicinal._util.code import Trust
from vicinal._util.files import prepare_output
from vicinal._util.text import counted
from vicinal.cli.inputs import DATA_OR_INDEX, MODEL, prepare_outputs, read_collection, write_rows, write_sheet
from vicinal.cli.options import AllowCode, Progress, Quiet, SkipBad
from vicinal.errors import DataError

__all__ = ["clusters"]

COLUMNS = ["cluster", "items", "example", "name"]


def clusters(
    what: Annotated[str, DATA_OR_INDEX],
    model: Annotated[Path | None, MODEL] = None,
    least: Annotated[int, typer.Option(min=2, help="Smallest size of a cluster.")] = 5,
    skip_bad: SkipBad = False,
    names: Annotated[
        Path | None,
        typer.Option(help=".csv file of cluster names: written first, read after you filled it in."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write path and label of items in named clusters to this .csv file.")
    ] = None,
    sheet: Annotated[Path | None, typer.Option(help="Draw one row per cluster to this .png or .jpg file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per cluster.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Propose clusters of unlabelled items, largest first.

    Run with --names names.csv --sheet clusters.png, fill in the names, then run again with --out labelled.csv.
    """
    from vicinal.collection import propose_clusters

    trust = Trust.of(allow_code or ())

    prepare_outputs(out, sheet)
    filled_in = None if names is None or not os.path.lexists(names) else _read_names(names)
    if filled_in is None:
        prepare_output(names)
    collection = read_collection(what, model, skip_bad=skip_bad, progress=progress, trust=trust)
    proposed = propose_clusters(collection.embedded(), least=least, distance=collection.distance)
    examples = [collection.names[index] for index in proposed.centres]
    for cluster, example in enumerate(examples):
        size = len(proposed.members(cluster))
        row = {"cluster": cluster, "items": size, "example": example}
        typer.echo(json.dumps(row) if as_json else f"{cluster}\t{counted(size, 'item')}\t{example}")
    if not as_json:
        alone = int((proposed.codes < 0).sum())
        typer.echo(
            f"{counted(len(proposed), 'cluster')} of {counted(len(collection), 'item')}; {alone:,} are in no cluster."
        )
    if filled_in is not None and [name.example for name in filled_in] != examples:
        raise DataError(
            f"{names} is for other clusters than these.", hint="Delete it, run again, and fill in the new file."
        )
    if names is not None and filled_in is None:
        rows = [[cluster, len(proposed.members(cluster)), example, ""] for cluster, example in enumerate(examples)]
        write_rows(names, COLUMNS, rows)
    if out is not None:
        label_of = {name.cluster: name.name for name in filled_in or () if name.name}
        labelled = [
            [collection.names[index], label_of.get(code, f"cluster-{code}")]
            for index, code in enumerate(proposed.codes.tolist())
            if code >= 0 and (names is None or code in label_of)
        ]
        write_rows(out, ("path", "label"), labelled)
    if sheet is not None:
        rows_of = []
        for cluster, centre in enumerate(proposed.centres):
            others = [index for index in proposed.members(cluster) if index != centre]
            rows_of.append([collection.cell(index, f"cluster {cluster}") for index in [centre, *others][:12]])
        write_sheet(sheet, rows_of)


class _Named(NamedTuple):
    """A line of the file of names."""

    cluster: int
    example: str
    name: str


def _read_names(path: Path) -> list[_Named]:
    """Return the lines of the names file, one per cluster, with the names filled in so far."""
    from vicinal._util.reading import read_csv

    header, *rows = [row for row in read_csv(path) if row] or [[]]
    if header != COLUMNS:
        raise DataError(f"{path} must have the columns {', '.join(COLUMNS)}; got {', '.join(header) or 'none'}.")
    broken = [
        f"line {line_number}: {','.join(row)}"
        for line_number, row in enumerate(rows, 2)
        if len(row) != 4 or row[0] != str(line_number - 2)
    ]
    if broken:
        raise DataError(
            f"{path} was changed beyond its names.",
            broken,
            "Change only the column `name`, or delete the file to start again.",
        )
    return [_Named(int(row[0]), row[2], row[3].strip()) for row in rows]
