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
from vicinal.cli.options import AllowCode, Quiet, VerbCommand, in_panels
from vicinal.cli.output import print_json
from vicinal.errors import DataError, InputError

if TYPE_CHECKING:
    from vicinal.index import Changes, Index

__all__ = ["index"]

FILL, SEARCH, EXCHANGE, CARE = "Build and fill", "Search better or faster", "Exchange", "Look after"

DATA = "Folder of images or of class folders, list of paths (.txt), table with a column path, or name of a known set."

IndexFolder = Annotated[Path, typer.Argument(help="Folder of the index.")]
Data = Annotated[str, typer.Argument(help=DATA)]
Store = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Server that keeps items and vectors of a new index, such as postgresql://user@host/database or "
        "milvus://host:19530.",
        show_default="the folder of the index",
        rich_help_panel="Results",
    ),
]
Map = Annotated[
    bool,
    typer.Option(
        "--map",
        help="Compute the map of the search page now, so that its first visitor need not wait.",
        rich_help_panel="Results",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(help="Leave out images that cannot be read, and list them. --no-skip-bad: add all others, then fail."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Progress = Annotated[bool, typer.Option(help="Show a progress bar.")]


class Commands(TyperGroup):
    """The commands of `vicinal index`; `vicinal index MODEL DATA --out FOLDER` is short for `build`."""

    def get_params(self, ctx: Any) -> Any:
        """Return the options that may precede a command."""
        return in_panels(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Treat arguments that name no command but contain `--out` as those of `build`."""
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
                f"vicinal index has no command {name!r}. For an existing index, name a command first (vicinal index "
                f"info {name}); to build one, give --out FOLDER."
            )
        return super().resolve_command(ctx, args)


index = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Put images and their embeddings into a folder that can be searched; bring it up to date, look after it.\n\n"
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
    model: Annotated[Path, typer.Argument(help="Folder of a model, a run or a comparison.")],
    data: Annotated[
        str | None, typer.Argument(help=f"{DATA} Without it, an existing index is given its model or calibration.")
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
    """Embed data and make an index of it; the same command again adds what is new or changed and removes what is gone.

    vicinal index build runs/which/best photos/ --out birds.index
    """
    from vicinal.index import Index
    from vicinal.index.folder import is_index

    if is_index(model):
        again = f"vicinal index refresh {model} {data or 'DATA'}"
        raise InputError(f"{model} is an index, not a model. To bring it up to date: {again}.")
    if data is None and not is_index(out):
        raise InputError(f"There is no index {out} yet; give its data, too: vicinal index {model} DATA --out {out}.")
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
    """Embed what is new or changed in the data, and remove what is no longer in it.

    vicinal index refresh birds.index photos/
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
    """Embed data and add it; nothing is removed.

    vicinal index add birds.index more_photos/
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

    vicinal index remove birds.index "label = 'wren'"
    """
    with _opened(index, as_json) as (opened, report):
        report.facts["removed"] = opened.remove(where)
        report.say(f"{opened}: {counted(report.facts['removed'], 'item')} removed")


def reembed(
    index: IndexFolder,
    model: Annotated[Path, typer.Argument(help="Folder of the other model, of a run or of a comparison.")],
    data: Annotated[str | None, typer.Argument(help="Data that the items came from, if they are not files.")] = None,
    keep_map: Map = False,
    skip_bad: SkipBad = True,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Embed all items again with another model; the index serves as it is until that is done.

    vicinal index reembed birds.index runs/better/best
    """
    from vicinal.index import Index

    with Index.open(index, allow_code=allow_code or ()) as opened:
        changes = opened.reembed(model, data, progress=progress)
        _finish_changes(opened, Report(as_json), changes, keep_map, skip_bad, progress)


def import_file(
    index: Annotated[Path, typer.Argument(help="Folder of the index: a new one, or one that gets more items.")],
    file: Annotated[Path, typer.Argument(help="File of vectors: .parquet, .npz or .npy.")],
    model: Annotated[
        Path | None, typer.Option(help="Model that made the vectors; the index then embeds queries by itself.")
    ] = None,
    distance: Annotated[
        Literal["cosine", "euclidean"] | None,
        typer.Option(
            help="Distance by which a new index compares vectors.", show_default="that of the file, or cosine"
        ),
    ] = None,
    store: Store = "",
    as_json: AsJson = False,
    allow_code: AllowCode = None,
    quiet: Quiet = False,
) -> None:
    """Make an index of vectors from a file, or add them to an index.

    vicinal index import birds.index vectors.parquet
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

    vicinal index export birds.index birds.parquet
    """
    with _opened(index, as_json) as (opened, report):
        report.facts["exported"] = opened.export(file)
        report.say(f"{file}: {counted(report.facts['exported'], 'item')}")


def make_map(
    index: IndexFolder,
    out: Annotated[
        Path | None,
        typer.Option(help="Write path, label, position on the map and neighbours of every item to a .parquet file."),
    ] = None,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
) -> None:
    """Compute the map of the search page and keep it in the index, or write it to a file.

    vicinal index map birds.index --out map.parquet
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
        Path | None, typer.Option(help="File of vectors of training classes, from which a whitening is learned.")
    ] = None,
    augment: Annotated[int, typer.Option(min=0, help="Number of neighbours that each item is drawn towards.")] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Whiten or augment the vectors in every search from now on; `plain` undoes it.

    vicinal index improve birds.index --whiten train.npz --augment 5
    """
    from vicinal.index.exchange import read_vectors

    if whiten is None and not augment:
        raise InputError(f"Give --whiten, --augment or both; to undo them: vicinal index plain {index}.")
    with _opened(index, as_json) as (opened, report):
        learned_from = None if whiten is None else read_vectors(whiten)
        if learned_from is None:
            opened.improve(augment=augment)
        else:
            opened.improve(whiten=learned_from.vectors, augment=augment, embedder=learned_from.embedder or None)
        report.say(opened)


def plain(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Search the vectors as they are again, neither whitened nor augmented.

    vicinal index plain birds.index
    """
    with _opened(index, as_json) as (opened, report):
        opened.improve()
        report.say(opened)


def prepare_fast(
    index: IndexFolder,
    half: Annotated[bool, typer.Option("--half", help="Use half precision, at half the size (PostgreSQL).")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Have the server of an index prepare its vectors for `vicinal search --fast`.

    vicinal index prepare-fast birds.index
    """
    with _opened(index, as_json) as (opened, report):
        report.facts["recall"] = opened.prepare_fast(half=half)
        report.say(f"--fast is prepared, recall {report.facts['recall']:.4f}")


def measure(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Time exact and fast search, with recall, memory and size on disk.

    vicinal index measure birds.index
    """
    with _opened(index, as_json) as (opened, report):
        measured = opened.measure()
        report.facts["measured"] = asdict(measured)
        if not as_json:
            print(measured)


def info(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Print the number of items, their dimension and distance, and the embedder.

    vicinal index info birds.index
    """
    with _opened(index, as_json) as (opened, report):
        report.facts |= {"embedder": opened.embedder_hash, "improved": str(opened.improvement or "")}
        report.facts["columns"] = opened.columns
        if not as_json:
            print(opened)


def verify(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Check every byte, and list what is not as it was written; the exit code is 1 if there is anything.

    vicinal index verify birds.index
    """
    with _opened(index, as_json) as (opened, report):
        problems = report.facts["problems"] = opened.verify()
        for problem in problems:
            report.say(problem)
        if problems:
            report.say(
                f"{counted(len(problems), 'problem')}. Restore the folder from a copy, go back with vicinal index "
                f"rollback {index}, or build the index again."
            )
        else:
            report.say(f"{opened}: every byte is as it was written")
    if problems:
        sys.exit(1)


def compact(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Free the space of removed and replaced items.

    vicinal index compact birds.index
    """
    with _opened(index, as_json) as (opened, report):
        report.facts["given_back"] = opened.compact()
        report.say(f"{opened}: {counted(report.facts['given_back'], 'row')} given back")


def rollback(index: IndexFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Go back to the index as it was before the last `reembed` or `compact`.

    vicinal index rollback birds.index
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
            f"{counted(len(changes.skipped), 'item')} cannot be read; the others are in {opened.path}.",
            [_named_once(name, reason) for name, reason in changes.skipped],
            "Fix them and run the same command again, or leave them out with --skip-bad.",
        )


def _named_once(name: str, reason: str) -> str:
    return f"{name}: {reason.removeprefix(f'{name} ')}"


def _keep_map(opened: Index, report: Report, progress: bool) -> None:
    from vicinal.index.map import keep_map

    layout = keep_map(opened, progress=progress)
    report.say(f"the map of {counted(len(layout.places), 'item')} is kept, by {layout.method}")
