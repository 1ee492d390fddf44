"""Names on drawings: short, still different from each other, and not on top of each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from vicinal.report.drawing import Real

__all__ = ["Box", "place_boxes", "short_names"]

DIRECTIONS, STEP = 16, 6.0  # to look in for a free place, and how far apart two looks are


def short_names(names: Sequence[str], limit: int) -> list[str]:
    """Cut names to a length, such that different names stay different.

    A name loses its end; where others begin like it, its middle; and where they end like it too, its beginning.

    Args:
        names: In any order; equal ones stay equal.
        limit: Letters at most, the mark of a cut included; at least 8.

    Example:
        >>> short_names(["Laysan Albatross", "Black footed Albatross", "Black footed Alcid", "Crow"], 12)
        ['Laysan Alba…', 'Black…atross', 'Black… Alcid', 'Crow']
    """
    found = {name: name for name in names if len(name) <= limit}
    pending = [name for name in dict.fromkeys(names) if name not in found]
    for way in range(4):
        cut = {name: _cut(name, pending, way, limit) for name in pending}
        times = Counter([*cut.values(), *found.values()])
        found |= {name: text for name, text in cut.items() if times[text] == 1}
        pending = [name for name in pending if name not in found]
    for name in pending:  # which differ in several places, none of which is enough
        endings = (f"…{number}" for number in count(1))
        numbered = (f"{name[: limit - len(ending)]}{ending}" for ending in endings)
        found[name] = next(text for text in numbered if text not in found.values())
    return [found[name] for name in names]


def _cut(name: str, others: Sequence[str], way: int, limit: int) -> str:
    if way == 0:
        return f"{name[: limit - 1]}…"
    if way < 3:
        ending = limit // 2 if way == 1 else limit - 4
        return f"{name[: limit - 1 - ending]}…{name[-ending:]}"
    alike = max((_alike(name, other) for other in others if other != name), default=0)
    shown = name[max(0, alike - 2) :][: limit - 2]
    return f"…{shown}…" if not name.endswith(shown) else f"…{shown}"


def _alike(name: str, other: str) -> int:
    """How many letters two names begin with alike."""
    pairs = zip(name, other, strict=False)
    return next((place for place, (one, two) in enumerate(pairs) if one != two), min(len(name), len(other)))


class Box(NamedTuple):
    """Where a name stands.

    Attributes:
        x: Of its middle.
        y: Of its middle.
        width: Of all of it.
        height: Of all of it.
    """

    x: Real
    y: Real
    width: Real
    height: Real

    def overlaps(self, other: Box) -> bool:
        """Whether two boxes share any room."""
        return (
            2 * abs(self.x - other.x) < self.width + other.width
            and 2 * abs(self.y - other.y) < self.height + other.height
        )


def place_boxes(wanted: Sequence[Box], width: Real, height: Real) -> list[Box]:
    """Move boxes as little as need be until they are on the drawing and none lies on another.

    Args:
        wanted: Where each would like to be; the first ones are moved least.
        width: Of the drawing.
        height: Of the drawing.

    Example:
        >>> place_boxes([Box(50, 50, 40, 12), Box(52, 50, 40, 12)], 100, 100)[1].y
        62.0
    """
    placed: list[Box] = []
    for box in wanted:
        inside = _inside(box, width, height)
        free = (moved for moved in _around(inside, width, height) if not any(moved.overlaps(one) for one in placed))
        placed.append(next(free, inside))
    return placed


def _around(box: Box, width: Real, height: Real) -> Iterator[Box]:
    """The box, then moved further and further, first up and down, where names are low and need the least room."""
    yield box
    for look in range(1, math.ceil(math.hypot(width, height) / STEP)):
        for turn in range(DIRECTIONS):
            angle = math.pi / 2 + math.pi * (turn // 2 if turn % 2 else -turn // 2) / (DIRECTIONS / 2)
            moved = box._replace(x=box.x + look * STEP * math.cos(angle), y=box.y + look * STEP * math.sin(angle))
            if moved == _inside(moved, width, height):
                yield moved


def _inside(box: Box, width: Real, height: Real) -> Box:
    return box._replace(
        x=max(box.width / 2, min(width - box.width / 2, box.x)),
        y=max(box.height / 2, min(height - box.height / 2, box.y)),
    )
