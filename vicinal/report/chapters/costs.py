"""What it cost, and how to do it again."""

from __future__ import annotations

import numpy as np

from vicinal.phrasing import NONE, duration
from vicinal.report.blocks import Block, Chapter, Code, Prose, Table
from vicinal.results import Leaderboard
from vicinal.results.text import network_in_words

__all__ = ["cost", "repeat"]


def cost(board: Leaderboard) -> list[Chapter]:
    """Time, steps and memory of each loss."""
    rows = []
    for entry in board.entries:
        records = entry.records
        seconds = entry.seconds
        steps = float(np.mean([record.steps for record in records]))
        rows.append(
            (
                entry.label if len(board.networks) == 1 else f"{entry.label}, {network_in_words(entry.network)}",
                duration(seconds),
                f"{steps:,.0f}",
                f"{np.mean([record.best_step for record in records]):,.0f}",
                f"{1000 * seconds / steps:.1f}" if steps else NONE,
                f"{max(record.peak_memory_mib for record in records):,.0f}",
                str(max(record.tuning_trials for record in records) or NONE),
            )
        )
    total = sum(record.seconds for record in board.records)
    table = Table(
        ("loss", "time", "steps", "best step", "ms per step", "peak MiB", "tuning trials"),
        tuple(rows),
        f"Means over runs; memory is the largest of any run's process. All runs together took {duration(total)}.",
    )
    return [Chapter("Cost", (table,))]


def repeat(board: Leaderboard) -> list[Chapter]:
    """Commands, the same in Python, and versions."""
    commands = list(dict.fromkeys(record.command for record in board.records if record.command))
    calls = list(dict.fromkeys(record.call for record in board.records if record.call))
    versions = list(
        dict.fromkeys(tuple(sorted(record.versions.items())) for record in board.records if record.versions)
    )
    blocks: list[Block] = []
    if commands:
        blocks.append(Code("\n".join(commands)))
    if calls:
        blocks += [Prose("The same in Python:" if commands else "In Python:"), *map(Code, calls)]
    if versions:
        together = {name: sorted({dict(found).get(name, NONE) for found in versions}) for name, _ in versions[0]}
        blocks.append(
            Table(
                ("", "version"),
                tuple((name, ", ".join(found)) for name, found in together.items()),
                words=frozenset({0, 1}),
            )
        )
        if len(versions) > 1:
            blocks.append(Prose("Runs of different versions are in this report.", kind="warning"))
    finished = sorted(record.finished for record in board.records if record.finished)
    if finished:
        blocks.append(Prose(f"Finished between {finished[0]} and {finished[-1]}.", kind="note"))
    return [Chapter("Repeat it", tuple(blocks))] if blocks else []
