"""Groups of items that are in a collection more than once."""

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
KINDS = ["bytes", "looks", "alike", "embedding"]  # in this order
FIRST_LOOK = 8  # neighbours of every item in the first search; items with more duplicates are searched again
MOST_LINKS = 1_000_000  # with more, the threshold is useless, and the pairs would fill the memory


class Link(NamedTuple):
    """Two items that are the same, or alike.

    Attributes:
        first: Index of one item.
        second: Index of the other item.
        kind: Reason: "bytes", "looks", "alike" or "embedding".
        similarity: Similarity of their embeddings, larger is nearer; 1 if it was not computed.
        copy: Whether one is a copy of the other. Otherwise they may be shots of a series.
    """

    first: int
    second: int
    kind: str
    similarity: float = 1.0
    copy: bool = True


@final
@dataclass(frozen=True)
class DuplicateGroup:
    """Items that are copies of each other, or a series of items that are alike.

    Attributes:
        indices: Indices of the items, ascending.
        kinds: Reasons for the group: some of "bytes", "looks", "alike", "embedding".
        similarity: Similarity of the least similar two linked items.
        sides: Sides of the split that occur, of "train", "validation" and "test".
        labels: Labels that occur, without None; several mean a contradiction.
        copies: Whether the items are copies, of which all but one could be removed. Otherwise they are a series: shots
            of one scene, views on a turntable, or copies that could not be confirmed.
    """

    indices: tuple[int, ...]
    kinds: tuple[str, ...]
    similarity: float
    sides: tuple[str, ...] = ()
    labels: tuple[Any, ...] = ()
    copies: bool = True

    @property
    def leaks(self) -> bool:
        """Whether copies are on more than one side of the split."""
        return self.copies and len(self.sides) > 1

    @property
    def may_leak(self) -> bool:
        """Whether a series is on more than one side of the split."""
        return not self.copies and len(self.sides) > 1

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "indices": list(self.indices),
            "kinds": list(self.kinds),
            "similarity": self.similarity,
            "sides": list(self.sides),
            "labels": [str(label) for label in self.labels],
            "copies": self.copies,
            "leaks": self.leaks,
            "may_leak": self.may_leak,
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
    """Find groups of items whose embeddings are more similar than a threshold, leaks first.

    Every pair that reaches the threshold is found. An item that is linked to any item of a group belongs to the group.
    Items with equal embeddings are copies; those that are merely similar form a series.

    Args:
        embeddings: One row per item.
        threshold: Smallest similarity of two items that are the same: a cosine, by default 0.98, or minus a Euclidean
            distance, which has no default.
        labels: Label of each item, None for an item without one, to find groups with several classes.
        roles: Role of each item, to find groups on several sides of a split: "train", "validation"; any other role is
            test.
        distance: "cosine" or "euclidean".
        links: Links that are already known, for example from identical bytes.

    Returns:
        Copies, then series. In both, groups across the sides of a split come first, then those with several labels,
        then the rest; the most similar first.

    Raises:
        InputError: If more than a million pairs reach the threshold.

    Example:
        >>> group, = find_duplicates([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], roles=np.array(["train", "test", "test"]))
        >>> group.indices, group.leaks
        ((0, 2), True)
    """
    items = as_embeddings(embeddings)
    if threshold is None:
        if distance != "cosine":
            raise InputError("Euclidean distances have no default threshold; pass one, as minus a distance.")
        threshold = THRESHOLD
    check_threshold(threshold, distance)
    return group_links([*links, *near_links(items, threshold, distance)], labels=labels, roles=roles)


def near_links(embeddings: ArrayLike, threshold: float, distance: str = "cosine") -> list[Link]:
    """Return every pair whose similarity (a cosine, or minus a distance) reaches the threshold."""
    items = as_embeddings(embeddings)
    if len(items) < 2:
        return []
    sign = 1.0 if distance == "cosine" else -1.0
    similarities: dict[tuple[int, int], float] = {}
    rows, k = np.arange(len(items)), min(FIRST_LOOK, len(items) - 1)
    while len(rows):
        # An item in the gallery also finds itself: once in k + 1.
        count = min(k + 1, len(items))
        near = find_neighbours(items[rows], count, gallery=items, distance=distance)
        similarity = sign * near.values.numpy()
        indices = near.indices.numpy()
        position, column = np.nonzero((similarity >= threshold) & (indices != rows[:, None]))
        if len(position) > 2 * MOST_LINKS:  # each pair is seen from both its ends
            raise _too_many(threshold)
        for first, second, value in zip(
            rows[position], indices[position, column], similarity[position, column], strict=True
        ):
            similarities[min(int(first), int(second)), max(int(first), int(second))] = float(value)
        if len(similarities) > MOST_LINKS:
            raise _too_many(threshold)
        full = similarity[:, -1] >= threshold
        rows, k = (rows[full], 4 * k) if count < len(items) else (rows[:0], k)
    equal = items.numpy()
    return [
        Link(first, second, "embedding", value, bool((equal[first] == equal[second]).all()))
        for (first, second), value in sorted(similarities.items())
    ]


def _too_many(threshold: float) -> InputError:
    return InputError(
        f"More than {MOST_LINKS:,} pairs of items reach a similarity of {threshold:g}; raise the threshold, or keep "
        "only one of the items that are exactly the same."
    )


def group_links(
    links: Iterable[Link], *, labels: NDArray[Any] | None = None, roles: NDArray[Any] | None = None
) -> list[DuplicateGroup]:
    """Group items that are linked, directly or through others: copies, then series; see `find_duplicates`.

    A series has at least one item beyond the copies of one item.
    """
    every_link = list(links)
    copy_of: dict[int, int] = {}
    groups = []
    for copies in (True, False):
        for members in _joined([link for link in every_link if link.copy == copies]):
            indices = sorted({index for link in members for index in (link.first, link.second)})
            if copies:
                copy_of |= dict.fromkeys(indices, indices[0])
            elif len({copy_of.get(index, index) for index in indices}) == 1:
                continue
            groups.append(
                DuplicateGroup(
                    tuple(indices),
                    tuple(sorted({link.kind for link in members}, key=KINDS.index)),
                    min(link.similarity for link in members),
                    () if roles is None else tuple(sorted({side_of(str(roles[index])) for index in indices})),
                    () if labels is None else tuple(sorted({labels[index] for index in indices} - {None}, key=str)),
                    copies,
                )
            )
    return sorted(
        groups,
        key=lambda each: (not each.copies, len(each.sides) < 2, len(each.labels) < 2, -each.similarity, each.indices),
    )


def _joined(links: list[Link]) -> Iterable[list[Link]]:
    """Return the links of each group of items that are linked, directly or through others."""
    if not links:
        return []
    ends = np.array([(link.first, link.second) for link in links])
    count = int(ends.max()) + 1
    _, group_of = connected_components(coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count)))
    joined: defaultdict[int, list[Link]] = defaultdict(list)
    for link in links:
        joined[int(group_of[link.first])].append(link)
    return joined.values()


def side_of(role: str) -> str:
    """Return the side of a split that a role is on: queries and gallery are both on the test side.

    Example:
        >>> side_of("gallery")
        'test'
    """
    return role if role in ("train", "validation") else "test"
