"""What the winner finds: neighbours of test items, and pictures of them where the data is at hand."""

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

QUERIES, NEIGHBOURS = 2000, 100  # at most
SIDE, QUALITY = 88, 76  # of pictures
LETTERS = 28  # of a name under a picture, in four short lines

Indices = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Search:
    """Neighbours of test items.

    Args:
        embeddings: Of all test items.
        labels: Of all test items.
        queries: Which items were searched for.
        found: For each its neighbours, nearest first; -1 where there are no more.
        relevant: For each how many items there are to find, at most as many as neighbours.
        scores: MAP@R of each query.
        distance: That neighbours were found by.
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
    """Pictures of test items.

    Args:
        data: The test items in the order of the embeddings; None where there are no pictures.
        names: Of the classes.
        note: What a reader should know, or why there are no pictures.
        roles: Of the test items, where the data has them.
    """

    data: Dataset | None
    names: tuple[str, ...]
    note: str = ""
    roles: npt.NDArray[Any] | None = None

    @cached_property
    def short(self) -> list[str]:
        """Names that fit under a picture."""
        return short_names(self.names, LETTERS)

    def picture(self, item: int, label: int, hit: bool | None = None) -> Thumbnail:
        """A small picture of one item."""
        if self.data is None:
            raise VicinalError("there are no pictures")
        if item not in self._uris:
            image = self.data.image(item)
            image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
            buffer = BytesIO()
            image.save(buffer, "JPEG", quality=QUALITY, optimize=True)
            self._uris[item] = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        return Thumbnail(self._uris[item], self.names[label], hit, self.short[label])

    @cached_property
    def _uris(self) -> dict[int, str]:
        """Pictures that were shown already: many are neighbours of several items."""
        return {}


def open_album(run: Run, data: Dataset | None = None) -> Album:
    """Open the data of a run as its recipe did, and make its split again.

    Args:
        run: Whose test items to show.
        data: Dataset of the run, where it is open already.
    """
    record = run.record
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what is skipped was said when the run was made
            if data is None:
                data = load(record.dataset, skip_bad=run.recipe.skip_bad, allow_code=run.trust.sources)
        test = run.recipe.split(data).test
    except (VicinalError, OSError) as error:
        reason = str(error).splitlines()[0]
        if isinstance(error, InputError) and record.dataset in READERS:  # of arrays, tables and folders
            reason = f"it was given as an object, and its name, {record.dataset!r}, opens nothing by itself."
        return Album(None, record.classes, f"No pictures: the data is not at hand ({reason})")
    if test is None or not np.array_equal(test.labels, run.test_items().labels):
        return Album(
            None, record.classes, "No pictures: the data has changed, its test items are not those of the runs."
        )
    if test.kind == "vectors":
        return Album(None, record.classes, "No pictures: the items are feature vectors.", test.roles)
    if data.hash() != record.data:
        return Album(
            test,
            record.classes,
            f"The data has another hash now than that of the runs ({record.data[:8]}): files differ. Pictures are "
            "matched by their order.",
            test.roles,
        )
    return Album(test, record.classes, roles=test.roles)


def search(run: Run, roles: npt.NDArray[Any] | None = None) -> Search:
    """Find the neighbours of test items as the run measured them; of some evenly chosen ones where there are many.

    Args:
        run: Whose embeddings to use, by the distance that its record has.
        roles: Of the test items, where queries are searched in a gallery and the run did not keep them.
    """
    embeddings, labels, kept = run.test_items()
    roles = roles if kept is None else kept
    asked, gallery = np.arange(len(labels)), np.arange(len(labels))
    apart = roles is not None and name_a_gallery(roles)
    if apart:
        asked, gallery = np.flatnonzero(roles == "query"), np.flatnonzero(roles == "gallery")
    itself = 0 if apart else 1  # an item is among its own neighbours
    totals = np.bincount(labels[gallery], minlength=int(labels.max()) + 1) - itself
    asked = asked[totals[labels[asked]] > 0]
    asked = evenly(asked, QUERIES)
    many = int(min(NEIGHBOURS, max(totals[labels[asked]].max(), 8), len(gallery) - itself))
    distance = run.record.distance
    nearest = find_neighbours(embeddings[asked], many + itself, gallery=embeddings[gallery], distance=distance)
    indices = nearest.indices.numpy()
    found = np.where(indices >= 0, gallery[indices], -1)
    if not apart:
        found = _without_itself(found, asked)
    relevant = np.minimum(totals[labels[asked]], many)
    hits = (labels[found] == labels[asked, None]) & (found >= 0)
    scores = average_precision_at_r(torch.from_numpy(hits), torch.from_numpy(relevant)).numpy()
    return Search(embeddings, labels, asked, found, relevant, scores, distance)


def _without_itself(found: Indices, queries: Indices) -> Indices:
    """Take each query out of its own neighbours, or else the last of them."""
    own = found == queries[:, None]
    own[~own.any(axis=1), -1] = True
    return found[~own].reshape(len(found), -1)


def evenly(items: Indices, count: int) -> Indices:
    """At most so many of them, evenly chosen."""
    return items[np.unique(np.linspace(0, len(items) - 1, count).round().astype(np.int64))]
