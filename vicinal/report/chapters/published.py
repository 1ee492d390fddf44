"""What papers report under the same protocol."""

from __future__ import annotations

from vicinal.data import READERS, recognise
from vicinal.errors import VicinalError
from vicinal.report.blocks import Chapter, Table
from vicinal.report.comparison import Comparison
from vicinal.report.words import NONE, network, percent
from vicinal.statistics import published

__all__ = ["published_numbers"]


def published_numbers(comparison: Comparison) -> list[Chapter]:
    """Published scores of the same losses on the same data beside ours."""
    first = comparison.first
    entries = {entry.name: entry for entry in comparison.losses}
    joins = first.protocol == "reality-check"
    joined = {
        entry.name: entry for entry in comparison.joined if (entry.backbone, entry.dim) == comparison.main_network
    }
    rows = []
    for row in published(_known_name(first.dataset), protocol=first.protocol):
        entry = entries.get(row.loss)
        if entry is None or not all(row.metric in record.test for record in entry.records):
            continue
        together = joined.get(row.loss)
        rows.append(
            (
                entry.label,
                row.metric,
                percent(entry.mean(row.metric)),
                *([percent(together.mean(row.metric)) if together else NONE] if joins else []),
                percent(row.value),
                network(row.backbone, row.dim) if row.dim else row.backbone,
                row.source,
            )
        )
    if not rows:
        return []
    ours = ("ours", "ours, joined") if joins else ("ours",)
    caption = (
        f"Ours with {network(*comparison.main_network)}. Another backbone, image size or number of steps moves scores "
        "more than a loss does: compare the order, not the numbers."
    )
    words = frozenset({0, 1, len(ours) + 3, len(ours) + 4})
    return [
        Chapter(
            "Published numbers",
            (
                Table(
                    ("loss", "score", *ours, "published", "their network", "source"), tuple(rows), caption, words=words
                ),
            ),
        )
    ]


def _known_name(dataset: str) -> str:
    """The name of a published set, also where it was given as a folder."""
    if dataset in READERS:
        return dataset
    try:
        return recognise(dataset)
    except (VicinalError, OSError):
        return dataset
