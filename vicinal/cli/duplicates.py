"""`vicinal duplicates`: find duplicates in a collection, leaks between train and test first."""

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

KINDS = {
    "bytes": "identical files",
    "looks": "copies by their looks",
    "alike": "look-alikes",
    "embedding": "nearly equal embeddings",
}
LISTED = 6  # items of a series that are listed
NO_THRESHOLD = (
    "Embeddings were not compared, because Euclidean distances have no natural scale. Give --threshold as minus a "
    "distance, such as -0.1."
)


def duplicates(
    what: Annotated[str, DATA_OR_INDEX],
    model: Annotated[Path | None, MODEL] = None,
    threshold: Annotated[
        float | None,
        typer.Option(max=1, help="Lowest similarity of near-duplicates.", show_default="0.98 for cosine"),
    ] = None,
    skip_bad: SkipBad = False,
    out: Annotated[Path | None, typer.Option(help="Write all groups to this .csv file, one line per item.")] = None,
    sheet: Annotated[Path | None, typer.Option(help="Draw the groups to this .png or .jpg file.")] = None,
    shown: Annotated[int, typer.Option(min=1, help="Most groups to print and draw.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per group.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Find duplicates: identical files, look-alike images, nearly equal embeddings.

    Data without a model is compared by bytes and looks; embeddings without files by themselves alone. Items that are
    alike but differ in details are shown as series: shots of one scene, or views of one object.
    """
    from vicinal._util.progress import LiveBar
    from vicinal.collection import Link, find_duplicates, group_links
    from vicinal.data.lookalikes import NOT_COMPARED, lookalike_files
    from vicinal.neighbours.inputs import check_threshold

    trust = Trust.of(allow_code or ())

    prepare_outputs(out, sheet)
    collection = read_collection(what, model, skip_bad=skip_bad, progress=progress, trust=trust)
    if threshold is not None:
        check_threshold(threshold, collection.distance)
    with LiveBar(shown=progress) as bar:
        task = bar.add_task("comparing images", total=None, visible=False)
        alike = lookalike_files(
            collection.paths, lambda done, total: bar.update(task, completed=done, total=total, visible=True)
        )
    links = [Link(group[0], other, "bytes") for group in alike.same for other in group[1:]]
    links += [Link(first, other, "looks") for first, other in alike.near]
    links += [Link(first, other, "alike", copy=False) for first, other in alike.alike]
    notes = [] if alike.compared else [NOT_COMPARED]
    embeddings = (
        collection.embeddings if collection.paths else collection.embedded()
    )  # raises an error if there is nothing to compare
    if embeddings is None or (collection.distance == "euclidean" and threshold is None):
        if embeddings is not None:
            notes.append(NO_THRESHOLD)
        groups = group_links(links, labels=collection.labels, roles=collection.roles)
    else:
        groups = find_duplicates(
            embeddings,
            threshold=threshold,
            labels=collection.labels,
            roles=collection.roles,
            distance=collection.distance,
            links=links,
        )
    for group in groups[:shown]:
        names = [collection.names[index] for index in group.indices]
        typer.echo(json.dumps(group.as_dict() | {"items": names}) if as_json else _in_words(collection, group))
    for note in notes:
        typer.echo(f"Note: {note}", err=as_json)
    if not as_json:
        typer.echo(_summary(groups, len(collection), whole=not notes))
    if out is not None:
        write_rows(
            out, ("group", "item", "label", "role", "kinds", "similarity", "copies", "leak"), _rows(collection, groups)
        )
    if sheet is not None:
        write_sheet(sheet, [_cells(collection, group) for group in groups[:shown]])


def _described(group: DuplicateGroup) -> str:
    text = " and ".join(KINDS[kind] for kind in group.kinds)
    if not group.copies:
        text = f"series: {text}"
    if group.leaks:
        text = f"LEAK between {' and '.join(group.sides)}: {text}"
    if group.may_leak:
        text = f"{text}; may be a leak between {' and '.join(group.sides)}"
    return f"{text}, with different labels" if len(group.labels) > 1 else text


def _in_words(collection: Collection, group: DuplicateGroup) -> str:
    lines = [f"{_described(group)} ({group.similarity:.4f})" if "embedding" in group.kinds else _described(group)]
    listed = group.indices if group.copies else group.indices[:LISTED]
    for index in listed:
        details = [str(values[index]) for values in (collection.labels, collection.roles) if values is not None]
        lines.append(f"  {collection.names[index]}" + (f" ({', '.join(details)})" if details else ""))
    if len(listed) < len(group.indices):
        lines.append(f"  ... and {len(group.indices) - len(listed):,} more")
    return "\n".join(lines)


def _summary(groups: list[DuplicateGroup], items: int, *, whole: bool) -> str:
    copies, series = ([group for group in groups if group.copies == copy] for copy in (True, False))
    if copies:
        leaks, torn = sum(group.leaks for group in copies), sum(len(group.labels) > 1 for group in copies)
        spare = sum(len(group.indices) - 1 for group in copies)
        text = (
            f"{counted(len(copies), 'group')} of duplicates among {counted(items, 'item')}; {spare:,} could be "
            f"removed. {leaks:,} leak between training and test, {torn:,} have different labels."
        )
    else:
        nothing = "No duplicates" if whole else "No duplicates found so far"
        text = f"{nothing} among {counted(items, 'item')}."
    if series:
        members = len({index for group in series for index in group.indices})
        across = sum(group.may_leak for group in series)
        text += (
            f" {counted(members, 'item')} in {len(series):,} series look alike but differ in details; {across:,} "
            "series have items in both training and test."
        )
    return text


def _rows(collection: Collection, groups: list[DuplicateGroup]) -> list[list[object]]:
    return [
        [
            number,
            collection.names[index],
            "" if collection.labels is None else collection.labels[index],
            "" if collection.roles is None else collection.roles[index],
            " ".join(group.kinds),
            f"{group.similarity:.6f}",
            "yes" if group.copies else "no",
            "yes" if group.leaks else "maybe" if group.may_leak else "no",
        ]
        for number, group in enumerate(groups, start=1)
        for index in group.indices
    ]


def _cells(collection: Collection, group: DuplicateGroup) -> list[Cell]:
    from vicinal.data.sheets import RED

    frame = RED if group.leaks else None
    roles = collection.roles
    return [
        collection.cell(index, *([] if roles is None else [str(roles[index])]), frame=frame)
        for index in group.indices[:12]
    ]
