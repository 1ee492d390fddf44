"""`vicinal audit-claims [TABLE]`: which comparisons in papers are fair, and what remains of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from vicinal.cli.options import AsJson, Quiet
from vicinal.cli.output import say_notes
from vicinal.errors import InputError, look_up

__all__ = ["audit_claims"]

Row = TypeVar("Row")  # a published number, or a result


def audit_claims(
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="TABLE",
            help="CSV file of published results, with columns method, dataset, value and, if known, paper, score, "
            "backbone, dim, pooling, image_size, protocol and proposed (yes). Without it: the cases criticised in the "
            "thesis 'Metric learning: a deep dive' (2020).",
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Audit the published numbers that come with vicinal.")
    ] = False,
    dataset: Annotated[str | None, typer.Option(help="Audit only this dataset.")] = None,
    score: Annotated[
        str | None, typer.Option(help="Audit only this score.", show_default="R@1 with --published, else all")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Proposed method.", show_default="marked in the table, else the best")
    ] = None,
    used: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="ADDITION",
            help="With --published: compare losses with and without this addition (ccp, memory, hierarchy, a miner).",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find unfair comparisons in papers, and estimate what remains of a gain under equal settings."""
    from vicinal.literature.claims import (
        as_results,
        of_method,
        read_results,
        summary,
        thesis_cases,
        unknown_names,
        with_and_without,
    )
    from vicinal.literature.claims import audit_claims as audited
    from vicinal.literature.tables import published as published_numbers
    from vicinal.literature.validation import validated_parts

    if published and table is not None:
        raise InputError(f"Give a table or --published, not both; got {table} and --published.")
    if used is not None and (not published or method is not None):
        raise InputError("--with needs --published and cannot be combined with --method.")
    parts = []
    if published:
        numbers = _only(published_numbers(), "dataset", dataset)
        requested = _only(numbers, "score", score or "R@1")
        if used is not None:
            look_up("addition", used, dict.fromkeys(name for row in requested for name in row.method.split("+")[1:]))
            claims = with_and_without(requested, used)
        else:
            claims = audited(as_results(requested) if method is None else of_method(as_results(requested), method))
            scores = {row.score for row in requested}
            parts = [part for part in validated_parts(numbers) if part.score in scores and method is None]
    else:
        results = thesis_cases() if table is None else read_results(table)
        if table is not None:
            say_notes(f"No published number to compare with. {unknown}" for unknown in unknown_names(results))
        results = _only(_only(results, "dataset", dataset), "score", score)
        claims = audited(results if method is None else of_method(results, method))
    if not claims and not parts:
        raise InputError("Nothing to audit: this needs two methods with the same dataset and score.")
    if as_json:
        records = [claim.as_dict() for claim in claims] + [part.as_dict() for part in parts]
        typer.echo(json.dumps(records, indent=2))
        return
    typer.echo("\n\n".join(map(str, [*claims, *parts])))
    typer.echo(f"\n{summary(claims)}")


def _only(rows: list[Row], kind: Literal["dataset", "score"], name: str | None) -> list[Row]:
    """Return the rows of a dataset or score, all of them for None."""
    from vicinal.literature.tables import spelled

    if name is None:
        return rows
    wanted = spelled(kind, name)
    look_up(kind, wanted, dict.fromkeys(getattr(row, kind) for row in rows))
    return [row for row in rows if getattr(row, kind) == wanted]
