"""Chapters on cost, reproduction, and bytes per item."""

from __future__ import annotations

import shlex

import numpy as np

from vicinal._util.text import NONE, duration
from vicinal.evaluation.sizes import KINDS, SizeScores, score_sizes
from vicinal.leaderboard import Leaderboard
from vicinal.leaderboard.text import network_in_words
from vicinal.report.blocks import Block, Chapter, Chart, Code, Panel, Prose, Table
from vicinal.report.charts import Curve, line_chart

__all__ = ["cost", "repeat", "size_chapter"]


def cost(board: Leaderboard) -> list[Chapter]:
    """Report time, steps and memory of each loss."""
    rows = []
    for entry in board.entries:
        records = entry.records
        seconds = entry.seconds
        steps = float(np.mean([record.steps for record in records]))
        rows.append(
            (
                entry.name + ("" if len(board.networks) == 1 else f", {network_in_words(entry.network)}"),
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
        f"Means over runs; peak memory is the maximum over runs. Total training time: {duration(total)}.",
    )
    return [Chapter("Cost", (table,))]


def repeat(board: Leaderboard) -> list[Chapter]:
    """Report the commands, the recipe of the best trained run, and the versions."""
    commands = list(dict.fromkeys(record.command for record in board.records if record.command))
    versions = list(
        dict.fromkeys(tuple(sorted(record.versions.items())) for record in board.records if record.versions)
    )
    blocks: list[Block] = []
    if commands:
        blocks.append(Code("\n".join(commands)))
    blocks += _recipe(board)
    if versions:
        together = {name: sorted({dict(values).get(name, NONE) for values in versions}) for name, _ in versions[0]}
        blocks.append(
            Table(
                ("", "version"),
                tuple((name, ", ".join(values)) for name, values in together.items()),
                words=frozenset({0, 1}),
            )
        )
        if len(versions) > 1:
            blocks.append(Prose("The runs in this report were made with different versions.", kind="warning"))
    finished = sorted(record.finished for record in board.records if record.finished)
    if finished:
        blocks.append(Prose(f"First run finished {finished[0]}, last run {finished[-1]}.", kind="note"))
    return [Chapter("Reproduce", tuple(blocks))] if blocks else []


def _recipe(board: Leaderboard) -> list[Block]:
    """Show how to repeat the best trained run with the recipe file in its folder."""
    run = board.best_trained.best_validated(board.score)
    if run.folder is None or not run.files.recipe.is_file():
        return []
    words = ["vicinal", "train", "--recipe", str(run.files.recipe), "--out", "runs/again"]
    text = f"Each run folder has its recipe. To train only {run.record.name} again:"
    return [Prose(text), Code(shlex.join(words))]


# Bytes per item: scores of shorter prefixes and fewer bits of the recommended model's embeddings.

MOST = 3000  # largest number of test items to score, in whole classes


def size_chapter(board: Leaderboard) -> list[Chapter]:
    """Plot MAP@R of the recommended model against the bytes per item that a search reads."""
    run = board.best
    name = run.record.name
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
    alt = f"MAP@R of {name} by bytes per item. " + "; ".join(
        f"{size.dim} dimensions, {size.kind}: {size.searched:g} bytes, {100 * size.scores['MAP@R']:.1f}"
        for size in sizes
    )
    label = "bytes per item that a search reads"
    ticks = sorted({size.searched for size in sizes})
    svg = line_chart(curves, x_label=label, y_label="MAP@R, %", alt=alt, ticks=ticks, log=True)
    part = "" if len(some) == len(items.labels) else f", measured on {len(some):,} of the test items (whole classes)"
    caption = (
        f"Smaller embeddings of {name}: the first dimensions only, with 32, 8 or 1 bit per dimension{part}. Training "
        "with `prefixes` improves short prefixes. To write a smaller model: "
        "`vicinal shorten MODEL --dim N --numbers int8 --out short`."
    )
    return [Chapter("Embedding size", (Chart("bytes", (Panel(svg, alt),), caption), _table(sizes)))]


def _whole_classes(labels: np.ndarray) -> np.ndarray:
    """Return the indices of the items of as many classes as fit, always the same ones."""
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
    head = ("dimensions", "format", "bytes", "MAP@R, %", "P@1, %", "relative, %")
    caption = "Bytes: read per item in a search. Relative: MAP@R as a share of the best float32 embedding."
    return Table(head, rows, caption, words=frozenset({1}))
