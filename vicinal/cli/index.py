"""`vicinal index`: commands to build, update, improve, exchange and maintain an index."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from typer.core import TyperGroup

from vicinal._util.text import counted
from vicinal.cli.options import AllowCode, Quiet, VerbCommand, write_help
from vicinal.cli.output import print_json
from vicinal.errors import DataError, InputError

if TYPE_CHECKING:
    from vicinal.index import Changes, Index

__all__ = ["index"]

FILL, SEARCH, EXCHANGE, CARE = "Build and update", "Improve search", "Import and export", "Maintain"

DATA = "Folder of images, list of paths (.txt), table with a path column, or dataset name."

IndexFolder = Annotated[Path, typer.Argument(help="Folder of the index.")]
Data = Annotated[str, typer.Argument(help=DATA)]
Store = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Database for a new index: postgresql://user@host/database or milvus://host:19530.",
        show_default="the index folder",
    ),
]
Map = Annotated[
    bool,
    typer.Option(
        "--map",
        help="Also compute the map of the search page.",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(help="Fail if images cannot be read; the others are still added."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Progress = Annotated[bool, typer.Option(help="Hide progress.")]


class Commands(TyperGroup):
    """The commands of `vicinal index`; `vicinal index MODEL DATA --out FOLDER` is short for `build`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        write_help(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Treat arguments that name no command but contain `--out` as those of `build`; print the help for none."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            ctx.exit(2)
        if args and args[0] not in self.commands and any(word.partition("=")[0] == "--out" for word in args):
            args = ["build", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command, or fail with one sentence if there is none of that name."""
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            if similar := get_close_matches(name, self.commands, n=1):
                ctx.fail(f"vicinal index has no command {name!r}; did you mean {similar[0]!r}?")
            ctx.fail(
                f"vicinal index has no command {name!r}. To use an existing index, put a command first (vicinal index "
                f"info {name}); to build one, add --out FOLDER."
            )
        return super().resolve_command(ctx, args)


index = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Build, update and maintain a search index of images and their embeddings.\n\n"
    "vicinal index MODEL DATA --out FOLDER is short for vicinal index build.",
)


@dataclass
class Report:
    """Output of a command: sentences on standard error, or JSON.

    Attributes:
        as_json: Whether to print JSON.
        facts: Fields of the JSON object, in addition to those that describe the index.
    """

    as_json: bool
    facts: dict[str, Any] = field(default_factory=dict)

    def say(self, text: object) -> None:
        """Print a line to standard error, unless JSON is requested."""
        Console(stderr=True, soft_wrap=True, markup=False, highlight=False, quiet=self.as_json).print(str(text))

    def changes(self, opened: Index, changes: Changes, skip_bad: bool) -> None:
        """Report what was changed."""
        if skip_bad:  # otherwise the error lists them
            for name, reason in changes.skipped:
                self.say(f"skipped {_named_once(name, reason)}")
        self.say(f"{opened}: {changes}")
        skipped = [{"item": name, "reason": reason} for name, reason in changes.skipped]
        self.facts |= asdict(changes) | {"skipped": skipped}

    def finish(self, opened: Index) -> None:
        """Print the JSON object, if requested."""
        if self.as_json:
            about = {"index": str(opened.path), "items": len(opened), "dim": opened.dim, "distance": opened.distance}
            print_json({**about, "numbers": opened.numbers, **self.facts})


@contextmanager
def _opened(path: Path, as_json: bool) -> Iterator[tuple[Index, Report]]:
    """Open an index for a command, and print its JSON object at the end."""
    from vicinal.index import Index

    report = Report(as_json)
    with Index.open(path) as opened:
        yield opened, report
        report.finish(opened)


def build(
    model: Annotated[Path, typer.Argument(help="Folder of a model, run or comparison.")],
    data: Annotated[
        str | None, typer.Argument(help=f"{DATA} Without it, only the model and its calibration are updated.")
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="Folder of the index.")],
    store: Store = "",
    keep_map: Map = False,
    skip_bad: SkipBad = True,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Build an index of a dataset, or update it.

    For an existing index, it adds new and changed items and removes deleted ones.

    Example: vicinal index build runs/which/best photos/ --out birds.index
    """
    from vicinal.index import Index
    from vicinal.index.folder import is_index

    if is_index(model):
        again = f"vicinal index refresh {model} {data or 'DATA'}"
        raise InputError(f"{model} is an index, not a model. To update it: {again}")
    if data is None and not is_index(out):
        raise InputError(f"The index {out} does not exist yet. To build it: vicinal index {model} DATA --out {out}")
    report = Report(as_json)
    with Index.build(out, model, data, store=store, progress=progress, allow_code=allow_code or ()) as built:
        _finish_changes(built, report, built.changes, keep_map, skip_bad, progress)


def refresh(
    index: IndexFolder,
    data: Data,
    keep_map: Map = False,
    skip_bad: SkipBad = True,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Add new and changed items of a dataset, and remove deleted ones.

    Example: vicinal index refresh birds.index photos/
    """
    from vicinal.index import Index

    with Index.open(index, allow_code=allow_code or ()) as opened:
        changes = opened.refresh(data, progress=progress)
        _finish_changes(opened, Report(as_json), changes, keep_map, skip_bad, progress)


def add(
    index: IndexFolder,
    data: Data,
    keep_map: Map = False,
    skip_bad: SkipBad = True,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Add items; nothing is removed.

    Example: vicinal index add birds.index more_photos/
    """
    from vicinal.index import Index

    with Index.open(index, allow_code=allow_code or ()) as opened:
        changes = opened.add(data, progress=progress)
        _finish_changes(opened, Report(as_json), changes, keep_map, skip_bad, progress)


def remove(
    index: IndexFolder,
    where: Annotated[str, typer.Argument(metavar="FILTER", help="Filter, such as \"label = 'wren' and year < 2020\".")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Remove the items that pass a filter.

    Example: vicinal index remove birds.index "label = 'wren'"
    """
    with _opened(index, as_json) as (opened, report):
        report.facts["removed"] = opened.remove(where)
        report.say(f"{opened}: {counted(report.facts['removed'], 'item')} removed")


def reembed(
    index: IndexFolder,
    model: Annotated[Path, typer.Argument(help="Folder of the new model, run or comparison.")],
    data: Annotated[str | None, typer.Argument(help="Original dataset, if the items are not files.")] = None,
    keep_map: Map = False,
    skip_bad: SkipBad = True,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Recompute all embeddings with another model.

    The index stays usable meanwhile.

    Example: vicinal index reembed birds.index runs/better/best
    """
    from vicinal.index import Index

    with Index.open(index, allow_code=allow_code or ()) as opened:
        changes = opened.reembed(model, data, progress=progress)
        _finish_changes(opened, Report(as_json), changes, keep_map, skip_bad, progress)


def import_file(
    index: Annotated[Path, typer.Argument(help="Folder of the index, new or existing.")],
    file: Annotated[Path, typer.Argument(help="File of vectors: .parquet, .npz or .npy.")],
    model: Annotated[Path | None, typer.Option(help="Model that computed the vectors, to embed queries.")] = None,
    distance: Annotated[
        Literal["cosine", "euclidean"] | None,
        typer.Option(help="Distance between vectors.", show_default="from the file, else cosine"),
    ] = None,
    store: Store = "",
    as_json: AsJson = False,
    allow_code: AllowCode = None,
    quiet: Quiet = False,
) -> None:
    """Create an index from a file of vectors, or add them to an index.

    Example: vicinal index import birds.index vectors.parquet
    """
    from vicinal.index import Index

    report = Report(as_json)
    with Index.import_file(
        index, file, embedder=model, distance=distance, store=store, allow_code=allow_code or ()
    ) as opened:
        report.changes(opened, opened.changes, skip_bad=True)
        report.finish(opened)


def export(
    index: IndexFolder,
    file: Annotated[Path, typer.Argument(help="File to write: .parquet, .npz or .faiss.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write items and vectors to a file.

    Example: vicinal index export birds.index birds.parquet
    """
    with _opened(index, as_json) as (opened, report):
        report.facts["exported"] = opened.export(file)
        report.say(f"{file}: {counted(report.facts['exported'], 'item')}")


def make_map(
    index: IndexFolder,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the map to this .parquet file instead: path, label, position, neighbours."),
    ] = None,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
) -> None:
    """Compute the map of the search page, or write it to a file.

    Example: vicinal index map birds.index --out map.parquet
    """
    with _opened(index, as_json) as (opened, report):
        if out is None:
            _keep_map(opened, report, progress)
            return
        from vicinal.index.map import export_map

        report.facts["mapped"] = export_map(opened, out)
        report.say(f"{out}: {counted(report.facts['mapped'], 'item')}")


def improve(
    index: IndexFolder,
    whiten: Annotated[
        Path | None, typer.Option(help="Whiten, with statistics of the vectors in this file (of training classes).")
    ] = None,
    augment: Annotated[int, typer.Option(min=0, help="Average each item with N neighbours.")] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Whiten or augment vectors in later searches.

    `vicinal index plain` undoes it.

    Example: vicinal index improve birds.index --whiten train.npz --augment 5
    """
    from vicinal.index.exchange import read_vectors

    if whiten is None and not augment:
        raise InputError(f"Give --whiten, --augment or both. To undo them: vicinal index plain {index}")
    with _opened(index, as_json) as (opened, report):
        learned_from = None if whiten is None else read_vectors(whiten)
        if learned_from is None:
            opened.improve(augment=augment)
        else:
            opened.improve(whiten=learned_from.vectors, augment=augment, embedder=learned_from.embedder or None)
        report.say(opened)


def plain(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Undo `improve`: search the original vectors.

    Example: vicinal index plain birds.index
    """
    with _opened(index, as_json) as (opened, report):
        opened.improve()
        report.say(opened)


def prepare_fast(
    index: IndexFolder,
    half: Annotated[bool, typer.Option("--half", help="Use half precision (PostgreSQL).")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Prepare a database for `vicinal search --fast`.

    Example: vicinal index prepare-fast birds.index
    """
    with _opened(index, as_json) as (opened, report):
        report.facts["recall"] = opened.prepare_fast(half=half)
        report.say(f"--fast is ready, with recall {report.facts['recall']:.4f}")


def measure(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Measure search time, recall, memory and disk size.

    Example: vicinal index measure birds.index
    """
    with _opened(index, as_json) as (opened, report):
        measured = opened.measure()
        report.facts["measured"] = asdict(measured)
        if not as_json:
            print(measured)


def info(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Print the number of items, dimension, distance and model.

    Example: vicinal index info birds.index
    """
    with _opened(index, as_json) as (opened, report):
        report.facts |= {"embedder": opened.embedder_hash, "improved": str(opened.improvement or "")}
        report.facts["columns"] = opened.columns
        if not as_json:
            print(opened)


def verify(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Verify checksums; list corrupted items.

    The exit code is 1 if there are any.

    Example: vicinal index verify birds.index
    """
    with _opened(index, as_json) as (opened, report):
        problems = report.facts["problems"] = opened.verify()
        for problem in problems:
            report.say(problem)
        if problems:
            report.say(
                f"{counted(len(problems), 'problem')} found. Restore the folder from a backup, rebuild the index, or "
                f"undo the last change: vicinal index rollback {index}"
            )
        else:
            report.say(f"{opened}: no corruption found")
    if problems:
        sys.exit(1)


def compact(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Free the space of removed and replaced items.

    Example: vicinal index compact birds.index
    """
    with _opened(index, as_json) as (opened, report):
        report.facts["freed"] = opened.compact()
        report.say(f"{opened}: {counted(report.facts['freed'], 'row')} freed")


def rollback(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Undo the last `reembed` or `compact`.

    Example: vicinal index rollback birds.index
    """
    with _opened(index, as_json) as (opened, report):
        opened.rollback()
        report.say(opened)


for _name, _command, _panel in (
    ("build", build, FILL),
    ("refresh", refresh, FILL),
    ("add", add, FILL),
    ("remove", remove, FILL),
    ("reembed", reembed, FILL),
    ("improve", improve, SEARCH),
    ("plain", plain, SEARCH),
    ("prepare-fast", prepare_fast, SEARCH),
    ("measure", measure, SEARCH),
    ("import", import_file, EXCHANGE),
    ("export", export, EXCHANGE),
    ("map", make_map, EXCHANGE),
    ("info", info, CARE),
    ("verify", verify, CARE),
    ("compact", compact, CARE),
    ("rollback", rollback, CARE),
):
    index.command(_name, cls=VerbCommand, rich_help_panel=_panel)(_command)


def _finish_changes(
    opened: Index, report: Report, changes: Changes, keep_map: bool, skip_bad: bool, progress: bool
) -> None:
    """Report changes; fail if items were skipped without --skip-bad."""
    report.changes(opened, changes, skip_bad)
    if keep_map:
        _keep_map(opened, report, progress)
    report.finish(opened)
    if changes.skipped and not skip_bad:
        raise DataError(
            f"{counted(len(changes.skipped), 'item')} could not be read; the others were added to {opened.path}.",
            [_named_once(name, reason) for name, reason in changes.skipped],
            "Fix them and run the same command again, or skip them with --skip-bad.",
        )


def _named_once(name: str, reason: str) -> str:
    return f"{name}: {reason.removeprefix(f'{name} ')}"


def _keep_map(opened: Index, report: Report, progress: bool) -> None:
    from vicinal.index.map import keep_map

    layout = keep_map(opened, progress=progress)
    report.say(f"map of {counted(len(layout.positions), 'item')} saved ({layout.method})")
