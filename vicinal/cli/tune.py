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
    asked_budget,
    typed_settings,
)
from vicinal.cli.output import prepare_figure, save_figure, say_notes
from vicinal.errors import InputError

__all__ = ["tune"]


def tune(
    context: typer.Context,
    data: Data = None,
    trials: Annotated[int, typer.Option(help="Settings to try, those already in the storage included.")] = 30,
    out: Annotated[Path, typer.Option(help="Where the best recipe goes.")] = Path("tuned.toml"),
    plot: Annotated[Path | None, typer.Option(help="Draw the search to this file (.png, .svg, .pdf).")] = None,
    sampler: Annotated[str, typer.Option(help="tpe, gp, random or grid.")] = "tpe",
    storage: Annotated[
        str | None, typer.Option(help="A file or the address of a database; the same command goes on from it.")
    ] = None,
    score: Annotated[str | None, typer.Option(help="What to raise: MAP@R (by default), P@R or P@1.")] = None,
    space: Annotated[
        str | None, typer.Option(help="Ranges and choices to search instead: a TOML file, or one of vicinal's by name.")
    ] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Leave this setting as it is, such as learning_rate.")] = None,
    rates: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Learning rates among the trials that are tried before the rest, which is searched near the best; 1 "
            "searches the rate with the rest.",
            show_default="a few",
        ),
    ] = None,
    prune: Annotated[bool, typer.Option(help="Give up trials that stay below the median.")] = True,
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
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split and of the search.")] = 0,
    protocol: Protocol = None,
    fold: Fold = None,
    option: Options = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Search for the settings of a loss that score best on validation classes."""
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
    allowed = asked_budget(budget, changes)
    changes |= allowed.settings()
    changes["seed"] = seed
    wanted = Recipe.read(*(recipe or []), trust=trust, **changes)
    if wanted.data is None:
        raise InputError("What is to be searched on? Give a dataset's name or path: vicinal tune photos/ --trials 30")
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
        typer.echo(f"The search is drawn in {plot}.")
    typer.echo(f"The best recipe is in {out}; train with it: vicinal train --recipe {out} --out runs/tuned")
