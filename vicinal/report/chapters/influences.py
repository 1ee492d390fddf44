"""Chapter on the sources of variance: the loss, its settings, the seed and the test classes."""

from __future__ import annotations

import math

from vicinal._util.text import counted, percent, short
from vicinal.leaderboard import Influence, Leaderboard, weigh_influences
from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Table
from vicinal.report.charts import WIDTH
from vicinal.report.drawing import LETTER, Drawing, Scale
from vicinal.runs import SearchRecord, read_searches

__all__ = ["influence_chapter"]

PARTS = 4  # most settings that get their own bar


def influence_chapter(board: Leaderboard) -> list[Chapter]:
    """Draw all sources of variance, and list the importance of the searched settings."""
    searches = read_searches(board.folders)
    influences = weigh_influences(board, searches)
    if not influences:
        return []
    first = influences[0]
    text = f"The choice of {first.name} affects {board.score} most: a standard deviation of"
    blocks: list[Block] = [
        Prose(f"{text} {_points(first.deviation)} points, {percent(first.share, 0)} % of the variance."),
        _chart(board, influences),
        *_table([search for search in searches if search.importance and search.is_of(board.main_network)]),
    ]
    return [Chapter("Sources of variance", tuple(blocks))]


def _chart(board: Leaderboard, influences: list[Influence]) -> Chart:
    rows: list[tuple[str, float, float, str, bool]] = []
    for influence in influences:
        value = f"{_points(influence.deviation)} points · {percent(influence.share, 0)} %"
        rows.append((influence.name, influence.deviation, influence.uneven, value, True))
        for name, share in list(influence.parts.items())[:PARTS]:
            part = influence.deviation * math.sqrt(share)
            rows.append((_setting(name), part, part, f"{percent(share, 0)} % of it", False))
    left = 16 + 1.1 * LETTER * max(len(name) for name, *_ in rows)
    right = WIDTH - 1.15 * LETTER * max(len(value) for *_, value, _ in rows) - 6
    bottom = 6 + 24.0 * len(rows)
    alt = "; ".join(
        f"{influence.name}: {_points(influence.deviation)} points, {percent(influence.share, 0)} %"
        for influence in influences
    )
    drawing = Drawing(WIDTH, bottom + 36, alt)
    x = Scale(0, 100 * max(deviation for _, deviation, *_ in rows) or 1.0, left, right)
    drawing.x_axis(x, bottom, f"standard deviation of {board.score}, points", top=2, ticks=x.ticks(4))
    for index, (name, whole, uneven, value, main) in enumerate(rows):
        y, high = 18 + 24.0 * index, 12 if main else 6
        drawing.text(left - 10, y + 4, name, "name strong" if main else "label", anchor="end")
        drawing.box(left, y - high / 2, x(100 * whole) - left, high, "whole", title=f"{name}: {value}")
        drawing.box(left, y - high / 2, x(100 * uneven) - left, high, "own", opacity=1 if main else 0.6)
        drawing.text(WIDTH - 2, y + 4, value, "value" if main else "label", anchor="end")
    return Chart("what-mattered", (Panel(str(drawing), alt),), _caption(board, influences))


def _caption(board: Leaderboard, influences: list[Influence]) -> str:
    levels = {influence.name: influence.levels for influence in influences}
    folds = len({record.fold for record in board.records}) > 1
    units = {"loss": "loss", "seed": "run of each" if folds else "seed", "test classes": "class"}
    plural = "runs of each (seeds and folds)" if folds else ""
    basis = ", ".join(
        counted(levels[name], unit, plural if name == "seed" else "") for name, unit in units.items() if name in levels
    )
    sentences = [
        f"Analysis of variance over {basis}: standard deviation of the {board.score} of a run if only this factor "
        "changes, and its share of the variance. Blue: differs between losses, so it can change their order. Grey: "
        "affects all losses equally."
    ]
    if "settings" in levels:
        sentences.append(
            f"Settings: from the search of each loss ({levels['settings']} trials or more) on the validation classes, "
            "rescaled to test scores, and divided by Optuna's importances, which are rough for so few trials."
        )
    if "learning rate" in levels:
        sentences.append(
            f"Learning rate: the {levels['learning rate']} rates that each loss tried on the validation classes, "
            "rescaled to test scores."
        )
    if "seed" not in levels:
        sentences.append("With one seed, the variance over seeds is part of the bar of the loss.")
    return " ".join(sentences)


def _table(searches: list[SearchRecord]) -> list[Block]:
    rows = tuple(
        (
            search.name if rank == 0 else "",
            _setting(name),
            percent(share, 0),
            short(search.given.get(name, "")),
            short(search.best.get(name, "")),
            f"{percent(min(search.scores), 1)} to {percent(max(search.scores), 1)}" if rank == 0 else "",
        )
        for search in searches
        for rank, (name, share) in enumerate(sorted(search.importance.items(), key=lambda item: -item[1]))
    )
    if not rows:
        return []
    head = ("loss", "setting", "importance, %", "default", "best", "scores of trials")
    caption = "Tuned settings, and their share of the variance between the trials of a loss."
    return [Table(head, rows, caption, words=frozenset({0, 1}))]


def _setting(name: str) -> str:
    return name.rpartition(".")[2]


def _points(deviation: float) -> str:
    return percent(deviation, 1 if deviation >= 0.01 else 2)
