"""A picture of queries with their nearest items."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from vicinal.data import Dataset
from vicinal.embedder import Embedder
from vicinal.errors import InputError
from vicinal.neighbours import find_neighbours

__all__ = ["show_neighbours"]

RIGHT, WRONG, QUERY = "#1a7f37", "#cf222e", "#57606a"
FRAME, GAP = 4, 10


def show_neighbours(
    model: Embedder, data: Dataset, *, queries: int = 6, k: int = 8, size: int = 80, seed: int = 0
) -> Image.Image:
    """Draw items with their nearest neighbours: green frames for the same class (or a shared label), red for another.

    Args:
        model: Embedder of the items.
        data: Images, preferably of classes that the model has not been trained on.
        queries: Number of queries, drawn at random; one row each, the query first.
        k: Number of neighbours of each query.
        size: Height and width of an item in the picture, in pixels.
        seed: Seed of the draw.

    Returns:
        A picture, which notebooks display; save it with `show_neighbours(...).save("neighbours.png")`.

    Example:
        >>> from vicinal.data import digits
        >>> items = digits().subset(range(20))
        >>> show_neighbours(Embedder("convnet", dim=8), items, queries=2, k=3, size=32).size
        (170, 80)
    """
    if data.kind == "vectors" or len(data) < 2:
        raise InputError(f"show_neighbours needs at least two images; got {data!r}.")
    nearest = find_neighbours(model.encode(data), k=min(k, len(data) - 1), distance=model.distance).indices
    drawn = np.random.default_rng(seed).permutation(len(data))[:queries]
    cell = size + 2 * FRAME
    sheet = Image.new("RGB", ((nearest.shape[1] + 1) * cell + GAP, len(drawn) * cell), "white")
    draw = ImageDraw.Draw(sheet)
    for row, query in enumerate(drawn.tolist()):
        for column, item in enumerate([query, *nearest[query].tolist()]):
            left, top = column * cell + (GAP if column else 0), row * cell
            label, other_label = data.labels[query], data.labels[item]
            same = (label & other_label).any() if data.has_sets else label == other_label
            draw.rectangle(
                (left, top, left + cell - 1, top + cell - 1),
                outline=QUERY if column == 0 else RIGHT if same else WRONG,
                width=FRAME - 1,
            )
            small = ImageOps.contain(data.open(item).convert("RGB"), (size, size))
            sheet.paste(small, (left + (cell - small.width) // 2, top + (cell - small.height) // 2))
    return sheet
