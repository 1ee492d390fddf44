"""`vicinal tune DATA`: the settings of a loss, searched on validation classes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.cli.values import parse_pairs
from vicinal.data import load, split
from vicinal.errors import UnknownName
from vicinal.recipe import read_recipe, recipe_from
from vicinal.atomic import write_atomically
from vicinal.tuning import search_space
from vicinal.tuning import tune as search
from vicinal.tuning.search_figure import plot_search
from vicinal.tuning.ranges import flat_space

__all__ = ["tune"]


def tune(
    data: Annotated[str, typer.Argument(help="A dataset's name (glyphs, digits), a folder, a table or an .npz file.")],
    trials: Annotated[int, typer.Option(help="Settings to try, those already in the storage included.")],
    out: Annotated[Path, typer.Option(help="Where the best recipe goes.")] = Path("tuned.toml"),
    figure: Annotated[Path | None, typer.Option(help="Draw the search to this file (.png, .svg, .pdf).")] = None,
    sampler: Annotated[str, typer.Option(help="tpe, gp, random or grid.")] = "tpe",
    storage: Annotated[
        str | None, typer.Option(help="A file or the address of a database; the same command goes on from it.")
    ] = None,
    metric: Annotated[str, typer.Option(help="MAP@R, P@R or P@1.")] = "MAP@R",
    space: Annotated[Path | None, typer.Option(help="A TOML file of ranges and choices to search instead.")] = None,
    fix: Annotated[list[str] | None, typer.Option(help="Leave this setting as it is, such as learning_rate.")] = None,
    prune: Annotated[bool, typer.Option(help="Give up trials that stay below the median.")] = True,
    recipe: Annotated[Path | None, typer.Option(help="A TOML file; flags override it.")] = None,
    loss: Annotated[str | None, typer.Option(help="See `vicinal losses`.")] = None,
    mining: Annotated[str | None, typer.Option(help="A miner, such as valid_triplets.")] = None,
    ccp: Annotated[
        str | None, typer.Option(help="Chance-constrained proxies: as their authors' 'code' or 'paper' has them.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="convnet, resnet50, mobilenet_v2, linear, ...")] = None,
    weights: Annotated[str | None, typer.Option(help="'imagenet', or a file or address of weights.")] = None,
    dim: Annotated[int | None, typer.Option(help="Length of the embeddings.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps of a trial.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the backbone; where the search starts.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Compute features once and train only the head.")] = False,
    seed: Annotated[int, typer.Option(help="Of the split and of the search.")] = 0,
    protocol: Annotated[str, typer.Option(help="How classes are divided.")] = "fixed-validation",
    fold: Annotated[int | None, typer.Option(help="Which fold validates, for k-fold and reality-check.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="Any other setting of a recipe: name=value.")
    ] = None,
) -> None:
    """Search for the settings of a loss that score best on validation classes."""
    flags: dict[str, Any] = {
        "loss": loss,
        "mining": mining,
        "ccp": ccp,
        "backbone": backbone,
        "weights": weights,
        "dim": dim,
        "steps": steps,
        "learning_rate": learning_rate,
        "freeze": freeze or None,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    wanted = recipe_from({**(read_recipe(recipe) if recipe else {}), **given, **parse_pairs(option or [], "--option")})
    varied = flat_space(read_recipe(space)) if space else search_space(wanted)
    for name in fix or []:
        if name not in varied:
            raise UnknownName("setting that is searched", name, varied)
        del varied[name]
    tuned = search(
        split(load(data), protocol, seed=seed, fold=fold),
        wanted,
        trials=trials,
        sampler=sampler,
        metric=metric,
        storage=storage,
        seed=seed,
        space=varied,
        prune=prune,
    )
    typer.echo(str(tuned))
    write_atomically(out, tuned.to_toml())
    if figure is not None:
        plot_search(tuned).savefig(figure, dpi=150)
        typer.echo(f"The search is drawn in {figure}.")
    typer.echo(f"The best recipe is in {out}; train with it: vicinal train {data} --recipe {out} --run runs/tuned")
