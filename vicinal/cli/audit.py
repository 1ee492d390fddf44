"""`vicinal audit LOSS|RUN`: whether a loss is a metric, and the bounds that follow for a run."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal._util.files import prepare_output
from vicinal.cli.options import AllowCode, AsJson, Quiet, parse_pairs
from vicinal.cli.output import print_json, save_figure
from vicinal.errors import InputError

if TYPE_CHECKING:
    from vicinal.spaces import MetricVerdict, RunAudit

__all__ = ["audit"]


def audit(
    what: Annotated[
        str,
        typer.Argument(help="Loss, distance (such as angular), or folder of a run.", metavar="LOSS|RUN"),
    ],
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help="Option of the loss.")] = None,
    domain: Annotated[str | None, typer.Option(help="Domain of the points: cube, simplex, space or sphere.")] = None,
    dim: Annotated[int, typer.Option(min=1, help="Dimension of the points.")] = 3,
    triples: Annotated[int, typer.Option(help="Lowest number of triples to test.")] = 3_000_000,
    data: Annotated[str | None, typer.Option(help="Dataset of the run, if it has moved.")] = None,
    items: Annotated[int, typer.Option(help="Number of items of a run to compare.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the figures.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Test whether a loss is a metric, a weak metric or a semimetric; for a run, also check the bounds that follow."""
    from vicinal.spaces import audit as audit_loss
    from vicinal.spaces import audit_figures, audit_run
    from vicinal.spaces.label_metric import label_metric_of
    from vicinal.spaces.run_audit import LABEL_LOSSES

    options: dict[str, Any] = parse_pairs(option or [], "--option")
    if out is not None:
        prepare_output(out / "figure.png")
    if not Path(what).exists() and ("/" in what or os.sep in what):  # no loss or distance has a slash in its name
        raise InputError(
            f"{what} does not exist; give a loss (see `vicinal losses`), a distance, or the folder of a run."
        )
    if Path(what).is_dir():
        if options or domain:
            raise InputError("A run has its own options; drop --option and --domain.")
        audited = audit_run(what, data=data, items=items, triples=triples, seed=seed, allow_code=allow_code or ())
        text, record = str(audited), _run_record(audited)
        figures = audit_figures(audited.verdict, audited.metric, audited.bounds, audited.items)
    else:
        verdict = audit_loss(what, domain=domain, dim=dim, triples=triples, seed=seed, **options)
        text, record = str(verdict), _verdict_record(verdict)
        figures = audit_figures(verdict, label_metric_of(what, options) if what in LABEL_LOSSES else None)
    if as_json:
        print_json(record)
    else:
        typer.echo(text)
    if out is not None:
        for name, figure in figures.items():
            path = out / f"{name.replace(' ', '-')}.png"
            save_figure(figure, path)
            typer.echo(f"Wrote {path}", err=as_json)


def _verdict_record(verdict: MetricVerdict) -> dict[str, Any]:
    return asdict(verdict) | {"sentence": verdict.sentence}


def _run_record(audited: RunAudit) -> dict[str, Any]:
    """Return the record of a run's audit, without the distances of its items."""
    record = _verdict_record(audited.verdict)
    if audited.bounds is None:
        return record
    fields = ("epsilon", "largest_intra", "intra_bound", "smallest_inter", "inter_bound", "holds", "compared")
    columns = ("classes", "by", "MAP@R", "P@1")
    return record | {
        "bounds": {name: getattr(audited.bounds, name) for name in fields}
        | {"certified": float(audited.bounds.certified.double().mean())},
        "scores": [dict(zip(columns, row, strict=True)) for row in audited.scores],
    }
