"""Items that are in a collection more than once, as groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vicinal.errors import InputError
from vicinal.neighbours import find_neighbours
from vicinal.neighbours.inputs import ArrayLike, as_embeddings, check_threshold

__all__ = ["DuplicateGroup", "Link", "find_duplicates", "group_links", "near_links", "side_of"]

THRESHOLD = 0.98  # cosine
FIRST_LOOK = 8  # neighbours of every item; items with more duplicates than that are looked at again
MOST_LINKS = 1_000_000  # beyond that a threshold tells nothing apart, and the pairs of all items fill the memory


class Link(NamedTuple):
    """Two items that are taken for the same.

    Attributes:
        one: Place of an item.
        other: Place of another.
        kind: Why: "bytes", "looks" or "embedding".
        similarity: Of their embeddings, the larger the nearer; 1 where nobody asked.
    """

    one: int
    other: int
    kind: str
    similarity: float = 1.0


@final
@dataclass(frozen=True)
class DuplicateGroup:
    """Items that are the same, or nearly.

    Attributes:
        places: Of the items, in order.
        kinds: Why they are together: some of "bytes", "looks", "embedding".
        similarity: Of the least similar two that were linked.
        sides: "train", "validation" and "test" as far as they occur; a leak if there are several.
        labels: Those that occur, None not counted; a contradiction if there are several.
    """

    places: tuple[int, ...]
    kinds: tuple[str, ...]
    similarity: float
    sides: tuple[str, ...] = ()
    labels: tuple[Any, ...] = ()

    @property
    def leaks(self) -> bool:
        """Whether an item of the test is also on another side of the split."""
        return len(self.sides) > 1

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "places": list(self.places),
            "kinds": list(self.kinds),
            "similarity": self.similarity,
            "sides": list(self.sides),
            "labels": [str(label) for label in self.labels],
            "leaks": self.leaks,
        }


def find_duplicates(
    embeddings: ArrayLike,
    *,
    threshold: float | None = None,
    labels: NDArray[Any] | None = None,
    roles: NDArray[Any] | None = None,
    distance: str = "cosine",
    links: Iterable[Link] = (),
) -> list[DuplicateGroup]:
    """Find groups of items whose embeddings are nearer to each other than a threshold: leaks first.

    Every pair beyond the threshold is found; who is linked to somebody in a group belongs to it.

    Args:
        embeddings: One row per item.
        threshold: The least similarity of two items that are the same: a cosine, by default 0.98, or minus a
            Euclidean distance, which has no default.
        labels: One per item, None for an item without, to tell groups of several classes.
        roles: One per item, to tell groups on both sides of a split: "train", "validation"; all else is test.
        distance: "cosine" or "euclidean".
        links: What is known already to be the same, by its bytes say.

    Returns:
        Groups across the sides of a split first, then those of several labels, then the rest; the nearest first.

    Raises:
        InputError: If more than a million pairs reach the threshold.

    Example:
        >>> group, = find_duplicates([[1.0, 0.0], [0.0, 1.0], [1.0, 0.01]], roles=np.array(["train", "test", "test"]))
        >>> group.places, group.leaks
        ((0, 2), True)
    """
    items = as_embeddings(embeddings)
    if threshold is None:
        if distance != "cosine":
            raise InputError("Euclidean distances have no usual size: give the threshold, as minus a distance.")
        threshold = THRESHOLD
    check_threshold(threshold, distance)
    return group_links([*links, *near_links(items, threshold, distance)], labels=labels, roles=roles)


def near_links(embeddings: ArrayLike, threshold: float, distance: str = "cosine") -> list[Link]:
    """Return every pair whose similarity (a cosine, or minus a distance) reaches the threshold."""
    items = as_embeddings(embeddings)
    if len(items) < 2:
        return []
    sign = 1.0 if distance == "cosine" else -1.0
    found: dict[tuple[int, int], float] = {}
    rows, k = np.arange(len(items)), min(FIRST_LOOK, len(items) - 1)
    while len(rows):
        # An item among the gallery finds itself, too: once in k + 1.
        many = min(k + 1, len(items))
        near = find_neighbours(items[rows], many, gallery=items, distance=distance)
        similarity = sign * near.values.numpy()
        places = near.indices.numpy()
        at, column = np.nonzero((similarity >= threshold) & (places != rows[:, None]))
        if len(at) > 2 * MOST_LINKS:  # each pair is seen from both its ends
            raise _too_many(threshold)
        for one, other, value in zip(rows[at], places[at, column], similarity[at, column], strict=True):
            found[min(int(one), int(other)), max(int(one), int(other))] = float(value)
        if len(found) > MOST_LINKS:
            raise _too_many(threshold)
        full = similarity[:, -1] >= threshold
        rows, k = (rows[full], 4 * k) if many < len(items) else (rows[:0], k)
    return [Link(one, other, "embedding", value) for (one, other), value in sorted(found.items())]


def _too_many(threshold: float) -> InputError:
    return InputError(
        f"More than {MOST_LINKS:,} pairs of items reach a similarity of {threshold:g}: raise the threshold, or leave "
        "out all but one of the items that are exactly the same."
    )


def group_links(
    links: Iterable[Link], *, labels: NDArray[Any] | None = None, roles: NDArray[Any] | None = None
) -> list[DuplicateGroup]:
    """Put what is linked, directly or through others, into one group; see `find_duplicates` for the order."""
    known = list(links)
    if not known:
        return []
    ends = np.array([(link.one, link.other) for link in known])
    many = int(ends.max()) + 1
    _, group_of = connected_components(coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(many, many)))
    joined: defaultdict[int, list[Link]] = defaultdict(list)
    for link in known:
        joined[int(group_of[link.one])].append(link)
    groups = []
    for members in joined.values():
        places = sorted({place for link in members for place in (link.one, link.other)})
        groups.append(
            DuplicateGroup(
                tuple(places),
                tuple(sorted({link.kind for link in members}, key=["bytes", "looks", "embedding"].index)),
                min(link.similarity for link in members),
                () if roles is None else tuple(sorted({side_of(str(roles[place])) for place in places})),
                () if labels is None else tuple(sorted({labels[place] for place in places} - {None}, key=str)),
            )
        )
    return sorted(groups, key=lambda group: (not group.leaks, len(group.labels) < 2, -group.similarity, group.places))


def side_of(role: str) -> str:
    """Return the side of a split that a role is on: queries and gallery are both of the test.

    Example:
        >>> side_of("gallery")
        'test'
    """
    return role if role in ("train", "validation") else "test"
