"""`vicinal audit-claims [TABLE]`: which comparisons of papers are fair, and what is left of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vicinal.errors import InputError

__all__ = ["audit_claims"]


def audit_claims(
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TABLE]",
            help="A CSV file of published results: method, dataset, value, and paper, score, backbone, dim, pooling, "
            "image_size, proposed (yes) where they are known. Without it: the cases that the thesis 'Metric learning: "
            "a deep dive' (2020) calls unfair.",
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Ask all published numbers that come with vicinal instead of a table.")
    ] = False,
    dataset: Annotated[str | None, typer.Option(help="Of this dataset only.")] = None,
    score: Annotated[str, typer.Option(help="Of published numbers: which of them.")] = "R@1",
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Say which comparisons are unfair, and how much of a difference goes away where settings are the same."""
    from dataclasses import replace

    from vicinal.results import paper_claims
    from vicinal.results.literature import published as published_numbers
    from vicinal.results.published_parts import validated_parts

    if published and table is not None:
        raise InputError("Give a table, or --published: not both.")
    if used is not None and (not published or method is not None):
        raise InputError("--with says what is compared: it goes with --published, and without --method.")
    numbers = published_numbers(dataset) if published else []
    asked = [row for row in numbers if row.score == score]
    parts = [folds for folds in validated_parts(numbers) if folds.score == score and used is method is None]
    if used is not None:
        claims = paper_claims.with_and_without(asked, used)
    else:
        given = paper_claims.thesis_cases() if table is None else paper_claims.read_results(table)
        results = paper_claims.as_results(asked) if published else given
        results = [result for result in results if dataset in (None, result.dataset)]
        if method is not None:
            results = [replace(result, proposed=result.method == method) for result in results]
            if not any(result.proposed for result in results):
                raise InputError(f"No result is of {method!r}: see the column method.")
        claims = paper_claims.audit_claims(results)
    if not claims and not parts:
        raise InputError("There is nothing to audit: no result is of this dataset and score.")
    if as_json:
        records = [claim.as_dict() for claim in claims] + [folds.as_dict() for folds in parts]
        typer.echo(json.dumps(records, indent=2))
        return
    typer.echo("\n\n".join(map(str, [*claims, *parts])))
    unfair = [claim for claim in claims if claim.fair is False]
    told = [claim.explained for claim in unfair if claim.explained is not None]
    typer.echo(f"\n{len(unfair)} of {len(claims)} comparisons are unfair.", nl=not told)
    if told:
        more = [claim for claim in unfair if claim.explained is None and claim.measured]
        said = (
            f" Of {len(told)} of them the same setting is known: on average {100 * sum(told) / len(told):.0f} % of the "
        )
        said += "difference goes away."
        if more:
            said += f" Of {len(more)} more it is known what the setting does, but not how much was claimed."
        typer.echo(said)
