"""`vicinal weights LOSS`: draw the weight that a loss gives to a pair."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from vicinal._util.code import Trust, short_name
from vicinal.cli.options import AllowCode, Quiet, parse_pairs
from vicinal.cli.output import prepare_figure, print_json, save_figure
from vicinal.errors import InputError, UnknownName

__all__ = ["weights"]


def weights(
    loss: Annotated[list[str], typer.Argument(help="Losses to plot, one panel each.")],
    out: Annotated[Path, typer.Option(help="File to write (.png, .svg or .pdf).")] = Path("weights.png"),
    mining: Annotated[str | None, typer.Option(help="Miner, such as semi_hard.")] = None,
    geometry: Annotated[
        str | None,
        typer.Option(help="Similarity on the x axis, such as cosine.", show_default="that of the loss"),
    ] = None,
    option: Annotated[list[str] | None, typer.Option("--option", "-o", help="Option of the losses.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the curves as JSON.")] = False,
    quiet: Quiet = False,
    allow_code: AllowCode = None,
) -> None:
    """Plot the weight that a loss gives to a pair, as a function of its similarity."""
    from vicinal.mining import MINERS, find_miner
    from vicinal.objectives import find_objective, options_of
    from vicinal.weights import plot_weights, similarity_types, weight_curves

    trust = Trust.of(allow_code or ())

    miner = find_miner(mining, trust) if mining else None
    if miner in (MINERS["distance_weighted"], MINERS["random"]):
        raise InputError(f"{mining} samples pairs at random, so pair weights are not a curve; use another miner.")
    options: dict[str, Any] = parse_pairs(option or [], "--option")
    prepare_figure(out, "--out")
    curves, types = {}, {}
    for name in loss:
        function = find_objective(name, trust)
        for key in options:
            if key not in options_of(function):
                raise UnknownName(f"option of {name}", key, options_of(function))
        curves[short_name(name)] = weight_curves(function, mining=miner, geometry=geometry, **options)
        types[short_name(name)] = asdict(similarity_types(function, mining=miner, **options))
    save_figure(plot_weights(curves), out)
    if as_json:
        print_json({name: {"depends on": types[name]} | asdict(curve) for name, curve in curves.items()})
        return
    console = Console()
    for name, dependencies in types.items():
        ticks = ", ".join(f"{kind} {'yes' if does else 'no'}" for kind, does in dependencies.items())
        console.print(f"{name} depends on similarities: {ticks}", highlight=False, soft_wrap=True)
    console.print(f"Wrote {out}", highlight=False, soft_wrap=True)
