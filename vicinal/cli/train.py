"""`vicinal train DATA`: from a folder of images to a saved embedder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vicinal._util.code import NO_TRUST, Trust
from vicinal.cli.inputs import asked_budget, given, loss_settings
from vicinal.cli.output import say_notes
from vicinal.errors import InputError

__all__ = ["train"]


def train(
    data: Annotated[
        str | None,
        typer.Argument(
            help="A dataset's name (glyphs, digits), a folder, a table or an .npz file; not needed where the recipe "
            "names it."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run: recipe, log, checkpoints, record and model.")] = Path(
        "runs/first"
    ),
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
            help="Of the run: 500 (steps), 64000images, 64kimages, 90s, 5m or 1h of training; by default by data size."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="The same as a number of steps alone.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the backbone.")] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Compute features once and train only the head.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of the split and of training; 0 unless the recipe says.")] = None,
    protocol: Annotated[str | None, typer.Option(help="How classes are divided; fixed-validation by default.")] = None,
    fold: Annotated[int | None, typer.Option(help="Which fold validates, for k-fold and reality-check.")] = None,
    validation: Annotated[
        float | None, typer.Option(help="Share of the training classes that validate, where the protocol draws them.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", "--option", help="Any other setting of a recipe, or option of the loss: name=value."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder; its own recipe says how.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Processes that decode images.")] = 0,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard events.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON, for scripts.")] = False,
    progress: Annotated[bool, typer.Option(help="Show progress.")] = True,
    trust: Trust = NO_TRUST,
) -> None:
    """Train an embedder and score it on the classes it has not seen."""
    from vicinal.data import load
    from vicinal.runs import RunFiles
    from vicinal.runs._train import Bookkeeping
    from vicinal.runs._train import train as run_recipe
    from vicinal.runs.draft import Settled, seeing_images, settled_recipe
    from vicinal.runs.notes import random_network_note
    from vicinal.runs.recipe import Recipe
    from vicinal.training import TensorBoard
    from vicinal.training.processes import is_first_process

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
        "seed": seed,
        "protocol": protocol,
        "fold": fold,
        "validation": validation,
        "skip_bad": skip_bad,
    }
    changes = given(flags, option)
    allowed = asked_budget(budget, changes)
    changes |= allowed.settings()
    started = RunFiles(out).recipe
    sources = [started] if resume and started.exists() and not recipe else recipe or []
    resumed = sources == [started]
    wanted = Recipe.read(*sources, trust=trust, **changes)
    if wanted.data is None:
        raise InputError("What is to be trained on? Give a dataset's name or path: vicinal train photos/")
    whole = load(wanted.data, skip_bad=wanted.skip_bad, allow_code=trust.sources)
    if resumed and allowed.images is not None:
        wanted = seeing_images(wanted, wanted.split(whole).train, allowed.images)
    settled = Settled(wanted, ()) if resumed else settled_recipe(whole, sources, changes, allowed.images, trust)
    early = random_network_note(settled.recipe, whole)
    if early is not None and is_first_process():  # before time is spent on it
        say_notes([early])
    run = run_recipe(
        settled.recipe,
        data=whole,
        folder=out,
        resume=resume,
        workers=workers,
        hooks=[TensorBoard(out)] if tensorboard else [],
        progress=progress,
        bookkeeping=Bookkeeping(full_scores=True, facts={"notes": settled.notes}),
    )
    if run.scores is None:  # of all processes the first has them
        return
    say_notes([note for note in run.record.notes if note != early])
    if as_json:
        typer.echo(run.scores.to_json(per_query=False))
        return
    typer.echo(str(run.scores))
    model = run.files.model
    typer.echo(f"The model is in {model}; embed with it: vicinal embed {model} PHOTOS --out out.npz")
