"""What a worker of a comparison does with a contestant; carries the data, and is sent to each process once."""

from __future__ import annotations

import traceback
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, final

from vicinal.atomic import write_atomically
from vicinal.comparing.contestants import Contestant
from vicinal.comparing.trial_log import TrialLog
from vicinal.data import Dataset
from vicinal.errors import DataError, Interrupted
from vicinal.fitting import train
from vicinal.named_code import allow_code
from vicinal.results import Journal, Record, RunFiles
from vicinal.results.searches import search_name
from vicinal.training.processes import import_fabric
from vicinal.tuning import Tuned, search_space, tune
from vicinal.tuning.ladder import FAR, NEAR

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
        notes: What a reader of any of its scores has to know.
        call: The same in Python.
        allowed: Modules and files whose code may be imported.
        same_batches: Whether batches are composed alike for all losses.
    """

    data: Dataset
    data_hash: str
    out: Path
    cache: Path | None = None
    workers: int = 0
    keep_models: bool = True
    command: str = ""
    notes: tuple[str, ...] = ()
    call: str = ""
    allowed: tuple[str, ...] = ()
    same_batches: bool = False

    def get_ready(self) -> None:
        """Import what the first run in a process of its own needs."""
        import_fabric()

    def key(self, contestant: Contestant) -> str:
        """Return what the run of a contestant is called in the journal."""
        return contestant.recipe.key(self.data_hash, contestant.name)

    def log_of(self, contestant: Contestant) -> Path:
        """Return the file in which the run of a contestant says how far it is."""
        return RunFiles(Journal(self.out).run_folder(self.key(contestant))).log

    def __call__(self, contestant: Contestant) -> Record:
        """Run one contestant; a run that was interrupted goes on from its last checkpoint.

        A rung is trained and not tested. Its checkpoint stays: the run that it may become goes on from there.
        """
        allow_code(*self.allowed)
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
                tests=contestant.role != "rung",
                facts=self.facts(contestant),
            )
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the others go on
            return self.failed(contestant, error)
        if contestant.role != "rung":
            self.forget(run.record.key)
        return run.record

    def forget(self, key: str) -> None:
        """Delete the checkpoints of a run, which only an unfinished one needs."""
        files = RunFiles(Journal(self.out).run_folder(key))
        for checkpoint in (files.last, files.best, files.former_best):
            checkpoint.unlink(missing_ok=True)

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
            **self.facts(contestant),
            status="failed",
            error=text,
            recipe=recipe.model_dump(mode="json"),
            selected_on="test" if recipe.select_on_test else "last" if recipe.protocol == "default" else "validation",
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def again(self, contestant: Contestant, record: Record) -> Record:
        """Return the record of a rung as that of a run: one that failed, or that an earlier version has tested."""
        # What was noted of its training stays: that the budget was next to nothing, say.
        notes = tuple(dict.fromkeys([*self.notes, *record.notes]))
        return record.model_copy(update={**self.facts(contestant), "notes": notes})

    def facts(self, contestant: Contestant) -> dict[str, Any]:
        """Return what is known of a contestant's record before it runs."""
        return {
            "key": self.key(contestant),
            "name": contestant.name,
            "data": self.data_hash,
            "role": contestant.role,
            "same_batches": self.same_batches,
            "demands": contestant.demands,
            "tuning_trials": contestant.tuning_trials,
            "tuning_images": contestant.tuning_images,
            "rates": contestant.rates,
            "command": self.command,
            "notes": self.notes,
            "call": self.call,
        }


@final
@dataclass(frozen=True)
class TuneContestant:
    """Searches for the settings of a contestant, on the validation classes of its split.

    Attributes:
        data: The whole dataset.
        out: Folder of the comparison; searches are kept in `tuning/` and go on from there.
        trials: Of each contestant, the learning rates that it has tried among them.
        sampler: Which sampler chooses.
        cache: Where frozen features are kept.
        allowed: Modules and files whose code may be imported.
    """

    data: Dataset
    out: Path
    trials: int
    sampler: str
    cache: Path | None = None
    allowed: tuple[str, ...] = ()

    def log_of(self, contestant: Contestant) -> Path:
        """Return the file in which the search of a contestant says how far it is."""
        name = search_name(contestant.name, contestant.recipe.backbone, contestant.recipe.dim)
        return self.out / "tuning" / f"{name}.progress.jsonl"

    def __call__(self, contestant: Contestant) -> Tuned | str:
        """Return what was found, or why nothing was."""
        allow_code(*self.allowed)
        recipe, climbed = contestant.recipe, bool(contestant.curve)
        split = recipe.split(self.data).without_test()
        log, name = self.log_of(contestant), search_name(contestant.name, recipe.backbone, recipe.dim)
        folder = log.parent
        folder.mkdir(parents=True, exist_ok=True)
        try:
            space = search_space(recipe, classes=len(split.train.classes), spread=NEAR if climbed else FAR)
            tuned = tune(
                split,
                recipe,
                space=space,
                start_curve=contestant.curve,
                # The rung that won is the first trial of the search, and is not run again.
                trials=self.trials - contestant.tuning_trials + climbed,
                sampler=self.sampler,
                storage=folder / f"{name}.db",
                progress=False,
                cache=self.cache,
                watch=partial(TrialLog, log),
            )
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the others go on
            return str(error)
        finally:
            log.unlink(missing_ok=True)
        write_atomically(folder / f"{name}.txt", f"{tuned}\n")
        write_atomically(folder / f"{name}.toml", tuned.to_toml())
        found = {"backbone": recipe.backbone, "dim": recipe.dim}
        tuned.summary(contestant.name).model_copy(update=found).write(self.out)
        return tuned
