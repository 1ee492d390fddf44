"""`vicinal calibrate`: choose the similarity threshold for "same class", at a rate of false matches on new classes."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from rich.console import Console

from vicinal.cli.options import AllowCode, Progress, Quiet, SkipBad

__all__ = ["calibrate"]


def calibrate(
    model: Annotated[Path, typer.Argument(help="The folder of a model, a run or a comparison; it keeps the result.")],
    data: Annotated[
        str, typer.Argument(help="Items of other classes than it was trained on: a dataset's name, a folder, a table.")
    ],
    false_matches: Annotated[
        float, typer.Option(help="Share of the pairs of items of two new classes that may be called the same.")
    ] = 0.01,
    level: Annotated[
        Literal["auto", "estimate", "bound", "average", "guarantee"],
        typer.Option(
            metavar="LEVEL",
            help="Strength of the claim about the rate: auto, estimate, bound, average or guarantee.",
        ),
    ] = "auto",
    per: Annotated[
        Literal["classes", "items"],
        typer.Option(metavar="UNIT", help="Count every pair of classes the same, or every pair of items."),
    ] = "classes",
    confidence: Annotated[float, typer.Option(help="Confidence of a bound, a guarantee or an interval.")] = 0.95,
    check: Annotated[
        str | None,
        typer.Option(metavar="NEW", help="Unlabelled items to compare with DATA: are they of the same kind?"),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Take only the validation classes of this protocol; without it all classes.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the protocol's split.")] = 0,
    skip_bad: SkipBad = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Choose the similarity from which on two items count as the same, at a rate of false matches on new classes.

    Levels: an estimate with an interval (5 classes or more), a bound with an approximate confidence
    (100 classes for a rate of 0.01), a limit that is proved on average (398) or with a confidence (guarantee, 598).
    Classes that the model was trained on are left out.
    """
    from vicinal._util.files import prepare_output
    from vicinal.data import load, split
    from vicinal.embedder import Embedder
    from vicinal.embedder._calibrate import calibration_on, unseen_classes
    from vicinal.embedder.folder import CALIBRATION, model_in
    from vicinal.errors import InputError
    from vicinal.evaluation import check_shift
    from vicinal.evaluation.threshold import Target

    target = Target(false_matches, level, per, confidence)
    embedder = Embedder.load(model, allow_code=allow_code or ())
    folder = model_in(model)
    prepare_output(folder / CALIBRATION)
    items = load(data, skip_bad=skip_bad, allow_code=allow_code or ())
    if protocol is not None:
        held_out = split(items, protocol, seed=seed).validation
        if held_out is None:
            raise InputError(f"Protocol {protocol!r} has no validation classes here; leave --protocol out.")
        items = held_out
    items = unseen_classes(embedder, items)
    target.level_for(np.unique(items.labels, return_counts=True)[1])  # before anything is embedded
    others = None if check is None else load(check, skip_bad=skip_bad, allow_code=allow_code or ())
    embeddings = embedder.encode(items, progress=progress)
    embedder.calibration = calibration_on(embedder, embeddings, items.labels, target)
    embedder.save(folder)
    shift = None
    if others is not None:
        new = embedder.encode(others, progress=progress)
        shift = check_shift(embeddings, items.labels, new, distance=embedder.distance)
    rule = embedder.calibration
    if json:
        compared = None if shift is None else asdict(shift) | {"differs": shift.differs}
        print(json_module.dumps(rule.as_dict() | {"model": str(folder), "claim": rule.claim(), "shift": compared}))
        return
    print(rule)
    print(f"Of the pairs of items of one class {100 * rule.true_matches:.3g} % reach it; the others are missed.")
    if shift is not None:
        print(shift)
    Console(stderr=True, soft_wrap=True, markup=False, highlight=False).print(
        f"saved in {folder}; to use it in an existing index, run vicinal index {model} --out INDEX"
    )
