"""`vicinal classify`: label images by the nearest items of an index, or as none of the known classes."""

from __future__ import annotations

import csv
import io
import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vicinal.cli.inputs import SKIP_BAD, query_images
from vicinal.cli.options import AllowCode, Quiet

__all__ = ["classify"]

COLUMNS = ("path", "label", "similarity", "probability", "nearest", "nearest_label")
NONE = "none of these"


def classify(
    index: Annotated[Path, typer.Argument(help="Folder of an index with labelled items.")],
    query: Annotated[Path, typer.Argument(help="Image, or folder of images.")],
    threshold: Annotated[
        float | None,
        typer.Option(help="Lowest similarity of a match.", show_default="from the calibrated model"),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Compare only with items that pass this filter.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the results to this .csv file.")] = None,
    skip_bad: Annotated[bool, SKIP_BAD] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per image.")] = False,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Label images by the nearest item of an index, or as "none of these".

    To add a class, add a few of its images to the index; no training is needed.
    """
    from vicinal._util.files import prepare_output, write_atomically
    from vicinal.index import Index
    from vicinal.index._classify import classify as name_by
    from vicinal.index._classify import naming_rule

    prepare_output(out)
    with Index.open(index, allow_code=allow_code or ()) as opened:
        near_enough, _ = naming_rule(opened, threshold, where)  # before anything is embedded
        rule = opened.calibration if threshold is None else None
        paths, embedded = query_images(opened, query, skip_bad)
        namings = name_by(opened, vector=embedded["vector"], threshold=threshold, where=where)
    rows = [{"path": path} | naming.as_dict() for path, naming in zip(paths, namings, strict=True)]
    for row in rows:
        if json:
            print(json_module.dumps(row))
        else:
            near = "" if row["similarity"] is None else f"{row['similarity']:.6f}"
            print("\t".join([row["path"], NONE if row["label"] is None else str(row["label"]), near]))
    if out is not None:
        table = io.StringIO()
        writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(out, table.getvalue())
    unknown = sum(row["label"] is None for row in rows)
    Console(stderr=True, soft_wrap=True, markup=False, highlight=False).print(
        f"{len(rows) - unknown:,} of {len(rows):,} images labelled, {unknown:,} {NONE}; "
        f"threshold {near_enough:.6g}" + ("" if rule is None else f". {rule.claim()}")
    )
