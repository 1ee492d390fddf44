"""What a worker of a comparison does with a contestant; carries the data, and is sent to each process once."""

from __future__ import annotations

import traceback
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from vicinal.atomic import write_atomically
from vicinal.comparing.contestants import Contestant
from vicinal.data import Dataset
from vicinal.errors import DataError, Interrupted
from vicinal.fitting import train
from vicinal.recipe import Recipe
from vicinal.results import Journal, Record, RunFiles
from vicinal.tuning import tune

__all__ = ["RunContestant", "TuneContestant"]


@final
@dataclass(frozen=True)
class RunContestant:
    """Trains and scores; what fails becomes a record that says why.

    Attributes:
        data: The whole dataset.
        data_hash: Of its content.
        out: Folder of the comparison.
        cache: Where frozen features are kept.
        workers: Processes that decode images, for each run.
        keep_models: Whether trained embedders stay in the runs' folders.
        command: What repeats the comparison.
        call: The same in Python.
    """

    data: Dataset
    data_hash: str
    out: Path
    cache: Path | None = None
    workers: int = 0
    keep_models: bool = True
    command: str = ""
    call: str = ""

    def key(self, contestant: Contestant) -> str:
        """Return what the run of a contestant is called in the journal."""
        return contestant.recipe.key(self.data_hash, contestant.name)

    def __call__(self, contestant: Contestant) -> Record:
        """Run one contestant; a run that was interrupted goes on from its last checkpoint."""
        files = RunFiles(Journal(self.out).run_folder(self.key(contestant)))
        try:
            run = train(
                contestant.recipe,
                data=self.data,
                folder=files.folder,
                resume=True,
                workers=self.workers,
                cache=self.cache,
                progress=False,
                keep_model=self.keep_models,
                facts=self._facts(contestant),
            )
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the others go on
            return self.failed(contestant, error)
        for checkpoint in (files.last, files.best):  # which only an unfinished run needs
            checkpoint.unlink(missing_ok=True)
        return run.record

    def failed(self, contestant: Contestant, error: BaseException | str) -> Record:
        """Return the record of a run that failed, and leave the traceback in its folder."""
        text = error if isinstance(error, str) else str(error) or type(error).__name__
        if not isinstance(error, str):
            files = RunFiles(Journal(self.out).run_folder(self.key(contestant)))
            with suppress(OSError, DataError):  # the disk may be what failed
                files.folder.mkdir(parents=True, exist_ok=True)
                write_atomically(files.error, "".join(traceback.format_exception(error)))
                text += f" The traceback is in {files.folder.name}/{files.error.name}."
        recipe = contestant.recipe
        return Record(
            **self._facts(contestant),
            status="failed",
            error=text,
            recipe=recipe.model_dump(mode="json"),
            selected_on="test" if recipe.select_on_test else "last" if recipe.protocol == "default" else "validation",
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _facts(self, contestant: Contestant) -> dict[str, Any]:
        return {
            "key": self.key(contestant),
            "name": contestant.name,
            "data": self.data_hash,
            "demands": contestant.demands,
            "tuning_trials": contestant.tuning_trials,
            "command": self.command,
            "call": self.call,
        }


@final
@dataclass(frozen=True)
class TuneContestant:
    """Searches for the settings of a contestant, on the validation classes of its split.

    Attributes:
        data: The whole dataset.
        out: Folder of the comparison; searches are kept in `tuning/` and go on from there.
        trials: Budget of each search.
        sampler: Which sampler chooses.
        cache: Where frozen features are kept.
    """

    data: Dataset
    out: Path
    trials: int
    sampler: str
    cache: Path | None = None

    def __call__(self, contestant: Contestant) -> Recipe | str:
        """Return the best recipe, or why there is none."""
        folder = self.out / "tuning"
        folder.mkdir(parents=True, exist_ok=True)
        name = contestant.name.replace(" ", "")
        try:
            tuned = tune(
                contestant.recipe.split(self.data).without_test(),
                contestant.recipe,
                trials=self.trials,
                sampler=self.sampler,
                storage=folder / f"{name}.db",
                progress=False,
                cache=self.cache,
            )
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the others go on
            return str(error)
        write_atomically(folder / f"{name}.txt", f"{tuned}\n")
        write_atomically(folder / f"{name}.toml", tuned.to_toml())
        tuned.summary(contestant.name).write(self.out)
        return tuned.recipe
