"""`vicinal compare DATA --losses a,b,c`: which loss, and how sure are we?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vicinal.cli.values import parse_pairs
from vicinal.comparing import compare as run_comparison
from vicinal.comparing.budget import budget_settings
from vicinal.errors import InputError

__all__ = ["compare"]


def compare(
    data: Annotated[str, typer.Argument(help="A dataset's name (glyphs, digits), a folder, a table or an .npz file.")],
    losses: Annotated[
        str,
        typer.Option(help="Separated by commas: triplet, triplet+semi_hard, contrastive+memory, mine.toml, recipes/."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the comparison; the same command goes on with it.")] = Path(
        "runs/comparison"
    ),
    recipe: Annotated[Path | None, typer.Option(help="TOML file of what all losses share; flags override it.")] = None,
    protocol: Annotated[
        str, typer.Option(help="default, fixed-validation, k-fold, reality-check or query-gallery.")
    ] = "fixed-validation",
    folds: Annotated[int | None, typer.Option(help="How many, if not the protocol's own number.")] = None,
    seeds: Annotated[int, typer.Option(help="How often all of it is repeated.")] = 1,
    dims: Annotated[str, typer.Option(help="Lengths of the embeddings, separated by commas.")] = "",
    backbones: Annotated[str, typer.Option("--backbones", "--backbone", help="Networks, separated by commas.")] = "",
    budget: Annotated[str | None, typer.Option(help="Of each trial: 500 (steps), 90s, 5m or 1h of training.")] = None,
    ccp: Annotated[
        bool, typer.Option("--ccp", help="Run each loss with chance-constrained proxies, too: loss and loss+ccp.")
    ] = False,
    tune: Annotated[int, typer.Option(help="Trials of the search for each loss's settings.")] = 0,
    sampler: Annotated[str, typer.Option(help="Of that search: tpe, gp, random or grid.")] = "tpe",
    weights: Annotated[str | None, typer.Option(help="'imagenet', or a file or address of weights.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Compute features once and train only heads.")] = False,
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="Any other setting of a recipe: name=value.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Trials at a time; threads are divided among them.")] = None,
    ray: Annotated[str | None, typer.Option(help="Run on Ray: 'local', or the address of a cluster.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that decode images, for each trial.")] = 0,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")] = False,
    select_on_test: Annotated[
        bool, typer.Option("--select-on-test", help="Choose steps by the test classes, as many papers did; labelled.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    models: Annotated[bool, typer.Option(help="Keep the trained model of every trial.")] = True,
    report: Annotated[bool, typer.Option(help="Write report.html when all is done.")] = True,
    progress: Annotated[bool, typer.Option(help="Show progress.")] = True,
) -> None:
    """Train losses under equal conditions and say which one wins, with intervals.

    Killed anywhere and started again with the same command, it runs only what is missing.
    """
    flags: dict[str, Any] = {"weights": weights, "freeze": freeze or None}
    given = {name: value for name, value in flags.items() if value is not None}
    given |= parse_pairs(option or [], "--option")
    if budget is not None:
        given |= budget_settings(budget)
    found = run_comparison(
        data,
        _with_ccp(_words(losses)) if ccp else _words(losses),
        out=out,
        recipe=recipe,
        dims=_numbers(dims),
        backbones=_words(backbones),
        seeds=seeds,
        protocol=protocol,
        folds=folds,
        tune=tune,
        sampler=sampler,
        select_on_test=select_on_test,
        jobs=jobs,
        ray=ray,
        workers=workers,
        skip_bad=skip_bad,
        keep_models=models,
        retry_failed=retry_failed,
        progress=progress,
        command=shlex.join(["vicinal", *sys.argv[1:]]),
        **given,
    )
    console = Console()
    found.print(console)
    console.print(f"The journal and the trials are in {out}.", highlight=False, soft_wrap=True)
    if report and found.boards:
        _write_report(out, console)
    if found.failed:
        console.print(f"{len(found.failed)} trials failed; run them again with --retry-failed.", highlight=False)
        raise typer.Exit(1)


def _write_report(out: Path, console: Console) -> None:
    from vicinal.report import write_report

    console.print(f"The report is {write_report([out], out / 'report.html')}", highlight=False, soft_wrap=True)


def _with_ccp(losses: list[str]) -> list[str]:
    """Put each loss's twin behind it; recipes say themselves what they want."""
    plain = [loss for loss in losses if not loss.endswith((".toml", "+ccp")) and not Path(loss).is_dir()]
    return [twin for loss in losses for twin in ([loss, f"{loss}+ccp"] if loss in plain else [loss])]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in _words(text)]
    except ValueError:
        raise InputError(f"--dims must be whole numbers separated by commas, such as 64,128; got {text!r}.") from None
