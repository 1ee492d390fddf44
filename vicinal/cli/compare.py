"""`vicinal compare DATA`: compare losses under equal conditions."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from vicinal._util.code import Trust
from vicinal._util.secrets import masked
from vicinal._util.text import counted
from vicinal.cli.options import (
    AllowCode,
    AsJson,
    BudgetText,
    Data,
    Freeze,
    Options,
    Progress,
    Protocol,
    Quiet,
    Recipes,
    SkipBad,
    Steps,
    Validation,
    Weights,
    networks,
    requested_budget,
    typed_settings,
    whole_numbers,
    words,
)

if TYPE_CHECKING:
    from vicinal.leaderboard import Leaderboard

__all__ = ["compare"]


def compare(
    context: typer.Context,
    data: Data = None,
    losses: Annotated[
        str,
        typer.Option(
            help="Losses to compare, such as contrastive,triplet+semi_hard,mine.toml.",
            show_default="those of the recipe, or five of different types",
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder of the comparison.")] = Path("runs/comparison"),
    recipe: Recipes = None,
    protocol: Protocol = None,
    validation: Validation = None,
    folds: Annotated[int | None, typer.Option(help="Number of folds.", show_default="from the protocol")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds.", show_default="3 for heads, else 1")
    ] = None,
    dims: Annotated[str, typer.Option(help="Embedding dimensions to compare.")] = "",
    backbones: Annotated[
        str,
        typer.Option(
            "--backbones",
            "--backbone",
            help="Networks to compare, such as resnet50 or timm[model=NAME;pretrained=true].",
        ),
    ] = "",
    budget: BudgetText = None,
    steps: Steps = None,
    with_ccp: Annotated[
        bool, typer.Option("--ccp", help="Also run each loss with chance-constrained proxies.")
    ] = False,
    same_batches: Annotated[
        bool,
        typer.Option("--same-batches", help="Use the same batches for all losses, instead of those of their papers."),
    ] = False,
    rates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Learning rates to try per loss, on validation classes; 1 for none.",
            show_default="3",
        ),
    ] = None,
    tune: Annotated[int, typer.Option(min=0, help="Tuning trials per loss; 0 for none.")] = 0,
    sampler: Annotated[str, typer.Option(help="Sampler of --tune: tpe, gp, random or grid.")] = "tpe",
    weights: Weights = None,
    freeze: Freeze = False,
    option: Options = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Parallel runs.", show_default="one per core, at most 4")
    ] = None,
    ray: Annotated[str | None, typer.Option(help="Run on Ray: local, or the address of a cluster.")] = None,
    workers: Annotated[int, typer.Option(help="Processes per run that decode images.")] = 0,
    skip_bad: SkipBad = False,
    select_on_test: Annotated[
        bool,
        typer.Option("--select-on-test", help="Select steps on test classes, as many papers do; scores are too high."),
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed runs again.")] = False,
    models: Annotated[bool, typer.Option(help="Do not save the models of all runs.")] = True,
    report: Annotated[bool, typer.Option(help="Do not write report.html.")] = True,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Train several losses under equal conditions and report which one is best.

    Run the same command again to resume: finished runs are not repeated.
    """
    from vicinal.comparing import compare as run_comparison
    from vicinal.comparing.plan import PANEL
    from vicinal.recipes import losses_beside

    trust = Trust.of(allow_code or ())

    changes = typed_settings(context.params)
    changes.pop("data", None)
    requested_budget(budget, changes)  # checked here, so that errors name the flags
    named: list[str | Path] = [*words(losses)]
    if not named:  # as paths: a file in a folder is a recipe whose name the user has not typed
        named = [Path(loss) for name in recipe or [] for loss in losses_beside(name)]
    if not named and with_ccp:
        named = [member.loss for member in PANEL]
    board = run_comparison(
        data,
        (_with_ccp(named) if with_ccp else named) or None,
        out=out,
        recipe=recipe,
        dims=whole_numbers(dims, "--dims"),
        backbones=networks(backbones),
        seeds=seeds,
        budget=budget,
        same_batches=same_batches,
        rates=rates,
        tune=tune,
        sampler=sampler,
        jobs=jobs,
        ray=ray,
        workers=workers,
        keep_models=models,
        retry_failed=retry_failed,
        progress=progress,
        allow_code=trust.sources,
        command=masked(shlex.join(["vicinal", *sys.argv[1:]])),
        **changes,
    )
    console = Console(stderr=as_json)  # standard output is reserved for the JSON
    if as_json:
        typer.echo(json.dumps(board.to_dict(), indent=2))
    else:
        board.print(console)
    console.print(f"Runs: {out}", highlight=False, soft_wrap=True)
    if report:
        _write_report(board, out, console, trust)
    if board.failed:
        names = ", ".join(dict.fromkeys(record.name for record in board.failed))
        failed = f"{counted(len(board.failed), 'run')} failed ({names}). To retry, add --retry-failed."
        console.print(failed, highlight=False, markup=False)
        raise typer.Exit(1)


def _write_report(board: Leaderboard, out: Path, console: Console, trust: Trust) -> None:
    from vicinal.report import write_report

    page = write_report(board, out / "report.html", allow_code=trust.sources)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)


def _with_ccp(losses: list[str | Path]) -> list[str | Path]:
    """Add each loss's version with CCP after it; recipes decide for themselves."""
    doubled: list[str | Path] = []
    for loss in losses:
        doubled.append(loss)
        if isinstance(loss, str) and not loss.endswith((".toml", "+ccp")) and "/" not in loss:
            doubled.append(f"{loss}+ccp")
    return doubled
