"""How a comparison shows that it moves: what is done, how far each run is, and the time left."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vicinal.comparing.contestants import Contestant
from vicinal.live_bar import LiveBar
from vicinal.results import Record

__all__ = ["Shown"]

LOOK = 1.0  # seconds between two looks at the logs of what is running
TAIL = 4096  # bytes: more than the last line of a log


@final
class Shown:
    """A bar with what is done, what is running and the time left; a line above it for each run that ends.

    Args:
        what: What there are several of.
        total: How many.
        progress: Whether to show anything.
        completed: How many there were before.
        log_of: Where a running one writes its log, whose last line says how far it is.
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
        self._closed = threading.Event()

    def __enter__(self) -> Shown:
        self._bar.start()
        if self._bar.shown and self._log_of is not None:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        self._bar.stop()

    def started(self, contestant: Contestant) -> None:
        """Note that a run has begun."""
        self._running.append(contestant)
        self._show()

    def ended(self, contestant: Contestant, record: Record | None = None) -> None:
        """Note that a run came to its end, and say how."""
        self._running.remove(contestant)
        self._ended += 1
        if self._bar.shown and record is not None and record.status == "failed":
            self._bar.console.print(f"[red]failed[/] {escape(str(contestant))}: {escape(record.error or '')}")
        elif self._bar.shown and record is not None:
            self._bar.console.print(
                f"{escape(str(contestant))}: MAP@R {record.test['MAP@R']:.4f}, P@1 {record.test['P@1']:.4f} "
                f"[dim]in {record.seconds:.0f} s[/]",
                highlight=False,
            )
        self._show()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK):
            self._show()

    def _show(self) -> None:
        running = list(self._running)
        lines = [{} if self._log_of is None else last_line(self._log_of(contestant)) for contestant in running]
        begun = sum(
            min(1.0, line.get("step", 0) / contestant.recipe.training.steps)
            for contestant, line in zip(running, lines, strict=True)
        )
        told = [how_far(str(contestant), line) for contestant, line in zip(running, lines, strict=True)]
        self._bar.update(self._task, completed=self._ended + begun, running=", ".join(told))


def how_far(name: str, line: dict[str, Any]) -> str:
    """A run's name, and what the last line of its log says.

    Example:
        >>> how_far("triplet", {"step": 120, "loss": 0.25, "images_per_second": 812.3})
        'triplet (step 120, loss 0.2500, 812 images/s)'
    """
    forms = {"step": "step {}", "loss": "loss {:.4f}", "score": "score {:.4f}", "images_per_second": "{:.0f} images/s"}
    facts = [form.format(line[key]) for key, form in forms.items() if line.get(key) is not None]
    return f"{name} ({', '.join(facts)})" if facts else name


def last_line(log: Path) -> dict[str, Any]:
    """The last whole line of a log of JSON lines; empty where there is none yet."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            lines = file.read().split(b"\n")
        return dict(json.loads(lines[-2])) if len(lines) > 1 else {}
    except (OSError, ValueError):
        return {}
