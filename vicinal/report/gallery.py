"""Search results of a run: neighbours of test items, and their images if the data is available."""

from __future__ import annotations

import base64
import warnings
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from vicinal.data import READERS, Dataset, load
from vicinal.errors import InputError, VicinalError
from vicinal.evaluation.items import name_a_gallery
from vicinal.evaluation.retrieval import average_precision_at_r
from vicinal.neighbours import find_neighbours
from vicinal.report.blocks import Thumbnail
from vicinal.report.labels import short_names
from vicinal.runs import Run

__all__ = ["Album", "Search", "evenly", "open_album", "search"]

QUERIES, NEIGHBOURS = 2000, 100  # upper limits
SIDE, QUALITY = 120, 76  # largest side in pixels and JPEG quality of images
LETTERS = 40  # longest name under an image, in up to four lines

Indices = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Search:
    """Neighbours of test items.

    Args:
        embeddings: Embeddings of all test items.
        labels: Labels of all test items.
        queries: Indices of the query items.
        found: Neighbours of each query, nearest first; -1 if there are no more.
        relevant: Number of relevant items of each query, at most the number of neighbours.
        scores: MAP@R of each query.
        distance: Distance of the search.
    """

    embeddings: npt.NDArray[np.float32]
    labels: Indices
    queries: Indices
    found: Indices
    relevant: Indices
    scores: npt.NDArray[np.float64]
    distance: str


@final
@dataclass(frozen=True)
class Album:
    """Images of test items.

    Args:
        data: Test items in the order of the embeddings; None if there are no images.
        names: Names of the classes.
        note: Note for the reader, or the reason why there are no images.
        roles: Roles of the test items, if the data has them.
    """

    data: Dataset | None
    names: tuple[str, ...]
    note: str = ""
    roles: npt.NDArray[Any] | None = None

    @cached_property
    def short(self) -> list[str]:
        """Class names that fit under an image."""
        return short_names(self.names, LETTERS)

    def picture(self, item: int, label: int, hit: bool | None = None) -> Thumbnail:
        """Return a small image of one item."""
        if self.data is None:
            raise VicinalError("This album has no pictures.")
        if item not in self._uris:
            image = self.data.image(item)
            image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
            buffer = BytesIO()
            image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
            self._uris[item] = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        return Thumbnail(self._uris[item], self.names[label], hit, self.short[label])

    @cached_property
    def _uris(self) -> dict[int, str]:
        """Cached images: many items are neighbours of several queries."""
        return {}


def open_album(run: Run, data: Dataset | None = None) -> Album:
    """Open the data of a run as its recipe did, and reproduce its split.

    Args:
        run: Run whose test items to show.
        data: Dataset of the run, if it is already open.
    """
    record = run.record
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # skipped items were reported by the run itself
            if data is None:
                data = load(record.dataset, skip_bad=run.recipe.skip_bad, allow_code=run.trust.sources)
        test = run.recipe.split(data).test
    except (VicinalError, OSError) as error:
        reason = str(error).splitlines()[0]
        if isinstance(error, InputError) and record.dataset in READERS:  # readers of arrays, tables and folders
            reason = f"it was passed as an object, and its name, {record.dataset!r}, cannot be opened."
        return Album(None, record.classes, f"No pictures: the data is not available ({reason})")
    if test is None or not np.array_equal(test.labels, run.test_items().labels):
        return Album(
            None, record.classes, "No pictures: the data has changed since the runs, and its test items differ."
        )
    if test.kind == "vectors":
        return Album(None, record.classes, "No pictures: the items are feature vectors.", test.roles)
    if data.hash() != record.data:
        return Album(
            test,
            record.classes,
            f"The data has changed since the runs (its hash was {record.data[:8]}). Pictures are matched by their "
            "order and may be wrong.",
            test.roles,
        )
    return Album(test, record.classes, roles=test.roles)


def search(run: Run, roles: npt.NDArray[Any] | None = None) -> Search:
    """Find the neighbours of test items as the run measured them, for an evenly spaced subset if there are many.

    Args:
        run: Run whose embeddings to search, by the distance in its record.
        roles: Roles of the test items, if queries are searched in a gallery and the run did not save them.
    """
    embeddings, labels, own_roles = run.test_items()
    roles = roles if own_roles is None else own_roles
    queries, gallery = np.arange(len(labels)), np.arange(len(labels))
    apart = roles is not None and name_a_gallery(roles)
    if apart:
        queries, gallery = np.flatnonzero(roles == "query"), np.flatnonzero(roles == "gallery")
    itself = 0 if apart else 1  # an item is among its own neighbours
    totals = np.bincount(labels[gallery], minlength=int(labels.max()) + 1) - itself
    queries = queries[totals[labels[queries]] > 0]
    queries = evenly(queries, QUERIES)
    count = int(min(NEIGHBOURS, max(totals[labels[queries]].max(), 8), len(gallery) - itself))
    distance = run.record.distance
    nearest = find_neighbours(embeddings[queries], count + itself, gallery=embeddings[gallery], distance=distance)
    indices = nearest.indices.numpy()
    neighbours = np.where(indices >= 0, gallery[indices], -1)
    if not apart:
        neighbours = _without_itself(neighbours, queries)
    relevant = np.minimum(totals[labels[queries]], count)
    hits = (labels[neighbours] == labels[queries, None]) & (neighbours >= 0)
    scores = average_precision_at_r(torch.from_numpy(hits), torch.from_numpy(relevant)).numpy()
    return Search(embeddings, labels, queries, neighbours, relevant, scores, distance)


def _without_itself(neighbours: Indices, queries: Indices) -> Indices:
    """Remove each query from its own neighbours, or the last neighbour if it is not among them."""
    own = neighbours == queries[:, None]
    own[~own.any(axis=1), -1] = True
    return neighbours[~own].reshape(len(neighbours), -1)


def evenly(items: Indices, count: int) -> Indices:
    """Return at most `count` items, evenly spaced."""
    return items[np.unique(np.linspace(0, len(items) - 1, count).round().astype(np.int64))]
