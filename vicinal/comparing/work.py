"""What a worker of a comparison does with a task; carries the data, and is sent to each process once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from vicinal.backbones import build_backbone
from vicinal.data import Dataset, in_memory
from vicinal.errors import Interrupted
from vicinal.results import Record, Trial, run_trial, trial_folder
from vicinal.protocols.run import failed
from vicinal.recipe import Recipe
from vicinal.tuning import tune

__all__ = ["Decoded", "RunTrial", "TuneLoss", "decode", "decoded"]

# Side and mode that images are kept in memory in; None for data as it is.
Decoded = tuple[int, str] | None


def decoded(recipe: Recipe, data: Dataset) -> Decoded:
    """Return how a recipe's images are decoded once and for all: small ones are, large ones are not."""
    if data.kind != "paths":
        return None
    expects = build_backbone(recipe.backbone, None, **recipe.backbone_options).input
    small = expects.pixels is not None and expects.short_side is None
    return (expects.size, "L" if expects.pixels == "grey" else "RGB") if small else None


def decode(data: Dataset, how: Decoded) -> Dataset:
    """Return the dataset with its images decoded that way."""
    return data if how is None else in_memory(data, how[0], mode=how[1])


@final
@dataclass(frozen=True)
class RunTrial:
    """Runs trials; one that fails becomes a record that says why.

    Attributes:
        data: The dataset, in each way of decoding that a trial needs.
        out: Folder of the comparison.
        cache: Where frozen features are kept.
        workers: Processes that decode images, for each trial.
        skip_bad: Leave out images that cannot be read.
        keep_models: Whether trained embedders stay in the trials' folders.
        command: What repeats the comparison.
    """

    data: Mapping[Decoded, Dataset]
    out: Path
    cache: Path | None = None
    workers: int = 0
    skip_bad: bool = False
    keep_models: bool = True
    command: str = ""

    def __call__(self, trial: Trial) -> Record:
        """Run one trial."""
        folder = trial_folder(self.out, trial.key)
        data = self.data[decoded(trial.recipe, self.data[None])]
        try:
            return run_trial(
                trial,
                data,
                folder,
                workers=self.workers,
                skip_bad=self.skip_bad,
                cache=self.cache,
                keep_model=self.keep_models,
                command=self.command,
            )
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the other trials go on
            return failed(trial, error, folder, command=self.command)


@final
@dataclass(frozen=True)
class TuneLoss:
    """Searches for the settings of a trial's loss, on the validation classes of its split.

    Attributes:
        data: The dataset, in each way of decoding that a trial needs.
        out: Folder of the comparison; searches are kept in `tuning/` and go on from there.
        trials: Budget of each search.
        sampler: Which sampler chooses.
        cache: Where frozen features are kept.
    """

    data: Mapping[Decoded, Dataset]
    out: Path
    trials: int
    sampler: str
    cache: Path | None = None

    def __call__(self, trial: Trial) -> Recipe | str:
        """Return the best recipe, or why there is none."""
        data = self.data[decoded(trial.recipe, self.data[None])]
        folder = self.out / "tuning"
        folder.mkdir(parents=True, exist_ok=True)
        name = trial.name.replace(" ", "")
        try:
            found = tune(
                trial.split(data).without_test(),
                trial.recipe,
                trials=self.trials,
                sampler=self.sampler,
                metric=trial.recipe.training.metric,
                storage=folder / f"{name}.db",
                progress=False,
                cache=self.cache,
            )
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the other losses go on
            return str(error)
        (folder / f"{name}.txt").write_text(f"{found}\n", encoding="utf-8")
        (folder / f"{name}.toml").write_text(found.to_toml(), encoding="utf-8")
        return found.recipe
