"""What the winner sees: neighbours, a map of its space, and the classes it confuses."""

from __future__ import annotations

import numpy as np

from vicinal.phrasing import percent
from vicinal.report.blocks import Block, Chapter, Prose, Strip, Thumbnail
from vicinal.report.chapters.confusion import confusion
from vicinal.report.chapters.embedding_map import embedding_map
from vicinal.report.gallery import Album, Search, open_album, search
from vicinal.results import Leaderboard, Run

__all__ = ["pictures"]

ROWS, SHOWN = 3, 8


def pictures(board: Leaderboard) -> list[Chapter]:
    """Open the data and the embeddings of the winner once, for three chapters."""
    winner = board.of_network()[0]
    run = winner.typical(board.score)
    if not run.has_test_items:
        return [Chapter("What it finds", (Prose("The embeddings of the test items were not kept.", kind="note"),))]
    album = open_album(run)
    if run.record.gallery and run.test_items().roles is None and album.roles is None:
        return [Chapter("What it finds", (Prose(album.note, kind="note"),))]
    found = search(run, album.roles)
    which = f"seed {run.record.seed}" + ("" if run.record.fold is None else f", fold {run.record.fold}")
    return [
        Chapter("What it finds", tuple(_neighbours(run, found, album, f"{winner.label} ({which})"))),
        *embedding_map(found, album, winner.label),
        *confusion(found, album, winner.label),
    ]


def _neighbours(run: Run, found: Search, album: Album, whose: str) -> list[Block]:
    note = [Prose(album.note, kind="note")] if album.note else []
    if album.data is None:
        return list(note)
    order = np.argsort(found.scores, kind="stable")
    best, worst = order[::-1], order
    middle = order[np.argsort(np.abs(np.arange(len(order)) - len(order) // 2), kind="stable")]
    groups = tuple(
        (title, tuple(_row(found, album, int(at)) for at in _of_different_classes(found, ranked)))
        for title, ranked in (("Among the best", best), ("In the middle", middle), ("Among the worst", worst))
    )
    caption = (
        f"The {SHOWN} nearest neighbours of test items by {whose}, nearest first; the item itself is at the left. A "
        "solid blue frame and ✓ mark an item of the same class, a dashed orange frame and ✗ one of another, with its "
        f"name. Queries are sorted by their own MAP@R; by {found.distance} distance the first neighbour is right for "
        f"{percent(run.record.test['P@1'])} % of all queries."
    )
    return [*note, Strip(groups, caption)]


def _of_different_classes(found: Search, ranked: np.ndarray) -> list[int]:
    chosen: dict[int, int] = {}
    for at in ranked.tolist():
        chosen.setdefault(int(found.labels[found.queries[at]]), at)
        if len(chosen) == ROWS:
            break
    return list(chosen.values())


def _row(found: Search, album: Album, at: int) -> tuple[Thumbnail, str, tuple[Thumbnail, ...]]:
    item = int(found.queries[at])
    label = int(found.labels[item])
    answers = [int(other) for other in found.found[at, :SHOWN] if other >= 0]
    shown = tuple(
        album.picture(other, int(found.labels[other]), bool(found.labels[other] == label)) for other in answers
    )
    return album.picture(item, label), f"MAP@R {found.scores[at]:.2f}", shown
