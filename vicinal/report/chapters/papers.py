"""Chapter on published scores under the same protocol."""

from __future__ import annotations

from vicinal._util.text import NONE, percent
from vicinal.data import READERS, recognise
from vicinal.errors import VicinalError
from vicinal.leaderboard import Entry, Leaderboard
from vicinal.leaderboard.text import network_in_words
from vicinal.literature import published, same_method
from vicinal.report.blocks import Chapter, Table
from vicinal.runs.recipe import SCORES

__all__ = ["published_numbers"]


def published_numbers(board: Leaderboard) -> list[Chapter]:
    """List published scores of the same methods on the same data next to ours."""
    first, entries = board.first, board.of_network()
    joins = any(entry.joined is not None for entry in entries)
    rows = []
    for row in published(_known_name(first.dataset), protocol=first.protocol):
        for entry in _of_method(entries, row.method):
            if row.score not in (*SCORES, "R@1") or row.score not in entry.scores or row.part:
                continue
            together = [NONE if entry.joined is None else percent(entry.joined.mean(row.score))] if joins else []
            rows.append(
                (
                    entry.name,
                    row.score,
                    percent(entry.mean(row.score)),
                    *together,
                    percent(row.value),
                    network_in_words((row.backbone, row.dim)) if row.dim else row.backbone,
                    row.source,
                )
            )
    if not rows:
        return []
    ours = ("ours", "ours, joined") if joins else ("ours",)
    caption = (
        f"Our scores are with {network_in_words(board.main_network)}. Backbone, image size and number of steps often "
        "matter more than the loss: compare the order of the losses, not the numbers."
    )
    words = frozenset({0, 1, len(ours) + 3, len(ours) + 4})
    head = ("loss", "score", *ours, "published", "published with", "source")
    return [Chapter("Published results", (Table(head, tuple(rows), caption, words=words),))]


def _of_method(entries: list[Entry], method: str) -> list[Entry]:
    """Return the entries of a published method; only those with exactly the same spelling, if there are any."""
    alike = [entry for entry in entries if same_method(entry.method, method)]
    return [entry for entry in alike if entry.method == method] or alike


def _known_name(dataset: str) -> str:
    """Return the name of a published dataset, even if it was given as a folder."""
    if dataset in READERS:
        return dataset
    try:
        return recognise(dataset)
    except (VicinalError, OSError):
        return dataset
