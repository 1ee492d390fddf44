"""Workers in processes of their own: python worker.py FOLDER TRIALS stuck|together

The folder holds `blobs.npz`, `recipe.toml` and `space.toml`. "stuck" forks one worker per sampler, each of which stops
for ever in its ninth trial and then writes its process number to `SAMPLER.pid`, to be killed. "together" forks three
workers that share one storage, and waits for them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from vicinal._util.reading import read_toml
from vicinal.data import Split, split
from vicinal.data._load import load
from vicinal.runs._train import fit as real_fit
from vicinal.runs.recipe import Recipe
from vicinal.tuning import tune
from vicinal.tuning.spaces import flat_space

torch.set_num_threads(1)
module = sys.modules["vicinal.tuning.study"]


def toy_fit(view: Split, recipe: Recipe, *, on_score: Callable[..., None], **options: Any) -> None:
    margin, rate = recipe.value("loss_options.margin"), recipe.training.learning_rate
    value = 1.0 - (margin - 0.7) ** 2 - 0.1 * (rate * 1e3 - 0.5) ** 2
    on_score(2, {"MAP@R": value / 2})
    on_score(4, {"MAP@R": value})


def stuck_fit(inner: Callable[..., Any], folder: Path, name: str) -> Callable[..., None]:
    count = [0]

    def fit(view: Split, recipe: Recipe, *, on_score: Callable[..., None], **options: Any) -> None:
        count[0] += 1

        def note(step: int, scores: dict[str, float]) -> None:
            if count[0] == 9:
                (folder / f"{name}.part").write_text(str(os.getpid()))
                os.rename(folder / f"{name}.part", folder / f"{name}.pid")
                time.sleep(600)
            on_score(step, scores)

        inner(view, recipe, on_score=note, **options)

    return fit


def slow_fit(*arguments: Any, **options: Any) -> None:
    time.sleep(0.05)
    toy_fit(*arguments, **options)


def main(folder: Path, trials: int, how: str) -> None:
    view = split(load(str(folder / "blobs.npz")), "fixed-validation", validation=0.4)
    recipe = Recipe.read(folder / "recipe.toml")
    space = flat_space(read_toml(folder / "space.toml"))
    names = ["tpe", "gp", "random", "grid", "real"] if how == "stuck" else ["one", "two", "three"]
    for name in names:
        if os.fork() == 0:
            if how == "stuck":
                module.fit = stuck_fit(real_fit if name == "real" else toy_fit, folder, name)
            else:
                module.fit = slow_fit
            tune(
                view,
                recipe,
                trials=trials,
                sampler="random" if how == "together" or name == "real" else name,
                space=space,
                storage=folder / ("shared.db" if how == "together" else f"{name}.db"),
                progress=False,
            )
            os._exit(0)
    for _ in names:
        _, status = os.wait()
        assert how == "stuck" or status == 0, status


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
