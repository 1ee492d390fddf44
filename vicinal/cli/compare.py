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
    asked_budget,
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
            help="Separated by commas: triplet, triplet+semi_hard, contrastive+memory, proxy_anchor+hierarchy, "
            "mine.toml, thesis/losses; by default those of the recipe's study, or five that differ in kind."
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder of the comparison; the same command goes on with it.")] = Path(
        "runs/comparison"
    ),
    recipe: Recipes = None,
    protocol: Protocol = None,
    validation: Validation = None,
    folds: Annotated[int | None, typer.Option(help="How many, if not the protocol's own number.")] = None,
    seeds: Annotated[int, typer.Option(help="How often all of it is repeated.")] = 1,
    dims: Annotated[str, typer.Option(help="Lengths of the embeddings, separated by commas.")] = "",
    backbones: Annotated[str, typer.Option("--backbones", "--backbone", help="Networks, separated by commas.")] = "",
    budget: BudgetText = None,
    steps: Steps = None,
    with_ccp: Annotated[
        bool, typer.Option("--ccp", help="Run each loss with chance-constrained proxies, too: loss and loss+ccp.")
    ] = False,
    same_batches: Annotated[
        bool,
        typer.Option(
            "--same-batches", help="Compose batches alike for all losses, and not as each one's paper does; labelled."
        ),
    ] = False,
    rates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Learning rates that each loss tries on the validation classes; 1 takes them as given.",
            show_default="a few",
        ),
    ] = None,
    tune: Annotated[int, typer.Option(help="Trials of the search for each loss's settings, rates included.")] = 0,
    sampler: Annotated[str, typer.Option(help="Of that search: tpe, gp, random or grid.")] = "tpe",
    weights: Weights = None,
    freeze: Freeze = False,
    option: Options = None,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time; threads are divided among them.")] = None,
    ray: Annotated[str | None, typer.Option(help="Run on Ray: 'local', or the address of a cluster.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that decode images, for each run.")] = 0,
    skip_bad: SkipBad = False,
    select_on_test: Annotated[
        bool, typer.Option("--select-on-test", help="Choose steps by the test classes, as many papers did; labelled.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")] = False,
    models: Annotated[bool, typer.Option(help="Keep the trained model of every run.")] = True,
    report: Annotated[bool, typer.Option(help="Write report.html when all is done.")] = True,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Train losses under equal conditions and say which one wins, with intervals.

    Killed anywhere and started again with the same command, it runs only what is missing.
    """
    from vicinal.comparing import compare as run_comparison
    from vicinal.comparing.plan import PANEL
    from vicinal.recipes import losses_beside
    from vicinal.tuning.ladder import RUNGS

    trust = Trust.of(allow_code or ())

    changes = typed_settings(context.params)
    changes.pop("data", None)
    asked_budget(budget, changes)  # checked here, so that errors name the flags
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
        backbones=words(backbones),
        seeds=seeds,
        budget=budget,
        same_batches=same_batches,
        rates=RUNGS if rates is None else rates,
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
    console.print(f"The journal and the runs are in {out}.", highlight=False, soft_wrap=True)
    if report:
        _write_report(board, out, console, trust)
    if board.failed:
        them = "it" if len(board.failed) == 1 else "them"
        names = ", ".join(dict.fromkeys(record.name for record in board.failed))
        failed = f"{counted(len(board.failed), 'run')} failed ({names}); run {them} again with --retry-failed."
        console.print(failed, highlight=False, markup=False)
        raise typer.Exit(1)


def _write_report(board: Leaderboard, out: Path, console: Console, trust: Trust) -> None:
    from vicinal.report import write_report

    page = write_report(board, out / "report.html", allow_code=trust.sources)
    console.print(f"The report is {page}", highlight=False, soft_wrap=True)


def _with_ccp(losses: list[str | Path]) -> list[str | Path]:
    """Add each loss's version with CCP after it; recipes decide for themselves."""
    doubled: list[str | Path] = []
    for loss in losses:
        doubled.append(loss)
        if isinstance(loss, str) and not loss.endswith((".toml", "+ccp")) and "/" not in loss:
            doubled.append(f"{loss}+ccp")
    return doubled
