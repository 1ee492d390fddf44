"""`vicinal data`: what is in a dataset, and what is wrong with it."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vicinal.atomic import replacing
from vicinal.cli.figures import prepare_picture
from vicinal.data import Dataset, contact_sheet, load
from vicinal.data.files import decoding

SIZES_LOOKED_AT = 1000


def data(
    name_or_path: Annotated[str, typer.Argument(help="A known set, a folder, or a .csv, .parquet or .npz file.")],
    root: Annotated[Path | None, typer.Option(help="Where the files of a known set are.")] = None,
    check: Annotated[str, typer.Option(help="How closely images are looked at: header or decode.")] = "header",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Go on without what is bad.")] = False,
    any_count: Annotated[bool, typer.Option("--any-count", help="Accept counts that are not official.")] = False,
    preview: Annotated[Path | None, typer.Option(help="Write a contact sheet to this image file.")] = None,
) -> None:
    """Read data, check it, and say what is in it."""
    prepare_picture(preview, "--preview")
    options: dict[str, Any] = {}
    if root is not None:
        options["root"] = root
    if check != "header":
        options["check"] = check
    if any_count:
        options["strict"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what was skipped is in the notes, shown below
        dataset = load(name_or_path, skip_bad=skip_bad, **options)
    console = Console()
    table = Table(title=escape(dataset.name), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for what, value in summary(dataset).items():
        table.add_row(what, escape(value))
    console.print(table)
    for note in dataset.notes[:20]:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True, highlight=False)
    if len(dataset.notes) > 20:
        console.print(f"[yellow]note:[/] ... and {len(dataset.notes) - 20} more")
    if preview is not None:
        sheet = contact_sheet(dataset)
        with replacing(preview) as file:
            sheet.save(file, format=Image.registered_extensions()[preview.suffix.lower()])
        console.print(f"wrote {escape(str(preview))}", soft_wrap=True, highlight=False)


def summary(dataset: Dataset) -> dict[str, str]:
    """What is in a dataset, in words.

    Example:
        >>> from vicinal.data import digits
        >>> summary(digits())["per class"]
        'least 174, median 180, most 183'
    """
    per_class = np.bincount(dataset.labels)[dataset.classes]
    least, median, most = np.quantile(per_class, [0, 0.5, 1])
    rows = {
        "items": f"{len(dataset):,} {dataset.kind}",
        "classes": f"{len(dataset.classes):,}",
        "per class": f"least {least:.0f}, median {median:.0f}, most {most:.0f}",
        "single items": f"{int((per_class == 1).sum()):,} classes",
        "size": _sizes(dataset),
    }
    if dataset.roles is not None:
        rows["roles"] = ", ".join(
            f"{role} {count:,} ({len(dataset.with_role(role).classes):,} classes)"
            for role, count in Counter(dataset.roles.tolist()).items()
        )
    rows["hash"] = dataset.hash()
    return rows


def _sizes(dataset: Dataset) -> str:
    if not isinstance(dataset.items, tuple):
        return " x ".join(map(str, dataset.items.shape[1:]))
    looked_at = np.unique(np.linspace(0, len(dataset) - 1, SIZES_LOOKED_AT).round().astype(int))
    sizes = np.array([_size(dataset, int(index)) for index in looked_at])
    edges = zip(sizes.min(axis=0), sizes.max(axis=0), strict=True)
    text = " x ".join(f"{low}-{high}" if low < high else f"{low}" for low, high in edges)
    return text + (f" (of {len(looked_at):,} looked at)" if len(looked_at) < len(dataset) else "")


def _size(dataset: Dataset, index: int) -> tuple[int, int]:
    with decoding(dataset.item(index)):
        return dataset.open(index).size
