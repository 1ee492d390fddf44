"""`vicinal tune DATA`: the settings of a loss, searched on validation classes alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vicinal._util.code import NO_TRUST, Trust
from vicinal._util.files import prepare_output, write_atomically
from vicinal._util.reading import read_toml
from vicinal.cli.inputs import asked_budget, given, loss_settings
from vicinal.cli.output import prepare_figure, save_figure, say_notes
from vicinal.errors import InputError

__all__ = ["tune"]


def tune(
    data: Annotated[
        str | None,
        typer.Argument(
            help="A dataset's name (glyphs, digits), a folder, a table or an .npz file; not needed where the recipe "
            "names it."
        ),
    ] = None,
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
    recipe: Annotated[
        list[str] | None,
        typer.Option(help="A recipe's name or TOML file; several are laid over each other, and flags over them."),
    ] = None,
    loss: Annotated[str | None, typer.Option(help="See `vicinal losses`; with a miner: triplet+semi_hard.")] = None,
    mining: Annotated[str | None, typer.Option(help="A miner, such as valid_triplets.")] = None,
    ccp: Annotated[
        str | None, typer.Option(help="Chance-constrained proxies: as their authors' 'code' or 'paper' has them.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="convnet, resnet50, mobilenet_v2, linear, ...")] = None,
    weights: Annotated[str | None, typer.Option(help="'imagenet', or a file or address of weights.")] = None,
    dim: Annotated[int | None, typer.Option(help="Length of the embeddings.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Of each trial: 500 (steps), 64000images, 64kimages, 90s, 5m or 1h of training; by default by data "
            "size."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="The same as a number of steps alone.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the backbone; where the search starts.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Compute features once and train only the head.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of the search.")] = 0,
    protocol: Annotated[str | None, typer.Option(help="How classes are divided; fixed-validation by default.")] = None,
    fold: Annotated[int | None, typer.Option(help="Which fold validates, for k-fold and reality-check.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="Any other setting of a recipe: name=value.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    progress: Annotated[bool, typer.Option(help="Show progress.")] = True,
    trust: Trust = NO_TRUST,
) -> None:
    """Search for the settings of a loss that score best on validation classes."""
    from vicinal.data import load
    from vicinal.recipes import find_space
    from vicinal.runs.draft import settled_recipe
    from vicinal.runs.recipe import Recipe, flat, laid_over, read_tables
    from vicinal.tuning import tune as search
    from vicinal.tuning.ladder import RUNGS
    from vicinal.tuning.spaces import flat_space
    from vicinal.tuning.tuned import plot_search

    flags = {
        "data": data,
        **loss_settings(loss, mining),
        "ccp": ccp,
        "backbone": backbone,
        "weights": weights,
        "dim": dim,
        "steps": steps,
        "learning_rate": learning_rate,
        "freeze": freeze,
        "protocol": protocol,
        "fold": fold,
        "score": score,
        "skip_bad": skip_bad,
    }
    changes = given(flags, option)
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
    stated = {} if multiplier is None else {"proxy_multiplier": multiplier}  # or proxies keep their rate on the ladder
    tuned = search(
        wanted.split(whole),
        wanted,
        trials=trials,
        sampler=sampler,
        storage=storage,
        seed=seed,
        space=flat_space(read_toml(find_space(space))) if space else None,
        fix=fix or [],
        rates=RUNGS if rates is None else rates,
        prune=prune,
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
