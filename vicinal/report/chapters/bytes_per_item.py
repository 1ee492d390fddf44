"""How many bytes an item needs: shorter prefixes and fewer bits of the winner's embeddings, and what they score."""

from __future__ import annotations

import numpy as np

from vicinal.evaluation.embedding_sizes import KINDS, SizeScores, score_sizes
from vicinal.report.blocks import Chapter, Chart, Panel, Table
from vicinal.report.charts import Curve, line_chart
from vicinal.results import Leaderboard

__all__ = ["size_chapter"]

MOST = 3000  # test items that are scored, whole classes of them


def size_chapter(board: Leaderboard) -> list[Chapter]:
    """MAP@R of the winner against the bytes per item that a search reads."""
    entry = board.of_network()[0]
    run = entry.typical(board.score)
    if not run.has_test_items or run.record.distance != "cosine" or run.record.gallery:
        return []
    items = run.test_items()
    some = _whole_classes(np.asarray(items.labels))
    sizes = score_sizes(items.embeddings[some], np.asarray(items.labels)[some])
    if len({size.dim for size in sizes}) < 2:
        return []
    curves = {
        kind: Curve(
            sorted((size.searched, 100 * size.scores["MAP@R"]) for size in sizes if size.kind == kind),
            "accent" if kind == "float32" else "other",
        )
        for kind in KINDS
    }
    alt = f"MAP@R of {entry.label} by bytes per item. " + "; ".join(
        f"{size.dim} numbers, {size.kind}: {size.searched:g} bytes, {100 * size.scores['MAP@R']:.1f}" for size in sizes
    )
    label = "bytes per item that a search reads; upwards: MAP@R, per cent"
    ticks = sorted({size.searched for size in sizes if size.kind == "float32"})
    svg = line_chart(curves, x_label=label, alt=alt, ticks=ticks, log=True)
    part = "" if len(some) == len(items.labels) else f" (of {len(some):,} test items, whole classes)"
    caption = (
        f"Prefixes of the embeddings of {entry.label}, each number in 32 bits, 8 bits or one{part}. Prefixes are worth "
        "more after a training with `prefixes`, which makes the first numbers say most. A model of any line: "
        "`vicinal shorten MODEL --dim N --numbers int8 --out short`."
    )
    return [Chapter("How many bytes?", (Chart("bytes", (Panel(svg, alt),), caption), _table(sizes)))]


def _whole_classes(labels: np.ndarray) -> np.ndarray:
    """Places of the items of as many classes as fit, the same ones every time."""
    if len(labels) <= MOST:
        return np.arange(len(labels))
    codes, counts = np.unique(labels, return_counts=True)
    order = np.random.default_rng(0).permutation(len(codes))
    fitting = max(2, int(np.searchsorted(np.cumsum(counts[order]), MOST, side="right")))
    return np.flatnonzero(np.isin(labels, codes[order[:fitting]]))


def _table(sizes: list[SizeScores]) -> Table:
    best = max(size.scores["MAP@R"] for size in sizes if size.kind == "float32")
    rows = tuple(
        (
            f"{size.dim}",
            size.kind,
            f"{size.searched:,g}",
            f"{100 * size.scores['MAP@R']:.2f}",
            f"{100 * size.scores['P@1']:.2f}",
            f"{100 * size.scores['MAP@R'] / best:.0f}",
        )
        for size in sizes
    )
    head = ("numbers", "each in", "bytes", "MAP@R, %", "P@1, %", "of the best, %")
    return Table(head, rows, "What each size is worth, and how much of the best that is.", words=frozenset({1}))
