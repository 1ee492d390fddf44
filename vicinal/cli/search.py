"""`vicinal search`: find the items of an index that are nearest to an image, an item or a vector."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from vicinal.cli.inputs import SKIP_BAD, query_images
from vicinal.cli.options import AllowCode, Quiet
from vicinal.cli.output import say_notes
from vicinal.errors import InputError

if TYPE_CHECKING:
    from vicinal.index import Hits, Index

__all__ = ["search"]


def search(
    index: Annotated[Path, typer.Argument(help="Folder of the index.")],
    query: Annotated[Path | None, typer.Argument(help="Image, or folder of images.")] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Number of results.")] = 10,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Filter, such as \"label = 'wren' and year > 2020\"."),
    ] = None,
    item: Annotated[
        str | None, typer.Option(metavar="ID", help="Search with an item of the index, by id or path.")
    ] = None,
    vector: Annotated[
        Path | None, typer.Option(help="Search with vectors of a .npy, .npz or .parquet file.", metavar="FILE")
    ] = None,
    expand: Annotated[
        int, typer.Option(min=0, help="Query expansion: average each query with its N nearest items.")
    ] = 0,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Re-rank by shared neighbours; slow the first time.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Approximate search; reports its recall.")] = False,
    skip_bad: Annotated[bool, SKIP_BAD] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one line per query.")] = False,
    sheet: Annotated[Path | None, typer.Option(help="Draw queries and results to this .png or .jpg file.")] = None,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Find the nearest items to an image, an item of the index, or a vector."""
    from vicinal.cli.output import prepare_picture, save_picture
    from vicinal.index import Index
    from vicinal.index.hits import draw_hits
    from vicinal.neighbours import Reranking

    if sum(given is not None for given in (query, item, vector)) != 1:
        raise InputError("Give exactly one query: an image, a folder of images, --item or --vector.")
    prepare_picture(sheet, "--sheet")
    with Index.open(index, allow_code=allow_code or ()) as opened:
        how = {"k": k, "where": where, "fast": fast, "expand": expand, "rerank": Reranking() if rerank else None}
        pictures, answers = _answers(opened, query, item, vector, how, skip_bad)
        numbers, items, rule = opened.numbers, len(opened), opened.calibration
    for (name, _), hits in zip(pictures, answers, strict=True):
        if json:
            how_found = {
                "exact": hits.exact,
                "recall": hits.recall,
                "improved": hits.improved,
                "expanded": hits.expanded,
                "reranked": hits.reranked,
                "numbers": numbers,
                "threshold": None if rule is None else rule.threshold,
            }
            print(json_module.dumps({"query": name, **how_found, "hits": [hit.as_dict() for hit in hits]}))
        else:
            _show(name, hits, numbers)
    if not json:
        say_notes([f"{index} has no similarity threshold; run vicinal calibrate." if rule is None else str(rule)])
    if not items:
        say_notes([f"{index} is empty. To add items: vicinal index refresh {index} DATA"])
    if sheet is not None:
        save_picture(draw_hits(pictures, answers), sheet)


def _answers(
    opened: Index, query: Path | None, item: str | None, vector: Path | None, how: dict[str, Any], skip_bad: bool
) -> tuple[list[tuple[str, Any]], list[Hits]]:
    """Return the queries, each with a caption and an image, and their hits."""
    from vicinal.index.exchange import read_vectors

    if item is not None:
        key = int(item) if opened.columns["id"] == "integer" and item.lstrip("-").isdecimal() else item
        hits = opened.search(item=key, **how)
        return [(item, item if Path(item).is_file() else None)], [hits]
    if vector is not None:
        contents = read_vectors(vector)
        names = [f"{vector}[{row}]" for row in range(len(contents.vectors))]
        answers = opened.search(vector=contents.vectors, embedder=contents.embedder or None, **how)
        return [(name, None) for name in names], _several(answers)
    assert query is not None
    paths, embedded = query_images(opened, query, skip_bad)
    return [(path, path) for path in paths], _several(opened.search(**embedded, **how))


def _several(answers: Hits | list[Hits]) -> list[Hits]:
    return answers if isinstance(answers, list) else [answers]


def _show(name: str, hits: Hits, numbers: str) -> None:
    among = "" if numbers == "float32" else f", vectors stored as {numbers}"
    Console(stderr=True, soft_wrap=True, markup=False, highlight=False).print(
        f"{name}: {len(hits)} results, {hits.how}{among}"
    )
    for rank, hit in enumerate(hits, start=1):
        label = "" if hit.label is None else str(hit.label)
        extra = "  ".join(f"{key}={value}" for key, value in hit.metadata.items())
        # An item without a label has an empty field, so that columns stay aligned.
        same = [] if hit.same is None else ["same" if hit.same else "different"]
        columns = [str(rank), f"{hit.similarity:.6f}", label, str(hit.id), *same, *([extra] if extra else [])]
        print("\t".join(columns))
