"""`vicinal train DATA`: train an embedder, score it and save it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vicinal._util.code import Trust
from vicinal.cli.options import (
    AllowCode,
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
    Validation,
    Weights,
    requested_budget,
    typed_settings,
)
from vicinal.cli.output import print_scores, say_notes
from vicinal.errors import InputError

__all__ = ["train"]


def train(
    context: typer.Context,
    data: Data = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/first"),
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
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="from the recipe, else 0")] = None,
    protocol: Protocol = None,
    fold: Fold = None,
    validation: Validation = None,
    option: Options = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out, with its own recipe.")] = False,
    workers: Annotated[int, typer.Option(help="Processes that decode images.")] = 0,
    skip_bad: SkipBad = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Print all scores.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Train an embedder and score it on classes that it was not trained on."""
    from vicinal.data import load
    from vicinal.runs import RunFiles
    from vicinal.runs._train import Bookkeeping
    from vicinal.runs._train import train as run_recipe
    from vicinal.runs.draft import Settled, seeing_images, settled_recipe
    from vicinal.runs.notes import random_network_note
    from vicinal.runs.recipe import Recipe
    from vicinal.training import TensorBoard
    from vicinal.training.processes import is_first_process

    trust = Trust.of(allow_code or ())

    changes = typed_settings(context.params)
    allowed = requested_budget(budget, changes)
    changes |= allowed.settings()
    started = RunFiles(out).recipe
    sources = [started] if resume and started.exists() and not recipe else recipe or []
    resumed = sources == [started]
    wanted = Recipe.read(*sources, trust=trust, **changes)
    if wanted.data is None:
        raise InputError("No dataset given. Pass one, or a recipe that names one: vicinal train photos/")
    whole = load(wanted.data, skip_bad=wanted.skip_bad, allow_code=trust.sources)
    if resumed and allowed.images is not None:
        wanted = seeing_images(wanted, wanted.split(whole).train, allowed.images)
    settled = Settled(wanted, ()) if resumed else settled_recipe(whole, sources, changes, allowed.images, trust)
    early = random_network_note(settled.recipe, whole)
    if early is not None and is_first_process():  # before the training starts
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
    print_scores(run.scores, everything=everything)
    model = run.files.model
    typer.echo(f"Model: {model}\nNext: vicinal embed {model} PHOTOS --out embeddings.npz")
