"""`vicinal tournament`: which method wins over several experiments."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from vicinal.statistics import plot_critical_difference, read_scores, thesis_tables, verdict
from vicinal.statistics import tournament as hold
from vicinal.statistics.ranking import Missing

__all__ = ["tournament"]

MISSING: dict[str | None, Missing] = {
    None: "refuse",
    "experiments": "drop experiments",
    "methods": "drop methods",
}


def tournament(
    table: Annotated[
        Path | None,
        typer.Argument(
            help="A CSV file: one row per experiment with a column per method, or the columns experiment, method, "
            "score. Without it: the 10 losses of the thesis 'Metric learning: a deep dive' (2020) on CUB."
        ),
    ] = None,
    level: Annotated[float, typer.Option(help="Of the tests: below which a p-value is significant.")] = 0.05,
    drop: Annotated[
        Literal["experiments", "methods"] | None,
        typer.Option(help="Where scores are missing, leave out whole experiments or whole methods."),
    ] = None,
    pairs: Annotated[bool, typer.Option(help="Also compare the scores of every two methods.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the critical-difference diagram to this .png, .svg or .pdf file.")
    ] = None,
    theme: Annotated[Literal["light", "dark"], typer.Option(help="Of the diagram.")] = "light",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Rank methods over several experiments, and say which differences are real; the higher a score the better."""
    scores = thesis_tables() if table is None else read_scores(table)
    found = hold(scores, level=level, missing=MISSING[drop])
    outcome = verdict(found)
    tests = found.pairs() if pairs else []
    if plot is not None:
        plot_critical_difference(found, theme=theme).savefig(plot, dpi=150)
    if as_json:
        record = {
            "standings": [asdict(row) for row in found.table()],
            "experiments": found.experiments,
            "friedman": asdict(found.friedman) if found.friedman else None,
            "critical difference": found.critical_difference,
            "groups": found.groups,
            "pairs": [asdict(test) for test in tests],
            "verdict": asdict(outcome),
        }
        typer.echo(json.dumps(record, indent=2))
        return
    source = ["R@1 on CUB of 10 losses x 3 networks x 4 sizes (Psomas 2020, Tables 6-8)", ""] if table is None else []
    blocks = [*source, str(found), "", str(outcome)]
    if tests:
        blocks += ["", "Every two methods, experiment by experiment (p corrected by Holm):", *map(str, tests)]
        blocks += ["", str(verdict(tests, level=level))]
    typer.echo("\n".join(blocks))
