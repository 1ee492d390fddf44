"""Inputs of verbs: query images and collections."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.files import prepare_output, write_atomically
from vicinal.cli.output import prepare_picture, save_picture
from vicinal.errors import DataError, InputError

if TYPE_CHECKING:
    from vicinal.data import Dataset
    from vicinal.data.sheets import Cell
    from vicinal.index import Index

__all__ = [
    "DATA_OR_INDEX",
    "MODEL",
    "SKIP_BAD",
    "Collection",
    "prepare_outputs",
    "query_images",
    "read_collection",
    "write_rows",
    "write_sheet",
]


# Query images of `search` and `classify`: embedded, with a list of those that cannot be read.

SKIP_BAD: Any = typer.Option(help="Fail on images of a folder that cannot be read, instead of skipping them.")


def query_images(opened: Index, query: Path, skip_bad: bool) -> tuple[list[str], dict[str, Any]]:
    """Return the paths of readable images, and their embeddings as arguments of `Index.search`.

    Args:
        opened: Index to search, whose model embeds them.
        query: Image, which must be readable, or folder of images.
        skip_bad: Whether to skip unreadable images of a folder; each one is listed on standard error.
    """
    from vicinal.data.readers.layout import images_below
    from vicinal.embedder.queries import embed_queries, embed_readable

    if not query.exists():
        raise DataError(f"{query} does not exist.")
    model = opened.embedder()
    made_by = {"embedder": model.identity()}
    if not query.is_dir():
        return [str(query)], {"vector": embed_queries(model, [str(query)]), **made_by}
    paths = list(images_below(query))
    if not paths:
        raise DataError(f"{query} contains no images.")
    rows, indices, faults = embed_readable(model, paths)
    problems = [str(fault).splitlines()[0] for fault in faults]
    if problems and not (skip_bad and indices):
        what = "none of the" if not indices else f"{len(problems):,} of the"
        hint = "" if not indices else "Fix or remove them, or skip them with --skip-bad."
        raise DataError(
            f"{query}: {what} {len(paths):,} images can{'' if not indices else 'not'} be read.", problems, hint
        )
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)
    for problem in problems:
        console.print(f"skipped: {problem}")
    return [paths[index] for index in indices], {"vector": rows, **made_by}


# Collections: an index, a file of embeddings, or data with the model that embeds it.

DATA_OR_INDEX = typer.Argument(
    metavar="DATA_OR_INDEX",
    help="Index, file of embeddings (.npz or .parquet), or dataset (with --model).",
)
MODEL = typer.Option(help="Model, run or comparison that embeds a dataset.")


@dataclass(frozen=True)
class Collection:
    """Items with their embeddings, labels and images, as far as available.

    Attributes:
        names: Name of each item: its path, its id or its number.
        embeddings: Embedding of each item; None for data without a model.
        labels: Label of each item, or None.
        roles: Role of each item, or None.
        distance: Distance between embeddings.
        paths: Paths of image files; empty if there are none.
        picture: Function that returns the image of an item, or None.
    """

    names: Sequence[str]
    embeddings: NDArray[np.generic] | None
    labels: NDArray[Any] | None
    roles: NDArray[Any] | None
    distance: str
    paths: Sequence[str]
    picture: Callable[[int], Any]

    def __len__(self) -> int:
        return len(self.names)

    def embedded(self) -> NDArray[np.generic]:
        """Return the embeddings, or raise an error that says how to get them."""
        if self.embeddings is None:
            raise InputError("There are no embeddings. Name a model that computes them, with --model FOLDER.")
        return self.embeddings

    def labelled(self) -> NDArray[Any]:
        """Return the labels, or raise an error."""
        if self.labels is None:
            raise InputError("These items have no labels; `vicinal clusters` can propose some.")
        return self.labels

    def cell(self, place: int, *words: str, frame: str | None = None) -> Cell:
        """Return the image of an item, with words, its label and its name as a caption."""
        from vicinal.data.sheets import Cell

        label = [] if self.labels is None else [str(self.labels[place])]
        return Cell(self.picture(place), [*words, *label, Path(self.names[place]).name], frame)


def read_collection(
    what: str, model: Path | None = None, *, skip_bad: bool = False, progress: bool = True, trust: Trust = NO_TRUST
) -> Collection:
    """Read the collection that the user named.

    Args:
        what: Index, file of embeddings, or data.
        model: Model that embeds the data.
        skip_bad: Whether to skip images that cannot be read.
        progress: Whether to show a progress bar.
        trust: Code that any of them may name.
    """
    from vicinal.cli.embed import open_inputs
    from vicinal.embedder import Embedder
    from vicinal.index.folder import is_index

    path = Path(what)
    if is_index(path) or _holds_embeddings(path):
        if model is not None:
            raise InputError(f"{what} already contains embeddings; --model is for datasets.")
        return _from_index(path, trust) if is_index(path) else _from_file(path)
    data, labelled = open_inputs(what, skip_bad=skip_bad, trust=trust)
    embeddings = data.items if data.kind == "vectors" and model is None else None
    distance = "cosine"
    if model is not None:
        embedder = Embedder.load(model, allow_code=trust.sources)
        embeddings, distance = embedder.encode(data, progress=progress), embedder.distance
    return _of_dataset(data, labelled, np.asarray(embeddings) if embeddings is not None else None, distance)


def _holds_embeddings(path: Path) -> bool:
    from vicinal._util.reading import read_arrays

    if path.suffix == ".npz" and path.is_file():
        return "embeddings" in read_arrays(path)
    return path.suffix == ".parquet" and path.is_file()


def _from_index(path: Path, trust: Trust) -> Collection:
    from vicinal.index import Index

    with Index.open(path, allow_code=trust.sources) as opened:
        items, vectors = opened.get()
        distance = opened.distance
    paths = [str(item.path) for item in items if item.path is not None]
    labels = [item.label for item in items]
    roles = [item.metadata.get("role") for item in items]
    return Collection(
        [str(item.path or item.id) for item in items],
        vectors,
        _if_all(labels),
        _if_all(roles),
        distance,
        paths if len(paths) == len(items) else (),
        lambda index: items[index].path,
    )


def _from_file(path: Path) -> Collection:
    from vicinal.index.exchange import read_vectors

    contents = read_vectors(path)
    names = [str(name) for name in (range(len(contents.vectors)) if contents.ids is None else contents.ids)]
    roles = contents.metadata.get("role")
    paths = [str(path) for path in contents.files.get("path", names)]
    are_files = contents.ids is not None and all(Path(path).is_file() for path in paths)
    return Collection(
        names,
        contents.vectors,
        _if_all(contents.labels),
        _if_all(roles),
        contents.distance or "cosine",
        paths if are_files else (),
        lambda index: paths[index] if are_files else None,
    )


def _if_all(values: Sequence[Any] | None) -> NDArray[np.generic] | None:
    """Return values as an array if every item has one, otherwise None."""
    return None if values is None or any(value is None for value in values) else np.array(values)


def _of_dataset(data: Dataset, labelled: bool, embeddings: NDArray[np.generic] | None, distance: str) -> Collection:
    paths = list(data.items) if isinstance(data.items, tuple) else []
    return Collection(
        paths or [str(index) for index in range(len(data))],
        embeddings,
        np.array(data.class_names)[data.labels] if labelled else None,
        data.roles,
        distance,
        paths,
        lambda index: None if data.kind == "vectors" else data.image(index),
    )


def prepare_outputs(out: Path | None, sheet: Path | None) -> None:
    """Check that results can be written before the work starts."""
    if out is not None and out.suffix != ".csv":
        raise InputError(f"--out must end in .csv; got {out}.")
    prepare_output(out)
    prepare_picture(sheet, "--sheet")


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a table as CSV, atomically."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def write_sheet(path: Path, rows: Sequence[Sequence[Cell]]) -> None:
    """Write rows of images as one image, atomically."""
    from vicinal.data.sheets import draw_rows

    save_picture(draw_rows(rows), path)
