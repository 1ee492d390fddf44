"""`vicinal embed`: write the embeddings of a folder, a list or an array to an .npz file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import typer
from rich.console import Console

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.files import prepare_output
from vicinal._util.reading import read_arrays, read_text
from vicinal.cli.options import AllowCode, Progress, Quiet
from vicinal.errors import DataError, InputError

if TYPE_CHECKING:
    from vicinal.data.dataset import Dataset

__all__ = ["embed", "open_inputs"]


def embed(
    model: Annotated[Path, typer.Argument(help="Folder of a model, run or comparison.")],
    inputs: Annotated[
        str,
        typer.Argument(
            help="Folder of images, list of paths (.txt; optionally a tab and a label), table, array (.npy or .npz), "
            "or dataset name."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The .npz file to write.")] = Path("embeddings.npz"),
    batch_size: Annotated[int, typer.Option(min=1, help="Batch size.")] = 32,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Threads that decode images and run the network.", show_default="one per core"),
    ] = None,
    engine: Annotated[
        Literal["auto", "eager", "folded", "onnxruntime", "autocast"],
        typer.Option(help="auto (fastest with the same embeddings), eager, folded, onnxruntime or autocast."),
    ] = "auto",
    precision: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option(help="Precision of --engine eager; bfloat16 needs processor support to be faster."),
    ] = "float32",
    channels_last: Annotated[bool, typer.Option(hidden=True)] = False,
    skip_bad: Annotated[bool, typer.Option(help="Skip items that cannot be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Write the embeddings of images or feature vectors to an .npz file.

    The file holds embeddings [n, d], paths, labels and class_names if known, the hash of the model and its distance.
    """
    from vicinal.embedder import Embedder
    from vicinal.index.exchange import write_arrays

    trust = Trust.of(allow_code or ())

    if out.suffix != ".npz":
        raise InputError(f"--out must end in .npz; got {out}.")
    prepare_output(out)
    console = Console(stderr=True)
    if channels_last:
        console.print("--channels-last has no effect: the engine chooses the memory layout.", soft_wrap=True)
    embedder = Embedder.load(model, allow_code=trust.sources)
    data, labelled = open_inputs(inputs, skip_bad=skip_bad, trust=trust)
    result = {
        "embeddings": embedder.encode(
            data,
            batch_size=batch_size,
            workers=workers,
            engine=engine,
            precision=precision,
            progress=progress,
        )
    }
    if isinstance(data.items, tuple):
        # Absolute, like the ids of an index, so that they do not depend on the working directory of the reader.
        result["paths"] = np.array([os.path.abspath(path) for path in data.items], dtype=np.str_)
    if labelled:
        result["labels"] = data.labels
        result["class_names"] = np.array(data.class_names, dtype=np.str_)
    identity = embedder.identity()
    write_arrays(out, result, identity, embedder.distance, embedder.numbers)
    if as_json:
        facts = {"out": str(out), "items": len(data), "dim": embedder.dim, "distance": embedder.distance}
        facts |= {"numbers": embedder.numbers}
        facts |= {"labelled": labelled, "engine": embedder.encoded_by or engine, "model": identity}
        typer.echo(json.dumps(facts, indent=2))
        return
    console.print(
        f"{out}: {len(data):,} embeddings of dimension {embedder.dim} ({embedder.numbers}), engine "
        f"{embedder.encoded_by or engine}",
        soft_wrap=True,
        markup=False,
    )


def open_inputs(inputs: str, *, skip_bad: bool = False, trust: Trust = NO_TRUST) -> tuple[Dataset, bool]:
    """Open the inputs that the user named; return them as a Dataset, and whether its labels are meaningful.

    Args:
        inputs: Path, or name of a known set.
        skip_bad: Whether to skip files that cannot be decoded, with a warning, instead of raising an error.
    """
    from vicinal.data._load import load
    from vicinal.data.checks import Listing, dataset_from
    from vicinal.data.readers.layout import images_below

    path = Path(inputs)
    if path.suffix in (".txt", ".npy", ".npz") and not path.is_file():
        raise DataError(f"{path} does not exist.")
    if path.suffix in (".npy", ".npz"):
        data, labelled = _from_arrays(path, skip_bad)
    elif path.suffix == ".txt":
        data, labelled = _from_list(path, skip_bad)
    elif _is_flat(path):
        paths = list(images_below(path))
        listing = Listing(paths=paths, classes=["unlabelled"] * len(paths))
        data, labelled = dataset_from(listing, path.name, skip_bad=skip_bad), False
    else:
        data, labelled = load(inputs, skip_bad=skip_bad, allow_code=trust.sources), True
    return data, labelled


def _is_flat(path: Path) -> bool:
    """Whether a folder directly holds images, so that its subfolders cannot be classes."""
    from vicinal.data._load import recognise
    from vicinal.data.readers.layout import SUFFIXES

    return (
        path.is_dir()
        and recognise(path) == "folder"
        and any(p.suffix.lower() in SUFFIXES and not p.name.startswith(".") for p in path.iterdir() if p.is_file())
    )


def _from_list(path: Path, skip_bad: bool) -> tuple[Dataset, bool]:
    from vicinal.data.checks import Listing, dataset_from

    rows = [line.split("\t") for line in read_text(path).splitlines() if line.strip()]
    labelled = bool(rows) and all(len(row) == 2 for row in rows)
    if not labelled and any(len(row) != 1 for row in rows):
        raise DataError(f"Every line of {path} must have a label after a tab, or none may have one.")
    listing = Listing(
        paths=[str(path.parent / row[0].strip()) for row in rows],
        classes=[row[1].strip() if labelled else "unlabelled" for row in rows],
    )
    return dataset_from(listing, path.stem, skip_bad=skip_bad), labelled


def _from_arrays(path: Path, skip_bad: bool) -> tuple[Dataset, bool]:
    from vicinal.data.dataset import need_one_label
    from vicinal.data.readers import arrays

    contents = read_arrays(path)
    contents = {"X": contents[""]} if "" in contents else contents
    if "X" not in contents:
        raise DataError(
            f"{path} must contain an array 'X' (and optionally labels 'y').", [f"it contains: {', '.join(contents)}"]
        )
    labels = contents.get("y", np.zeros(len(contents["X"]), dtype=np.int64))
    data = arrays(contents["X"], labels, name=path.stem, skip_bad=skip_bad)
    need_one_label(data, "A file of items")
    return data, "y" in contents
