"""`vicinal train DATA`: from a folder of images to a saved embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vicinal.cli.values import parse_pairs
from vicinal.data import load, split
from vicinal.fitting import fit
from vicinal.recipe import read_recipe, recipe_from
from vicinal.scoring import score_embedder
from vicinal.atomic import write_atomically
from vicinal.training.processes import is_first_process

__all__ = ["train"]


def train(
    data: Annotated[str, typer.Argument(help="A dataset's name (glyphs, digits), a folder, a table or an .npz file.")],
    run: Annotated[Path, typer.Option(help="Folder of the run: recipe, log, checkpoints, record and model.")],
    recipe: Annotated[Path | None, typer.Option(help="A TOML file; flags override it.")] = None,
    loss: Annotated[str | None, typer.Option(help="See `vicinal losses`.")] = None,
    mining: Annotated[str | None, typer.Option(help="A miner, such as valid_triplets.")] = None,
    ccp: Annotated[
        str | None, typer.Option(help="Chance-constrained proxies: as their authors' 'code' or 'paper' has them.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="convnet, resnet50, mobilenet_v2, linear, ...")] = None,
    weights: Annotated[str | None, typer.Option(help="'imagenet', or a file or address of weights.")] = None,
    dim: Annotated[int | None, typer.Option(help="Length of the embeddings.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the backbone.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Compute features once and train only the head.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of the split and of training; 0 unless the recipe says.")] = None,
    protocol: Annotated[str, typer.Option(help="How classes are divided.")] = "fixed-validation",
    fold: Annotated[int | None, typer.Option(help="Which fold validates, for k-fold and reality-check.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="Any other setting of a recipe: name=value.")
    ] = None,
    loss_option: Annotated[list[str] | None, typer.Option(help="Option of the loss: name=value.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    workers: Annotated[int, typer.Option(help="Processes that decode images.")] = 0,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events.")] = False,
) -> None:
    """Train an embedder and score it on the classes it has not seen."""
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
        "seed": seed,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    given |= parse_pairs(option or [], "--option")
    file = read_recipe(recipe) if recipe else {}
    if loss_option:
        given["loss_options"] = {**file.get("loss_options", {}), **parse_pairs(loss_option, "--loss-option")}
    wanted = recipe_from({**file, **given})
    divided = split(load(data, skip_bad=skip_bad), protocol, seed=wanted.training.seed, fold=fold)
    embedder = fit(
        divided, wanted, folder=run, resume=resume, workers=workers, skip_bad=skip_bad, tensorboard=tensorboard
    )
    if not is_first_process():
        return
    if divided.test is not None:
        scores = score_embedder(embedder, divided.test, progress=True)
        typer.echo(str(scores))
        write_atomically(run / "test.json", scores.to_json())
    typer.echo(f"The model is in {run / 'model'}; embed with it: vicinal embed {run / 'model'} PHOTOS --out out.npz")
