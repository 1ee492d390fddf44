"""A progress bar in a terminal, or a plain line every few seconds without one."""

from __future__ import annotations

import time
from typing import Any, final

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID

__all__ = ["LiveBar", "clock"]

FIRST, EVERY = 3.0, 10.0  # seconds before the first plain line, and between lines


@final
class LiveBar(Progress):
    """A rich progress bar on standard error; in a log, a pipe or a batch job, plain lines with the same content.

    Args:
        *columns: Columns of the bar.
        shown: Whether to show anything.
        **options: Options of rich's `Progress`.
    """

    def __init__(self, *columns: str | ProgressColumn, shown: bool = True, **options: Any) -> None:
        console = Console(stderr=True)
        self.shown, self._plain = shown, shown and not console.is_terminal
        self._last = time.monotonic() + FIRST - EVERY
        super().__init__(*columns, console=console, disable=not shown or self._plain, **options)

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Change a task, and print a line if one is due."""
        super().update(task_id, **changes)
        self._say(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Advance a task, and print a line if one is due."""
        super().advance(task_id, advance)
        self._say(task_id)

    def _say(self, task_id: TaskID) -> None:
        if self._plain and time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            self.console.print(in_words(self._tasks[task_id]), highlight=False, markup=False, soft_wrap=True)


def in_words(task: Task) -> str:
    """Return the content of a bar as a line of text."""
    done = f"{int(task.completed):,} of {task.total:,.0f}" if (task.total or 0) > 1 else f"{task.percentage:.0f} %"
    left = None if task.time_remaining is None else float(task.time_remaining)
    parts = [f"{task.description}: {done}", *(str(fact) for fact in task.fields.values() if fact)]
    parts += [f"{clock(float(task.elapsed))} so far"] if task.elapsed else []
    return ", ".join([*parts, *([f"about {clock(left)} left"] if left else [])])


def clock(seconds: float) -> str:
    """Return seconds as minutes and hours.

    Example:
        >>> clock(75.0), clock(3 * 3600 + 62.0)
        ('1:15', '3:01:02')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
