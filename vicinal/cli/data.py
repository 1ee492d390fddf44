"""`vicinal data`: the content of a dataset, its problems, and the next step."""

from __future__ import annotations

import json
import shlex
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vicinal._util.code import Trust
from vicinal._util.text import counted
from vicinal.cli.options import AllowCode, AsJson, Progress, Quiet
from vicinal.cli.output import prepare_picture, save_picture
from vicinal.errors import DataError, InputError, UnknownName, VicinalError

if TYPE_CHECKING:
    from vicinal.data import Dataset, Lookalikes

__all__ = ["data", "findings", "summary"]

SIZES_CHECKED = 1000
CLASSES_LISTED = 5  # classes whose repeated pictures have a line each
SHOWN = 20
LONGEST = 40  # most letters of a class name
NO_SPLIT = "none:"  # followed by the reason


def data(
    name_or_path: Annotated[
        str, typer.Argument(help="Folder, .csv, .parquet or .npz file, or dataset name.", metavar="DATA")
    ],
    root: Annotated[Path | None, typer.Option(help="Folder of a named dataset's files.")] = None,
    check: Annotated[
        Literal["decode", "header"],
        typer.Option(help="Decode every image, or read only headers (faster)."),
    ] = "decode",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip items that cannot be read.")] = False,
    any_count: Annotated[
        bool, typer.Option("--any-count", help="Accept a named dataset with other than its official counts.")
    ] = False,
    preview: Annotated[Path | None, typer.Option(help="Write a contact sheet of the images to this file.")] = None,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Check a dataset: its content, its problems, its split, and the next command to run."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    trust = Trust.of(allow_code or ())

    prepare_picture(preview, "--preview")
    options: dict[str, Any] = {} if root is None else {"root": root}
    if any_count:
        options["strict"] = False
    dataset, lookalikes, refused = _looked_at(name_or_path, options, check, skip_bad, progress, trust)
    notes = findings(dataset, lookalikes)
    rows = summary(dataset) | split_in_words(dataset, lookalikes)
    source = _opened_alone_by(name_or_path, root)
    rest = next_command(rows["split"], source, skip_bad or any_count or refused is not None)
    if as_json:
        problems = [] if refused is None else list(refused.problems)
        typer.echo(json.dumps({"summary": rows, "problems": problems, "notes": notes, "next": rest}, indent=2))
        if refused is not None:
            raise typer.Exit(1)
        return
    console = Console()
    table = Table(title=escape(dataset.name), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for what, value in rows.items():
        table.add_row(what, escape(value))
    console.print(table)
    for note in notes[:SHOWN]:
        console.print(f"[yellow]Note:[/] {escape(note)}", soft_wrap=True, highlight=False)
    if len(notes) > SHOWN:
        console.print(f"[yellow]Note:[/] ... and {len(notes) - SHOWN} more (--json lists all)")
    if preview is not None:
        _write_preview(dataset, preview)
        console.print(f"Wrote {escape(str(preview))}", soft_wrap=True, highlight=False)
    if rest is not None:
        console.print(f"Next: {escape(rest)}", soft_wrap=True, highlight=False)
    if refused is not None:
        raise refused


def _looked_at(
    name_or_path: str, options: dict[str, Any], check: str, skip_bad: bool, progress: bool, trust: Trust
) -> tuple[Dataset, Lookalikes, DataError | None]:
    """Return the data without bad items, its duplicate images, and the error that training would raise."""
    from vicinal._util.progress import LiveBar
    from vicinal.data import find_lookalikes, load
    from vicinal.data._load import reader_of

    with suppress(UnknownName):  # reported when the data is opened
        if check == "decode" and _takes(reader_of(name_or_path, trust), "check"):
            options = options | {"check": check}
    refused = None
    with LiveBar(shown=progress) as bar, warnings.catch_warnings():
        task = bar.add_task("checking images", total=None, visible=False)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        warnings.simplefilter("ignore")  # skipped items are in the notes shown below
        try:
            dataset = load(name_or_path, skip_bad=skip_bad, watch=tell, allow_code=trust.sources, **options)
        except DataError as error:
            if not error.problems:
                raise
            options |= {"watch": tell}
            refused, dataset = error, _without_bad(name_or_path, options, error, trust)
        return dataset, find_lookalikes(dataset, tell), refused


def _without_bad(name_or_path: str, options: dict[str, Any], error: DataError, trust: Trust) -> Dataset:
    """Load refused data without its bad items, so that all problems are reported at once."""
    from vicinal.data import load

    try:
        return load(name_or_path, skip_bad=True, allow_code=trust.sources, **options)
    except VicinalError:
        raise error from None


def _takes(reader: Any, option: str) -> bool:
    import inspect

    return option in inspect.signature(reader).parameters


def findings(dataset: Dataset, lookalikes: Lookalikes) -> list[str]:
    """Return notes on oddities of a dataset that do not prevent its use."""
    import numpy as np

    from vicinal.data.lookalikes import NOT_COMPARED

    names, counts = dataset.class_names, np.bincount(dataset.labels, minlength=len(dataset.class_names))
    notes = list(dataset.notes)
    single = [names[label] for label in np.flatnonzero(counts == 1)]
    if single:
        notes.append(f"{_single(len(single))} and cannot be scored: {_listed(single)}")

    def where(position: int) -> str:
        return f"{dataset.item(position)} ({names[dataset.labels[position]]})"

    within: dict[int, list[tuple[int, ...]]] = {}
    for groups, how in ((lookalikes.same, "the same"), (lookalikes.near, "nearly the same")):
        for group in groups:
            classes = {int(dataset.labels[position]) for position in group}
            if len(classes) > 1:
                notes.append(f"{how} image in two classes: {', '.join(map(where, group))}")
            else:
                within.setdefault(classes.pop(), []).append(group)
    if len(within) > CLASSES_LISTED:
        copies = len({position for repeated in within.values() for group in repeated for position in group})
        label, repeated = next(iter(within.items()))
        notes.append(
            f"the same image twice, or nearly, in {len(within):,} classes ({copies:,} images); the first, of "
            f"{names[label]}: {', '.join(str(dataset.item(position)) for position in repeated[0])}"
        )
        within = {}
    for label, repeated in within.items():
        copies = len({position for group in repeated for position in group})
        first = ", ".join(str(dataset.item(position)) for position in repeated[0])
        notes.append(f"the same image twice, or nearly: {copies:,} images of {names[label]}; the first: {first}")
    if lookalikes.alike:
        across = sum(dataset.labels[first] != dataset.labels[second] for first, second in lookalikes.alike)
        alike = len({position for pair in lookalikes.alike for position in pair})
        notes.append(
            f"{alike:,} images look alike but differ in details, like shots of a series ({across:,} of "
            f"{len(lookalikes.alike):,} pairs are of two classes): `vicinal duplicates --sheet` shows them"
        )
    if not lookalikes.compared and isinstance(dataset.items, tuple):
        notes.append(NOT_COMPARED)
    return sorted(notes, key=lambda note: "in two classes" not in note)


def _single(count: int) -> str:
    return f"{counted(count, 'class')} {'has' if count == 1 else 'have'} only one item"


def summary(dataset: Dataset) -> dict[str, str]:
    """Return the content of a dataset, in words.

    Example:
        >>> from vicinal.data import digits
        >>> summary(digits())["per class"]
        '174 to 183, median 180'
    """
    from collections import Counter

    import numpy as np

    per_class = np.bincount(dataset.labels)[dataset.classes]
    least, median, most = np.quantile(per_class, [0, 0.5, 1])
    rows = {
        "items": f"{len(dataset):,} {'images' if dataset.kind == 'paths' else dataset.kind}",
        "classes": f"{len(dataset.classes):,}",
        "per class": f"{least:.0f} to {most:.0f}, median {median:.0f}",
        "size": _sizes(dataset),
    }
    if dataset.roles is not None:
        rows["roles"] = ", ".join(
            f"{role} {count:,} ({counted(len(dataset.with_role(role).classes), 'class')})"
            for role, count in Counter(dataset.roles.tolist()).items()
        )
    rows["hash"] = dataset.hash()
    return rows


def split_in_words(dataset: Dataset, lookalikes: Lookalikes) -> dict[str, str]:
    """Describe the split that `compare` and `train` would use, or why there is none.

    Example:
        >>> from vicinal.data import digits, find_lookalikes
        >>> split_in_words(digits(), find_lookalikes(digits()))["split"].partition(";")[0]
        'train 0, 1, 2, ... (5 classes, 901 items)'
    """
    from vicinal.data import leak_note, split

    try:
        divided = split(dataset, "fixed-validation")
    except InputError as error:
        return {"split": f"{NO_SPLIT} {error}"}
    sides = {"train": divided.train, "validation": divided.validation, "test": divided.test}
    parts = []
    for side, view in sides.items():
        if view is not None:
            names = [view.class_names[label] for label in view.classes]
            parts.append(f"{side} {_listed(names, 3)} ({counted(len(names), 'class')}, {counted(len(view), 'item')})")
    leak = leak_note(divided, (dataset, lookalikes))
    return {"split": "; ".join(parts)} | ({} if leak is None else {"warning": leak})


def next_command(division: str, place: str | None, skip_bad: bool) -> str | None:
    """Return the next command to run; None if nothing can be compared.

    Args:
        division: Description of the split, or the reason why there is none.
        place: Name or path that opens the data without other options; None if there is none.
        skip_bad: Whether there are bad items to skip, or unofficial counts to accept.
    """
    if place is None or division.startswith(NO_SPLIT):
        return None
    return f"vicinal compare {shlex.quote(place)} --out runs/which" + " --skip-bad" * skip_bad


def _opened_alone_by(name_or_path: str, root: Path | None) -> str | None:
    """Return what opens the data without --root: the root of a known set, if it is recognised as that set."""
    from vicinal.data import recognise

    if root is None:
        return name_or_path
    return str(root) if recognise(root) == name_or_path else None


def _write_preview(dataset: Dataset, preview: Path) -> None:
    from vicinal.data import contact_sheet

    save_picture(contact_sheet(dataset), preview)


def _sizes(dataset: Dataset) -> str:
    import numpy as np

    if not isinstance(dataset.items, tuple):
        return " x ".join(map(str, dataset.items.shape[1:]))
    looked_at = np.unique(np.linspace(0, len(dataset) - 1, SIZES_CHECKED).round().astype(int))
    sizes = np.array([_size(dataset, int(index)) for index in looked_at])
    edges = zip(sizes.min(axis=0), sizes.max(axis=0), strict=True)
    text = " x ".join(f"{low}-{high}" if low < high else f"{low}" for low, high in edges)
    return text + (f" ({len(looked_at):,} images checked)" if len(looked_at) < len(dataset) else "")


def _size(dataset: Dataset, index: int) -> tuple[int, int]:
    from vicinal.data.files import decoding

    with decoding(dataset.item(index)):
        return dataset.open(index).size


def _listed(names: list[str], most: int = 10) -> str:
    return ", ".join(map(_short, names[:most])) + (", ..." if len(names) > most else "")


def _short(name: str) -> str:
    """Shorten a long name to its two ends, which usually differ between names.

    Example:
        >>> _short("a_very_long_name_of_a_car_of_the_year_2019_in_red")
        'a_very_long_name_of...the_year_2019_in_red'
    """
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2 - 1]}...{name[-LONGEST // 2 :]}"
