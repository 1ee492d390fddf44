"""Which classes are taken for each other."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array

from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Table, Thumbnail
from vicinal.report.charts import WIDTH
from vicinal.report.drawing import LETTER, Drawing
from vicinal.report.gallery import Album, Search, evenly
from vicinal.report.labels import short_names

__all__ = ["confusion"]

PAIRS, CLASSES, LETTERS = 8, 12, 18


def confusion(found: Search, album: Album, whose: str) -> list[Chapter]:
    """A table of the pairs of classes most often taken for each other, and a heat map of the classes in it."""
    shares = _shares(found)
    both = (shares + shares.T).tocoo()
    pairs = [
        (float(value) / 2, int(one), int(other))
        for one, other, value in zip(both.row, both.col, both.data, strict=True)
        if one < other and value > 0
    ]
    if not pairs:
        return [Chapter("Confusion", (Prose("No class was ever taken for another.", kind="note"),))]
    pairs.sort(key=lambda pair: (-pair[0], pair[1:]))
    table = shares.tocsr()
    blocks: list[Block] = [_table(pairs[:PAIRS], table, found, album, whose)]
    chosen = list(dict.fromkeys(label for _, *members in pairs for label in members))[:CLASSES]
    if len(chosen) > 2:
        blocks.append(_heat_map(chosen, table, album))
    return [Chapter("Confusion", tuple(blocks))]


def _shares(found: Search) -> coo_array:
    """For queries of each class, how much of what should be their class is each other class."""
    within = np.arange(found.found.shape[1]) < found.relevant[:, None]
    rows, columns = np.nonzero(within & (found.found >= 0))
    of_query = found.labels[found.queries]
    counts = np.bincount(of_query, minlength=int(found.labels.max()) + 1)
    weights = 1 / (found.relevant[rows] * counts[of_query[rows]])
    size = len(counts)
    shares = coo_array(
        (weights, (of_query[rows], found.labels[found.found[rows, columns]])), shape=(size, size), dtype=np.float64
    )
    shares.sum_duplicates()
    return shares


def _table(pairs: list[tuple[float, int, int]], shares: csr_array, found: Search, album: Album, whose: str) -> Table:
    def examples(label: int) -> tuple[Thumbnail, ...]:
        items = evenly(np.flatnonzero(found.labels == label), 3)
        return tuple(album.picture(int(item), label) for item in items)

    rows = []
    for _, one, other in pairs:
        names = (album.names[one], album.names[other])
        numbers = (
            f"{100 * shares[one, other]:.1f}",
            f"{100 * shares[other, one]:.1f}",
            f"{100 * shares[one, one]:.1f}",
        )
        shown = (names[0], examples(one), names[1], examples(other)) if album.data is not None else names
        rows.append((*shown, *numbers))
    head = ("class", "", "taken for", "") if album.data is not None else ("class", "taken for")
    words = frozenset(range(len(head)))
    caption = (
        f"Where {whose} goes wrong: of the neighbours that should belong to the first class, how many per cent "
        "belong to the second; the same the other way round; and how many are right."
    )
    return Table((*head, "this way", "that way", "right"), tuple(rows), caption, words=words)


def _heat_map(chosen: list[int], shares: csr_array, album: Album) -> Chart:
    full = [album.names[label] for label in chosen]
    names = short_names(full, LETTERS)
    longest = 1.12 * LETTER * max(map(len, names))  # as wide as on a phone
    slant = 0.72 * longest  # of names that are turned by 45 degrees
    left, top = longest + 10, slant + 14
    side = min(30.0, (WIDTH - left - slant) / (len(chosen) - 0.5))  # the last column's name leans out
    alt = "Heat map of confusion. " + "; ".join(
        f"{full[row]}: {100 * shares[label, label]:.0f} % right" for row, label in enumerate(chosen)
    )
    drawing = Drawing(WIDTH, top + side * len(chosen) + 6, alt)
    strongest = max(float(shares[one, other]) for one in chosen for other in chosen if one != other) or 1.0
    for row, one in enumerate(chosen):
        drawing.text(left - 6, top + side * (row + 0.5) + 4, names[row], "name", anchor="end")
        drawing.text(left + side * (row + 0.5), top - 5, names[row], "name", turn=-45)
        for column, other in enumerate(chosen):
            share = float(shares[one, other])
            title = f"{full[row]} → {full[column]}: {100 * share:.1f} %"
            place = (left + side * column + 0.5, top + side * row + 0.5, side - 1, side - 1)
            drawing.box(*place, "empty", title=title)
            if share > 0:
                opacity = min(1.0, share / (strongest if one != other else 1.0))
                drawing.box(*place, "own" if one == other else "", opacity=opacity, title=title)
    caption = (
        "The classes of the table against each other: rows are queries, columns what was found. The stronger the "
        "orange, the more neighbours are of the wrong class; blue on the diagonal is right."
    )
    return Chart("confusion", (Panel(str(drawing), alt),), caption)
