"""`vicinal index`: make an index, bring it up to date, look after it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.text import counted
from vicinal.cli.output import print_json
from vicinal.errors import DataError, InputError

if TYPE_CHECKING:
    from vicinal.index import Changes, Index

__all__ = ["index"]


def index(
    what: Annotated[
        Path, typer.Argument(help="The folder of a model, a run or a comparison (with --out); or that of an index.")
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            help="What is to be found: a folder of images or of class folders, a list of paths (.txt), a table with "
            "a column path, or the name of a known set. Again: only what is new, changed or gone."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the index.")] = None,
    store: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Keep items and vectors in a server: postgresql://user@host/database (with pgvector) or milvus://host:19530.",
        ),
    ] = "",
    model: Annotated[Path | None, typer.Option(help="Embed all items of an index anew with this model.")] = None,
    remove: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Remove the items that pass this filter.")
    ] = None,
    import_: Annotated[
        Path | None,
        typer.Option("--import", help="Vectors of a file (.parquet, .npz, .npy): a new index, or more items."),
    ] = None,
    distance: Annotated[
        Literal["cosine", "euclidean"] | None,
        typer.Option(
            help="How imported vectors are compared, for a new index.", show_default="what the file says, or cosine"
        ),
    ] = None,
    export: Annotated[Path | None, typer.Option(help="Write everything to a .parquet, .npz or .faiss file.")] = None,
    export_map: Annotated[
        Path | None,
        typer.Option(help="Write path, label, place on the map and neighbours of every item to a .parquet file."),
    ] = None,
    keep_map: Annotated[
        bool,
        typer.Option("--map", help="Make the map of the search page now, so that its first visitor need not wait."),
    ] = False,
    whiten: Annotated[
        Path | None,
        typer.Option(help="Whiten all vectors in every search from now on, by those of a file, of training classes."),
    ] = None,
    augment: Annotated[
        int,
        typer.Option(
            min=0, help="Draw each item towards so many neighbours, for every search; with or without --whiten."
        ),
    ] = 0,
    plain: Annotated[
        bool, typer.Option("--plain", help="Search the vectors as they are again, not whitened or augmented.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte; list what is not as it was.")] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Time exact and fast search, with recall.")] = False,
    prepare_fast: Annotated[
        bool, typer.Option("--prepare-fast", help="Have the server of --store index its vectors for search --fast.")
    ] = False,
    half: Annotated[bool, typer.Option("--half", help="With --prepare-fast: half precision (PostgreSQL).")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Give back the space of removed items.")] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Go back to what was before --model or --compact.")
    ] = False,
    skip_bad: Annotated[
        bool,
        typer.Option(
            help="Leave out images that cannot be read, and list them; --no-skip-bad ends with an error if there are "
            "any, when all others are in."
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON, for scripts.")] = False,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
    trust: Trust = NO_TRUST,
) -> None:
    """Put images and their embeddings into a folder that can be searched; bring it up to date, look after it.

    vicinal index runs/which/best photos/ --out birds.index
    """
    console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False, quiet=as_json)
    from vicinal.embedder.folder import CONFIG, model_in
    from vicinal.index import Index
    from vicinal.index.exchange import prepare_export
    from vicinal.index.folder import is_index
    from vicinal.index.map import prepare_map

    actions: dict[str, object] = {
        "--model": model,
        "--remove": remove,
        "--export": export,
        "--export-map": export_map,
        "--whiten": whiten,
        "--augment": augment or None,
        "--plain": plain,
        "--verify": verify,
        "--measure": measure,
        "--prepare-fast": prepare_fast,
        "--compact": compact,
        "--rollback": rollback,
    }
    made_new = {"--store": store, "--distance": distance}
    is_model = not is_index(what) and os.path.isfile(model_in(what) / CONFIG)
    if import_ is not None:
        _refuse("--import", {"DATA": data, **actions}, "ask for that in a second call")
        target = what if out is None else out
        if is_index(target):
            _refuse(f"{target}, which is an index already", made_new, "that was settled when it was made")
        if out is not None and not is_model:
            raise InputError(f"--out is for a new index, whose first argument is a model; {what} is none.")
        if out is None and is_model:
            raise InputError(f"{what} is a model; say where the index is to be: --out FOLDER.")
        made_by = what if is_model else None
        with Index.import_file(
            target, import_, embedder=made_by, distance=distance, store=store, allow_code=trust.sources
        ) as opened:
            done = _said(console, opened, opened.changes, skip_bad)
            _keep_map(console, opened, wanted=keep_map, progress=progress)
            _end(opened, done, as_json, skip_bad)
        return
    if is_model:
        if out is None or (data is None and not is_index(out)):
            raise InputError(f"{what} is a model; say what to index and where: vicinal index {what} DATA --out FOLDER.")
        _refuse("making an index", {**actions, "--distance": distance}, f"ask for that of the index {out}")
        with Index.build(out, what, data, store=store, progress=progress, allow_code=trust.sources) as built:
            done = _said(console, built, built.changes, skip_bad)
            _keep_map(console, built, wanted=keep_map, progress=progress)
            _end(built, done, as_json, skip_bad)
        return
    if out is not None:
        raise InputError(f"--out is for a new index, whose first argument is a model; {what} is none.")
    _refuse("an index", made_new, "that is for a new one")
    if plain:
        _refuse("--plain", {"--whiten": whiten, "--augment": augment or None}, "it takes both away")
    with Index.open(what, allow_code=trust.sources) as opened:
        if export is not None:
            prepare_export(export)
        if export_map is not None:
            prepare_map(export_map)
        facts: dict[str, Any] = {}
        if rollback:
            opened.rollback()
        if model is not None:
            facts |= _said(console, opened, opened.reembed(model, data, progress=progress), skip_bad)
        elif data is not None:
            facts |= _said(console, opened, opened.refresh(data, progress=progress), skip_bad)
        if remove is not None:
            gone = opened.remove(remove)
            facts["removed"] = facts.get("removed", 0) + gone
            console.print(f"{counted(gone, 'item')} removed")
        if compact:
            facts["given_back"] = opened.compact()
            console.print(f"{counted(facts['given_back'], 'row')} given back")
        if whiten is not None or augment:
            _improve(opened, whiten, augment)
        elif plain:
            opened.improve()
        _keep_map(console, opened, wanted=keep_map, progress=progress)
        if export is not None:
            facts["exported"] = opened.export(export)
            console.print(f"{export}: {counted(facts['exported'], 'item')}")
        if export_map is not None:
            from vicinal.index.map import export_map as write_map

            facts["mapped"] = write_map(opened, export_map)
            console.print(f"{export_map}: {counted(facts['mapped'], 'item')}")
        if prepare_fast:
            facts["recall"] = opened.prepare_fast(half=half)
            console.print(f"--fast is prepared, recall {facts['recall']:.4f}")
        elif half:
            raise InputError("--half says how --prepare-fast is done; give both.")
        if measure:
            measured = opened.measure()
            facts["measured"] = asdict(measured)
            if not as_json:
                print(measured)
        if verify:
            facts["problems"] = _verified(opened, console)
        elif not measure and export is None and export_map is None:
            console.print(str(opened))
        _end(opened, facts, as_json, skip_bad)
        if facts.get("problems"):
            sys.exit(1)


def _refuse(what: str, flags: Mapping[str, object], instead: str) -> None:
    """Refuse what would be passed over in silence otherwise."""
    given = [flag for flag, value in flags.items() if value not in (None, False, "")]
    if given:
        raise InputError(f"{', '.join(given)} cannot go with {what}: {instead}.")


def _said(console: Console, opened: Index, changes: Changes, skip_bad: bool) -> dict[str, Any]:
    """Say what was done to an index, and return it for JSON."""
    if skip_bad:  # the error names them otherwise
        for name, reason in changes.skipped:
            console.print(f"skipped {_named_once(name, reason)}")
    console.print(f"{opened}: {changes}")
    return asdict(changes) | {"skipped": [{"item": name, "reason": reason} for name, reason in changes.skipped]}


def _named_once(name: str, reason: str) -> str:
    return f"{name}: {reason.removeprefix(f'{name} ')}"


def _end(opened: Index, facts: Mapping[str, Any], as_json: bool, skip_bad: bool) -> None:
    """Print what was done where JSON is asked for; raise where something was skipped that should not be."""
    if as_json:
        about = {"index": str(opened.path), "items": len(opened), "dim": opened.dim, "distance": opened.distance}
        about["numbers"] = opened.numbers
        print_json({**about, **facts})
    if facts.get("skipped") and not skip_bad:
        raise DataError(
            f"{counted(len(facts['skipped']), 'item')} cannot be read; the others are in {opened.path}.",
            [_named_once(each["item"], each["reason"]) for each in facts["skipped"]],
            "Mend them and give the same command again, or leave them out with --skip-bad.",
        )


def _keep_map(console: Console, opened: Index, *, wanted: bool, progress: bool) -> None:
    if wanted:
        from vicinal.index.map import keep_map

        layout = keep_map(opened, progress=progress)
        console.print(f"the map of {counted(len(layout.places), 'item')} is kept, by {layout.method}")


def _improve(opened: Index, whiten: Path | None, augment: int) -> None:
    from vicinal.index.exchange import read_vectors

    learned_from = None if whiten is None else read_vectors(whiten)
    if learned_from is None:
        opened.improve(augment=augment)
    else:
        opened.improve(whiten=learned_from.vectors, augment=augment, embedder=learned_from.embedder or None)


def _verified(opened: Index, console: Console) -> list[str]:
    """Say what is not as it was written, and return it."""
    problems = opened.verify()
    for problem in problems:
        console.print(problem)
    if problems:
        console.print(
            f"{counted(len(problems), 'problem')}. Restore the folder from a copy, go back with --rollback, or build "
            "the index again."
        )
    else:
        console.print(f"{opened}: every byte is as it was written")
    return problems
