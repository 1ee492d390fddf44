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
            metavar="[TABLE]",
            help="A CSV file of published results: method, dataset, value, and paper, score, backbone, dim, pooling, "
            "image_size, protocol, proposed (yes) where they are known. Values are per cent, or shares where none of a "
            "paper's is above 1; steps are counts. Without it: the cases that the thesis 'Metric learning: "
            "a deep dive' (2020) calls unfair.",
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Ask all published numbers that come with vicinal instead of a table.")
    ] = False,
    dataset: Annotated[str | None, typer.Option(help="Of this dataset only.")] = None,
    score: Annotated[
        str | None, typer.Option(help="Of this score only; by default R@1 of published numbers, all of a table.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="What is proposed; by default what the table marks, or its best.")
    ] = None,
    used: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="ADDITION",
            help="Of published numbers: each method that uses this (ccp, memory, hierarchy, a miner) against the same "
            "loss without it.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say which comparisons are unfair, and how much of a difference goes away where settings are the same."""
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
        raise InputError(f"Give a table, or --published: not both; got {table} and --published.")
    if used is not None and (not published or method is not None):
        raise InputError("--with says what is compared: it goes with --published, and without --method.")
    parts = []
    if published:
        numbers = _only(published_numbers(), "dataset", dataset)
        requested = _only(numbers, "score", score or "R@1")
        if used is not None:
            look_up("addition", used, dict.fromkeys(name for row in requested for name in row.method.split(" + ")[1:]))
            claims = with_and_without(requested, used)
        else:
            claims = audited(as_results(requested) if method is None else of_method(as_results(requested), method))
            scores = {row.score for row in requested}
            parts = [part for part in validated_parts(numbers) if part.score in scores and method is None]
    else:
        results = thesis_cases() if table is None else read_results(table)
        if table is not None:
            say_notes(f"No published number can be set beside it. {unknown}" for unknown in unknown_names(results))
        results = _only(_only(results, "dataset", dataset), "score", score)
        claims = audited(results if method is None else of_method(results, method))
    if not claims and not parts:
        raise InputError("There is nothing to audit: a comparison takes two methods with one dataset and score.")
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
