"""How a comparison shows that it moves."""

from __future__ import annotations

from typing import final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vicinal.comparing.contestants import Contestant
from vicinal.results import Record

__all__ = ["Shown"]


@final
class Shown:
    """A bar with what is done, what is running and the time left; a line above it for each run that ends."""

    def __init__(self, what: str, total: int, progress: bool, completed: int = 0) -> None:
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[running]}"),
            console=Console(stderr=True),
            disable=not progress,
            speed_estimate_period=86_400,
        )
        self._task = self._bar.add_task(what, total=total, completed=completed, running="")
        self._running: list[str] = []

    def __enter__(self) -> Shown:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def started(self, contestant: Contestant) -> None:
        """Note that a run has begun."""
        self._running.append(str(contestant))
        self._show()

    def ended(self, contestant: Contestant, record: Record | None = None) -> None:
        """Note that a run came to its end, and say how."""
        self._running.remove(str(contestant))
        self._bar.advance(self._task)
        if self._bar.disable:
            return
        if record is not None and record.status == "failed":
            self._bar.console.print(f"[red]failed[/] {escape(str(contestant))}: {escape(record.error or '')}")
        elif record is not None:
            self._bar.console.print(
                f"{escape(str(contestant))}: MAP@R {record.test['MAP@R']:.4f}, P@1 {record.test['P@1']:.4f} "
                f"[dim]in {record.seconds:.0f} s[/]",
                highlight=False,
            )
        self._show()

    def _show(self) -> None:
        self._bar.update(self._task, running=", ".join(self._running))
