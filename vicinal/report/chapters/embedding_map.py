"""The space on a page: t-SNE of some test classes."""

from __future__ import annotations

import numpy as np
from sklearn.manifold import TSNE

from vicinal.report.blocks import Chapter, Chart, Panel
from vicinal.report.charts import WIDTH
from vicinal.report.drawing import LETTER, Drawing, Scale
from vicinal.report.gallery import Album, Search, evenly
from vicinal.report.labels import Box, place_boxes, short_names

__all__ = ["embedding_map"]

CLASSES, PER_CLASS, COLOURS = 12, 40, 6
LETTERS, BOLD = 22, 1.2 * LETTER  # of a name at most, and the width of one on a phone
FAR = 20  # from its heap, so that a name needs a line to it


def embedding_map(found: Search, album: Album, whose: str) -> list[Chapter]:
    """Draw items of classes from the worst to the best, each class named at its middle."""
    of_query = found.labels[found.queries]
    present = np.unique(of_query)
    score = np.array([found.scores[of_query == label].mean() for label in present])
    chosen = evenly(present[np.argsort(score, kind="stable")], CLASSES)
    items = np.concatenate([evenly(np.flatnonzero(found.labels == label), PER_CLASS) for label in chosen])
    if len(items) < 12 or len(chosen) < 2:
        return []
    rows = found.embeddings[items].astype(np.float64)
    if found.distance == "cosine":  # among unit vectors the nearest by angle are the nearest in space
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    perplexity = min(30.0, (len(items) - 1) / 3)
    places = TSNE(perplexity=perplexity, init="random", random_state=0).fit_transform(rows)
    names = [album.names[label] for label in chosen]
    alt = f"Map of {len(items)} test items of {len(chosen)} classes: {', '.join(names)}."
    drawing = Drawing(WIDTH, WIDTH * 0.82, alt)
    (left, bottom), (right, top) = places.min(axis=0).tolist(), places.max(axis=0).tolist()
    x, y = Scale(left, right, 10, WIDTH - 10), Scale(bottom, top, WIDTH * 0.82 - 10, 10)
    labels = found.labels[items]
    for at, label in enumerate(chosen):
        for across, up in places[labels == label].tolist():
            drawing.dot(x(across), y(up), f"c{at % COLOURS}", radius=2.4, title=names[at])
    heaps = [_densest(places[labels == label]) for label in chosen]
    shown = short_names(names, LETTERS)
    wanted = [Box(x(across), y(up), BOLD * len(name) + 6, 15) for (across, up), name in zip(heaps, shown, strict=True)]
    placed = place_boxes(wanted, drawing.width, drawing.height)
    for at, (box, own) in enumerate(zip(placed, wanted, strict=True)):
        if abs(box.y - own.y) > FAR or abs(box.x - own.x) > FAR:
            drawing.line([(own.x, own.y), (box.x, box.y)], f"lead c{at % COLOURS}")
    for at, box in enumerate(placed):
        drawing.text(box.x, box.y + 4, shown[at], f"on-map c{at % COLOURS}", anchor="middle")
    caption = (
        f"Test items as {whose} places them, flattened to a page by t-SNE: {len(chosen)} classes from the worst to the "
        "best scored. A class in one tight heap is found easily; names that lie in one heap are confused. Distances "
        "between heaps mean little."
    )
    return [Chapter("Map of the space", (Chart("map", (Panel(str(drawing), alt),), caption),))]


def _densest(places: np.ndarray) -> tuple[float, float]:
    """The item of a class that is nearest to the others, so that a name stands on its heap even if there are two."""
    distances = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=-1))
    middle = int(np.median(distances, axis=1).argmin())
    return float(places[middle, 0]), float(places[middle, 1])
