"""Chapters about the recommended model: neighbours as images, a map of its embeddings, and confused classes."""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import coo_array, csr_array
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from vicinal._util.text import counted, listed, percent
from vicinal.leaderboard import Leaderboard
from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Strip, Table, Thumbnail
from vicinal.report.charts import WIDTH
from vicinal.report.drawing import LETTER, Drawing, Scale
from vicinal.report.gallery import Album, Search, evenly, open_album, search
from vicinal.report.labels import Box, place_boxes, short_names
from vicinal.runs import Run

__all__ = ["embedding_map", "pictures"]


# Class confusions.

PAIRS, CLASSES, LETTERS = 8, 12, 18


def confusion(found: Search, album: Album, whose: str) -> list[Chapter]:
    """Show a table of the most confused pairs of classes, and a heat map of these classes."""
    shares = _shares(found)
    both = (shares + shares.T).tocoo()
    pairs = [
        (float(value) / 2, int(first), int(second))
        for first, second, value in zip(both.row, both.col, both.data, strict=True)
        if first < second and value > 0
    ]
    if not pairs:
        text = "No class is confused with another: all nearest neighbours have the class of their query."
        return [Chapter("Confused classes", (Prose(text, kind="note"),))]
    pairs.sort(key=lambda pair: (-pair[0], pair[1:]))
    table = shares.tocsr()
    blocks: list[Block] = [_table(pairs[:PAIRS], table, found, album, whose)]
    chosen = list(dict.fromkeys(label for _, *members in pairs for label in members))[:CLASSES]
    if len(chosen) > 2:
        blocks.append(_heat_map(chosen, table, album))
    return [Chapter("Confused classes", tuple(blocks))]


def _shares(found: Search) -> coo_array:
    """Return, for queries of each class, the share of each class among their R nearest neighbours."""
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
    for _, first, second in pairs:
        names = (album.names[first], album.names[second])
        numbers = (
            f"{100 * shares[first, second]:.1f}",
            f"{100 * shares[second, first]:.1f}",
            f"{100 * shares[first, first]:.1f}",
        )
        shown = (names[0], examples(first), names[1], examples(second)) if album.data is not None else names
        rows.append((*shown, *numbers))
    head = ("class A", "", "class B", "") if album.data is not None else ("class A", "class B")
    words = frozenset(range(len(head)))
    caption = (
        f"The most confused pairs of classes by {whose}. For each query of a class with R other items, the R nearest "
        "neighbours are counted. A → B: share of the neighbours of class A that belong to class B, in %. A → A: share "
        "that is correct."
    )
    return Table((*head, "A → B", "B → A", "A → A"), tuple(rows), caption, words=words)


def _heat_map(chosen: list[int], shares: csr_array, album: Album) -> Chart:
    full = [album.names[label] for label in chosen]
    names = short_names(full, LETTERS)
    longest = 1.12 * LETTER * max(map(len, names))  # width on a phone
    slant = 0.72 * longest  # extent of names rotated by 45 degrees
    left, top = longest + 10, slant + 14
    side = min(30.0, (WIDTH - left - slant) / (len(chosen) - 0.5))  # the last column's name extends beyond its column
    alt = "Heat map of confusion. " + "; ".join(
        f"{full[row]}: {100 * shares[label, label]:.0f} % correct" for row, label in enumerate(chosen)
    )
    drawing = Drawing(WIDTH, top + side * len(chosen) + 6, alt)
    strongest = (
        max(float(shares[label_of_row, other]) for label_of_row in chosen for other in chosen if label_of_row != other)
        or 1.0
    )
    for row, label_of_row in enumerate(chosen):
        drawing.text(left - 6, top + side * (row + 0.5) + 4, names[row], "name", anchor="end")
        drawing.text(left + side * (row + 0.5), top - 5, names[row], "name", turn=-45)
        for column, other in enumerate(chosen):
            share = float(shares[label_of_row, other])
            title = f"{full[row]} → {full[column]}: {100 * share:.1f} %"
            area = (left + side * column + 0.5, top + side * row + 0.5, side - 1, side - 1)
            drawing.box(*area, "empty", title=title)
            if share > 0:
                opacity = min(1.0, share / (strongest if label_of_row != other else 1.0))
                drawing.box(*area, "own" if label_of_row == other else "", opacity=opacity, title=title)
    caption = (
        "Classes of the queries (rows) against classes of their neighbours (columns). Blue on the diagonal is correct; "
        "a stronger orange means more neighbours of the wrong class."
    )
    return Chart("confusion", (Panel(str(drawing), alt),), caption)


# Map of the embeddings: t-SNE of some test classes.

MAP_CLASSES, PER_CLASS, COLOURS = 12, 40, 6
MAP_LETTERS, BOLD = 26, 1.2 * LETTER  # longest name, and width of a letter on a phone
DOT, CLEARANCE, EDGE = 2.4, 3.4, 22.0  # radius of a point, its distance to names, and empty space around all points
FAR = 26  # distance from its cluster at which a name gets a connecting line


def embedding_map(found: Search, album: Album, whose: str) -> list[Chapter]:
    """Draw items of classes from the lowest to the highest score, each named next to its densest point."""
    of_query = found.labels[found.queries]
    present = np.unique(of_query)
    score = np.array([found.scores[of_query == label].mean() for label in present])
    chosen = evenly(present[np.argsort(score, kind="stable")], MAP_CLASSES)
    items = np.concatenate([evenly(np.flatnonzero(found.labels == label), PER_CLASS) for label in chosen])
    if len(items) < 12 or len(chosen) < 2:
        return []
    rows = found.embeddings[items].astype(np.float64)
    if found.distance == "cosine":  # for unit vectors, nearest by angle is nearest by distance
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    perplexity = min(30.0, (len(items) - 1) / 3)
    with threadpool_limits(1):  # for so few points, threads would mostly wait for each other
        points = TSNE(perplexity=perplexity, init="random", random_state=0).fit_transform(rows)
    names = [album.names[label] for label in chosen]
    drawing, unnamed = _draw_map(points, found.labels[items], chosen, names)
    shown = f"{len(chosen)} of {len(present):,}" if len(chosen) < len(present) else f"All {len(chosen)}"
    caption = (
        f"t-SNE of the embeddings of {whose}. {shown} test classes are shown"
        f"{', from the lowest to the highest score' if len(chosen) < len(present) else ''}, with at most {PER_CLASS} "
        "items each. Classes that overlap are confused; distances between separate clusters mean little."
    )
    if unnamed:
        caption += f" No room for the name of {counted(len(unnamed), 'class')}: {listed(unnamed)}."
    return [Chapter("Map of the embeddings", (Chart("map", (Panel(str(drawing), drawing.alt),), caption),))]


def _draw_map(
    points: np.ndarray, labels: np.ndarray, chosen: np.ndarray, names: list[str]
) -> tuple[Drawing, list[str]]:
    """Return the drawing, and the names of the classes whose name has no place that is free of points."""
    alt = f"Map of {len(points)} test items of {len(chosen)} classes: {', '.join(names)}."
    drawing = Drawing(WIDTH, WIDTH * 0.82, alt)
    (left, bottom), (right, top) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    x, y = Scale(left, right, EDGE, WIDTH - EDGE), Scale(bottom, top, drawing.height - EDGE, EDGE)
    dots = [(x(across), y(up)) for across, up in points.tolist()]
    for index, label in enumerate(chosen):
        for number in np.flatnonzero(labels == label).tolist():
            drawing.dot(*dots[number], f"c{index % COLOURS}", radius=DOT, title=names[index])
    centres = [_densest(points[labels == label]) for label in chosen]
    shown = short_names(names, MAP_LETTERS)
    wanted = [
        Box(x(across), y(up), BOLD * len(name) + 4, 13) for (across, up), name in zip(centres, shown, strict=True)
    ]
    placed = place_boxes(wanted, drawing.width, drawing.height, points=dots, clearance=CLEARANCE)
    for index, (box, own) in enumerate(zip(placed, wanted, strict=True)):
        if box is not None and (abs(box.y - own.y) > FAR or abs(box.x - own.x) > own.width / 2 + FAR):
            edge = box.y + math.copysign(box.height / 2, own.y - box.y)
            drawing.line([(own.x, own.y), (box.x, edge)], f"lead c{index % COLOURS}")
    for index, box in enumerate(placed):
        if box is not None:
            drawing.text(box.x, box.y + 4, shown[index], f"on-map c{index % COLOURS}", anchor="middle")
    return drawing, [name for name, box in zip(names, placed, strict=True) if box is None]


def _densest(points: np.ndarray) -> tuple[float, float]:
    """Return the point nearest to the others, so that a name is on a cluster even if its class forms two."""
    distances = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=-1))
    middle = int(np.median(distances, axis=1).argmin())
    return float(points[middle, 0]), float(points[middle, 1])


ROWS, SHOWN = 3, 8


def pictures(board: Leaderboard) -> list[Chapter]:
    """Open the data and embeddings of the recommended run once for three chapters: neighbours, map and confusion."""
    run = board.best
    if not run.has_test_items:
        text = "The embeddings of the test items were not saved, so there are no search results to show."
        return [Chapter("Nearest neighbours", (Prose(text, kind="note"),))]
    album = open_album(run, board.data)
    if run.record.gallery and run.test_items().roles is None and album.roles is None:
        return [Chapter("Nearest neighbours", (Prose(album.note, kind="note"),))]
    results = search(run, album.roles)
    name = run.record.name
    which = f"seed {run.record.seed}" + ("" if run.record.fold is None else f", fold {run.record.fold}")
    return [
        Chapter("Nearest neighbours", tuple(_neighbours(run, results, album, f"{name} ({which})"))),
        *embedding_map(results, album, name),
        *confusion(results, album, name),
    ]


def _neighbours(run: Run, found: Search, album: Album, whose: str) -> list[Block]:
    note = [Prose(album.note, kind="note")] if album.note else []
    if album.data is None:
        return list(note)
    order = np.argsort(found.scores, kind="stable")
    best, worst = order[::-1], order
    middle = order[np.argsort(np.abs(np.arange(len(order)) - len(order) // 2), kind="stable")]
    groups = tuple(
        (title, tuple(_row(found, album, int(query)) for query in _of_different_classes(found, ranked)))
        for title, ranked in (("Best queries", best), ("Median queries", middle), ("Worst queries", worst))
    )
    caption = (
        f"Results of the recommended model, {whose}: a query at the left, then its {SHOWN} nearest neighbours by "
        f"{found.distance} distance, nearest first. A solid blue frame and ✓ mark the class of the query, a dashed "
        "orange frame and ✗ another class. Queries are ranked by their MAP@R. The first neighbour is correct for "
        f"{percent(run.record.test['P@1'])} % of all queries."
    )
    return [*note, Strip(groups, caption)]


def _of_different_classes(found: Search, ranked: np.ndarray) -> list[int]:
    chosen: dict[int, int] = {}
    for query in ranked.tolist():
        chosen.setdefault(int(found.labels[found.queries[query]]), query)
        if len(chosen) == ROWS:
            break
    return list(chosen.values())


def _row(found: Search, album: Album, query: int) -> tuple[Thumbnail, str, tuple[Thumbnail, ...]]:
    item = int(found.queries[query])
    label = int(found.labels[item])
    answers = [int(other) for other in found.found[query, :SHOWN] if other >= 0]
    shown = tuple(
        album.picture(other, int(found.labels[other]), bool(found.labels[other] == label)) for other in answers
    )
    return album.picture(item, label), f"MAP@R {found.scores[query]:.2f}", shown
