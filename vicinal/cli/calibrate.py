"""`vicinal calibrate`: choose the similarity threshold for "same class", with a guarantee for new classes."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

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
        float, typer.Option(help="The rate to promise: of pairs of two new classes, how many are called the same.")
    ] = 0.001,
    confidence: Annotated[float, typer.Option(help="The probability that the promise is kept.")] = 0.95,
    protocol: Annotated[
        str | None, typer.Option(help="Take only the validation classes of this protocol; without it all classes.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the protocol's random choice of classes.")] = 0,
    skip_bad: SkipBad = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    progress: Progress = True,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Choose the similarity from which on two items count as the same, with a promise about new classes.

    Classes that the model was trained on are left out.
    Too few classes promise nothing: the message says how many it takes.
    """
    from vicinal._util.files import prepare_output
    from vicinal.data import load, split
    from vicinal.embedder import Embedder
    from vicinal.embedder._calibrate import calibration_of, unseen_classes
    from vicinal.embedder.folder import CALIBRATION, model_in
    from vicinal.errors import InputError
    from vicinal.evaluation.threshold import check_promise, check_rates, promise_threshold

    check_rates(false_matches, confidence)
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
    check_promise(len(items.classes), false_matches, confidence)  # before anything is embedded
    promise = promise_threshold(
        embedder.encode(items, progress=progress),
        items.labels,
        false_matches=false_matches,
        confidence=confidence,
        distance=embedder.distance,
    )
    embedder.calibration = calibration_of(promise, embedder.identity())
    embedder.save(folder)
    if json:
        facts = {"model": str(folder), "seen": promise.seen, "true_matches": promise.true_matches}
        print(json_module.dumps(embedder.calibration.as_dict() | facts))
        return
    sentence = str(embedder.calibration)
    print(f"{sentence[0].upper()}{sentence[1:]}.")
    print(
        f"Among these classes {100 * promise.seen:.3g} % of the pairs of two classes reach it, and "
        f"{100 * promise.true_matches:.3g} % of the pairs of one class: what is below is missed."
    )
    Console(stderr=True, soft_wrap=True, markup=False, highlight=False).print(
        f"kept in {folder}; an index of it learns of that by vicinal index {model} --out INDEX"
    )
