"""`vicinal duplicates`: what is in a collection more than once, leaks between train and test first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal._util.code import Trust
from vicinal._util.text import counted
from vicinal.cli.inputs import (
    DATA_OR_INDEX,
    MODEL,
    Collection,
    prepare_outputs,
    read_collection,
    write_rows,
    write_sheet,
)
from vicinal.cli.options import AllowCode, Progress, Quiet, SkipBad

if TYPE_CHECKING:
    from vicinal.collection import DuplicateGroup
    from vicinal.data.sheets import Cell

__all__ = ["duplicates"]

KINDS = {"bytes": "the same bytes", "looks": "looks the same", "embedding": "nearly the same by embedding"}
NO_THRESHOLD = (
    "Embeddings were not compared: Euclidean distances have no usual size, so give --threshold, as minus a distance."
)


def duplicates(
    what: Annotated[str, DATA_OR_INDEX],
    model: Annotated[Path | None, MODEL] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            max=1, help="Least similarity of near-duplicates; by default a cosine of 0.98.", show_default=False
        ),
    ] = None,
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write one line per item to this .csv file.")] = None,
    sheet: Annotated[Path | None, typer.Option(help="Draw the groups to this .png or .jpg file.")] = None,
    shown: Annotated[int, typer.Option(min=1, help="Groups that are printed and drawn at most.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per group.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Find items with the same bytes, that look the same, or whose embeddings are nearly the same, as groups.

    Data without a model is compared by bytes and looks; embeddings without files by themselves alone.
    """
    from vicinal._util.progress import LiveBar
    from vicinal.collection import Link, find_duplicates, group_links
    from vicinal.data.lookalikes import NOT_COMPARED, lookalike_files
    from vicinal.neighbours.inputs import check_threshold

    trust = Trust.of(allow_code or ())

    prepare_outputs(out, sheet)
    found = read_collection(what, model, skip_bad=skip_bad, progress=progress, trust=trust)
    if threshold is not None:
        check_threshold(threshold, found.distance)
    with LiveBar(shown=progress) as bar:
        task = bar.add_task("comparing images", total=None, visible=False)
        alike = lookalike_files(
            found.paths, lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        )
    links = [Link(group[0], other, "bytes") for group in alike.same for other in group[1:]]
    links += [Link(one, other, "looks") for one, other in alike.near]
    notes = [] if alike.compared else [NOT_COMPARED]
    embeddings = found.embeddings if found.paths else found.embedded()  # there must be something to compare
    if embeddings is None or (found.distance == "euclidean" and threshold is None):
        if embeddings is not None:
            notes.append(NO_THRESHOLD)
        groups = group_links(links, labels=found.labels, roles=found.roles)
    else:
        groups = find_duplicates(
            embeddings,
            threshold=threshold,
            labels=found.labels,
            roles=found.roles,
            distance=found.distance,
            links=links,
        )
    for group in groups[:shown]:
        names = [found.names[place] for place in group.places]
        typer.echo(json.dumps(group.as_dict() | {"items": names}) if as_json else _in_words(found, group))
    for note in notes:
        typer.echo(f"note: {note}", err=as_json)
    if not as_json:
        typer.echo(_summary(groups, len(found), whole=not notes))
    if out is not None:
        write_rows(out, ("group", "item", "label", "role", "kinds", "similarity", "leak"), _rows(found, groups))
    if sheet is not None:
        write_sheet(sheet, [_cells(found, group) for group in groups[:shown]])


def _said(group: DuplicateGroup) -> str:
    said = " and ".join(KINDS[kind] for kind in group.kinds)
    if group.leaks:
        said = f"LEAK between {' and '.join(group.sides)}: {said}"
    return f"{said}, under several labels" if len(group.labels) > 1 else said


def _in_words(found: Collection, group: DuplicateGroup) -> str:
    lines = [f"{_said(group)} ({group.similarity:.4f})" if "embedding" in group.kinds else _said(group)]
    for place in group.places:
        known = [str(values[place]) for values in (found.labels, found.roles) if values is not None]
        lines.append(f"  {found.names[place]}" + (f" ({', '.join(known)})" if known else ""))
    return "\n".join(lines)


def _summary(groups: list[DuplicateGroup], items: int, *, whole: bool) -> str:
    if not groups:
        nothing = "Nothing is twice" if whole else "As far as they were compared, nothing is twice"
        return f"{nothing} among {counted(items, 'item')}."
    leaks, torn = sum(group.leaks for group in groups), sum(len(group.labels) > 1 for group in groups)
    spare = sum(len(group.places) - 1 for group in groups)
    return (
        f"{counted(len(groups), 'group')} among {counted(items, 'item')}, {spare:,} of which could go: "
        f"{leaks:,} across the split, {torn:,} under several labels."
    )


def _rows(found: Collection, groups: list[DuplicateGroup]) -> list[list[object]]:
    return [
        [
            number,
            found.names[place],
            "" if found.labels is None else found.labels[place],
            "" if found.roles is None else found.roles[place],
            " ".join(group.kinds),
            f"{group.similarity:.6f}",
            "yes" if group.leaks else "no",
        ]
        for number, group in enumerate(groups, start=1)
        for place in group.places
    ]


def _cells(found: Collection, group: DuplicateGroup) -> list[Cell]:
    from vicinal.data.sheets import RED

    frame = RED if group.leaks else None
    roles = found.roles
    return [
        found.cell(place, *([] if roles is None else [str(roles[place])]), frame=frame) for place in group.places[:12]
    ]
