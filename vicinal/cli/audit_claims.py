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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Say which comparisons are unfair, and how much of a difference goes away where settings are the same."""
    from dataclasses import replace

    from vicinal.results import paper_claims
    from vicinal.results.literature import published as published_numbers

    if published and table is not None:
        raise InputError("Give a table, or --published: not both.")
    if published:
        results = paper_claims.as_results(published_numbers(score=score))
    else:
        results = paper_claims.thesis_cases() if table is None else paper_claims.read_results(table)
    results = [result for result in results if dataset in (None, result.dataset)]
    if method is not None:
        results = [replace(result, proposed=result.method == method) for result in results]
        if not any(result.proposed for result in results):
            raise InputError(f"No result is of {method!r}: see the column method.")
    if not results:
        raise InputError("There is nothing to audit: no result is of this dataset and score.")
    claims = paper_claims.audit_claims(results)
    if as_json:
        typer.echo(json.dumps([claim.as_dict() for claim in claims], indent=2))
        return
    typer.echo("\n\n".join(map(str, claims)))
    unfair = [claim for claim in claims if claim.fair is False]
    told = [claim.explained for claim in unfair if claim.explained is not None]
    typer.echo(f"\n{len(unfair)} of {len(claims)} comparisons are unfair.", nl=not told)
    if told:
        typer.echo(
            f" Of {len(told)} of them the same setting is known: on average {100 * sum(told) / len(told):.0f} % of the "
            "difference goes away."
        )
