"""`vicinal tune DATA`: search for the settings of a loss, using only validation classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vicinal._util.code import Trust
from vicinal._util.files import prepare_output, write_atomically
from vicinal._util.reading import read_toml
from vicinal.cli.options import (
    AllowCode,
    AsJson,
    Backbone,
    BudgetText,
    Ccp,
    Data,
    Dim,
    Fold,
    Freeze,
    LearningRate,
    Loss,
    Mining,
    Options,
    Progress,
    Protocol,
    Quiet,
    Recipes,
    SkipBad,
    Steps,
    Weights,
    requested_budget,
    typed_settings,
)
from vicinal.cli.output import prepare_figure, save_figure, say_notes
from vicinal.errors import InputError

__all__ = ["tune"]


def tune(
    context: typer.Context,
    data: Data = None,
    trials: Annotated[int, typer.Option(help="Total number of trials.")] = 30,
    out: Annotated[Path, typer.Option(help="Write the best recipe to this file.")] = Path("tuned.toml"),
    plot: Annotated[Path | None, typer.Option(help="Plot the search to this file (.png, .svg or .pdf).")] = None,
    sampler: Annotated[str, typer.Option(help="Sampler: tpe, gp, random or grid.")] = "tpe",
    storage: Annotated[
        str | None, typer.Option(help="File or database URL to resume from and share trials in.")
    ] = None,
    score: Annotated[
        str | None, typer.Option(help="Score to maximise: MAP@R, P@R or P@1.", show_default="MAP@R")
    ] = None,
    space: Annotated[str | None, typer.Option(help="Search space: TOML file, or name of a built-in one.")] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="Setting to keep fixed, such as learning_rate; may be repeated.")
    ] = None,
    rates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Learning rates to try first; 1 to search them with the rest.",
            show_default="3",
        ),
    ] = None,
    prune: Annotated[bool, typer.Option(help="Do not stop trials early that are below the median.")] = True,
    recipe: Recipes = None,
    loss: Loss = None,
    mining: Mining = None,
    ccp: Ccp = None,
    backbone: Backbone = None,
    weights: Weights = None,
    dim: Dim = None,
    budget: BudgetText = None,
    steps: Steps = None,
    learning_rate: LearningRate = None,
    freeze: Freeze = False,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the split and the search.")] = 0,
    protocol: Protocol = None,
    fold: Fold = None,
    option: Options = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Search for the best settings of a loss, on validation classes."""
    from vicinal.data import load
    from vicinal.recipes import find_space
    from vicinal.runs.draft import settled_recipe
    from vicinal.runs.recipe import Recipe, flat, laid_over, read_tables
    from vicinal.tuning import SearchOptions
    from vicinal.tuning import tune as search
    from vicinal.tuning.ladder import RUNGS
    from vicinal.tuning.spaces import flat_space
    from vicinal.tuning.tuned import plot_search

    trust = Trust.of(allow_code or ())

    changes = typed_settings(context.params)
    allowed = requested_budget(budget, changes)
    changes |= allowed.settings()
    changes["seed"] = seed
    wanted = Recipe.read(*(recipe or []), trust=trust, **changes)
    if wanted.data is None:
        raise InputError("No dataset given. Pass one, or a recipe that names one: vicinal tune photos/")
    whole = load(wanted.data, skip_bad=wanted.skip_bad, allow_code=trust.sources)
    wanted, notes = settled_recipe(whole, recipe or [], changes, allowed.images, trust)
    say_notes(notes)
    prepare_output(out)
    prepare_figure(plot, "--plot")
    multiplier = flat(laid_over(read_tables(*(recipe or [])), changes)).get("proxy_multiplier")
    stated = (
        {} if multiplier is None else {"proxy_multiplier": multiplier}
    )  # otherwise proxies keep their rate on the ladder
    tuned = search(
        wanted.split(whole),
        wanted,
        trials=trials,
        sampler=sampler,
        storage=storage,
        space=flat_space(read_toml(find_space(space))) if space else None,
        options=SearchOptions(seed, tuple(fix or ()), RUNGS if rates is None else rates, prune),
        progress=progress,
        **stated,
    )
    write_atomically(out, tuned.to_toml())
    if plot is not None:
        save_figure(plot_search(tuned), plot)
    if as_json:
        typer.echo(json.dumps({**tuned.to_dict(), "out": str(out)}, indent=2))
        return
    typer.echo(str(tuned))
    if plot is not None:
        typer.echo(f"Plot: {plot}")
    typer.echo(f"Best recipe: {out}\nNext: vicinal train --recipe {out} --out runs/tuned")
