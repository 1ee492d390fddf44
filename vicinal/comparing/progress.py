"""Progress of a comparison: finished runs, progress of each running one, and the time left."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vicinal._util.progress import LiveBar
from vicinal._util.text import counted, duration
from vicinal.comparing.contestants import Contestant
from vicinal.comparing.plan import PANEL, panel_in_words
from vicinal.data import Dataset, Split, leak_note
from vicinal.runs import Record
from vicinal.runs.draft import images_per_step
from vicinal.runs.notes import budget_note, colour_note, random_network_note, share_note, validation_note
from vicinal.runs.recipe import Recipe
from vicinal.training.log import TIME_USED

__all__ = ["Shown", "features_in_words", "opening_words"]


LOOK = 1.0  # seconds between two reads of the logs of running runs
TAIL = 16_384  # bytes read from the end of a log; usually more than between two scores


@final
class Shown:
    """A progress bar with finished and running runs and the time left, and a line for each run that ends.

    Args:
        what: Name of the tasks.
        total: Number of tasks.
        progress: Whether to show anything.
        completed: Number of tasks that were finished before.
        log_of: Function that returns the log file of a running task, whose last lines show its progress.
    """

    def __init__(
        self,
        what: str,
        total: int,
        progress: bool,
        completed: int = 0,
        log_of: Callable[[Contestant], Path] | None = None,
    ) -> None:
        self._bar = LiveBar(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[running]}"),
            shown=progress,
            speed_estimate_period=86_400,
        )
        self._task = self._bar.add_task(what, total=total, completed=completed, running="")
        self._ended, self._running = completed, list[Contestant]()
        self._log_of = log_of
        self._note = ""
        self._closed = threading.Event()

    def __enter__(self) -> Shown:
        self._bar.start()
        if self._bar.shown:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._bar.stop()

    def started(self, contestant: Contestant) -> None:
        """Record that a run has started."""
        self._running.append(contestant)
        self._show()

    def ended(self, contestant: Contestant, record: Record | None = None) -> None:
        """Record that a run has ended, and print its result."""
        self._running.remove(contestant)
        self._ended += 1
        self._note = ""
        if self._bar.shown and record is not None and record.status == "failed":
            self._bar.console.print(f"[red]failed[/] {escape(str(contestant))}: {escape(record.error or '')}")
        elif self._bar.shown and record is not None:
            self._bar.console.print(
                f"{escape(str(contestant))}: {scores_in_words(record)} [dim]in {record.seconds:.0f} s[/]",
                highlight=False,
            )
        self._show()

    def note(self, text: str) -> None:
        """Show the progress of a running task that writes no log."""
        self._note = text
        self._show()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK):
            self._show()

    def _show(self) -> None:
        running = list(self._running)
        facts_of_runs = [{} if self._log_of is None else last_facts(self._log_of(contestant)) for contestant in running]
        begun = sum(
            share_done(facts, contestant.recipe.training.steps)
            for contestant, facts in zip(running, facts_of_runs, strict=True)
        )
        descriptions = [
            how_far(str(contestant), facts) for contestant, facts in zip(running, facts_of_runs, strict=True)
        ]
        descriptions += [self._note] if self._note else []
        self._bar.update(self._task, completed=self._ended + begun, running=", ".join(descriptions))


def scores_in_words(record: Record) -> str:
    """Describe the scores of a finished run; only the validation score for a run that tries a learning rate."""
    if record.role == "rung":
        return f"validation {record.score} {record.validation[record.score]:.4f}"
    return f"MAP@R {record.test['MAP@R']:.4f}, P@1 {record.test['P@1']:.4f}"


def how_far(name: str, facts: Mapping[str, Any]) -> str:
    """Describe the progress of a run: its name and the facts in the last lines of its log.

    Example:
        >>> how_far("triplet", {"step": 120, "loss": 0.25, "images_per_second": 812.3})
        'triplet (step 120, loss 0.2500, 812 images/s)'
        >>> how_far("triplet", {"trial": 2, "trials": 30, "step": 40, "loss": None})
        'triplet (trial 2 of 30, step 40)'
    """
    forms = {"step": "step {}", "loss": "loss {:.4f}", "score": "score {:.4f}", "images_per_second": "{:.0f} images/s"}
    parts = [f"trial {facts['trial']} of {facts['trials']}"] if "trials" in facts else []
    parts += [form.format(facts[key]) for key, form in forms.items() if facts.get(key) is not None]
    return f"{name} ({', '.join(parts)})" if parts else name


def share_done(facts: Mapping[str, Any], steps: int | None) -> float:
    """Return the finished share of a run, or of a search, whose trials count equally.

    Args:
        facts: Facts in the last lines of its log.
        steps: Number of steps of a run; None if only time limits it.

    Example:
        >>> share_done({"step": 25}, 100), share_done({"trial": 2, "trials": 10, "step": 50}, 100)
        (0.25, 0.15)
    """
    of_steps = 0.0 if steps is None else facts.get("step", 0) / steps
    share = min(1.0, max(of_steps, facts.get(TIME_USED) or 0.0))
    return float((facts["trial"] - 1 + share) / facts["trials"] if "trials" in facts else share)


def last_facts(log: Path) -> dict[str, Any]:
    """Return the latest value of each fact in the last complete lines of a JSON Lines log.

    Losses and scores are on separate lines. Empty if there are no lines yet.
    """
    facts: dict[str, Any] = {}
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    for line in lines:
        with suppress(ValueError):  # the first line may be cut off
            facts |= json.loads(line)
    return facts


# Messages before a comparison starts: what is compared, on which data, notes, and the budget.


def opening_words(first: Recipe, data: Dataset, split: Split, notes: Sequence[str], *, panel: bool) -> Iterator[str]:
    """Yield lines that describe the comparison, its data and budget, and all notes on the scores.

    Args:
        first: Recipe of the first run.
        data: Whole dataset.
        split: Split of the first run.
        notes: Notes that the comparison already has.
        panel: Whether the losses are the default panel.
    """
    training = first.training
    sides = {"training": split.train, "validation": split.usable_validation, "test": split.test}
    divided = ", ".join(f"{len(view.classes)} {side}" for side, view in sides.items() if view is not None)
    yield f"Data: {data.name}, {counted(len(data), 'item')} in {counted(len(data.classes), 'class')} ({divided})."
    yield f"Network: {_network(first)}."
    if panel:
        yield f"Comparing {len(PANEL)} losses of different types:"
        yield from (f"  {line}" for line in panel_in_words())
    yield _budget(first)
    own_notes = [
        leak_note(split),
        validation_note(split),
        share_note(first, split),
        random_network_note(first, split.train),
        colour_note(first, split.train),
    ]
    if training.steps is not None:
        own_notes.append(budget_note(training.steps * images_per_step(first), split.train))
    for note in dict.fromkeys([*notes, *own_notes]):
        if note is not None:
            yield f"Note: {note}"


def features_in_words(seconds: float) -> str:
    """Describe how long it takes to compute the features first."""
    return f"Computing features first ({_about(seconds)}); they are cached for later runs."


def _budget(recipe: Recipe) -> str:
    """Describe the budget of each run, and when it stops early."""
    training, batch = recipe.training, images_per_step(recipe)
    limit = "" if training.seconds is None else f" for {duration(training.seconds)}"
    if training.steps is None:
        text = f"Budget per run:{limit.removeprefix(' for')}, in steps of {batch} images"
    else:
        text = f"Budget per run: {training.steps * batch:,} images in {counted(training.steps, 'step')} of {batch}"
        text += f", or {limit.removeprefix(' for ')} if that is shorter" if limit else ""
    if training.patience is not None:
        text += f"; stops early after {counted(training.patience, 'evaluation')} without improvement"
    return f"{text}."


def _network(recipe: Recipe) -> str:
    weights = "pretrained weights" if recipe.pretrained else "random weights"
    trained = "; it is frozen, only a head is trained" if recipe.freeze is True else ""
    return f"{recipe.backbone} with {weights}{trained}"


def _about(seconds: float) -> str:
    return f"about {max(1, round(seconds))} s" if seconds < 60 else f"about {duration(seconds)}"
