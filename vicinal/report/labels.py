"""Names of methods and classes: where they may break, how they are shortened, and where they fit on a drawing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from vicinal.leaderboard import Entry, Leaderboard
from vicinal.report.drawing import Real

__all__ = ["Box", "in_sentence", "is_recommended", "place_boxes", "short_names", "style_of", "word_pieces"]

DIRECTIONS, STEP = 16, 6.0  # directions to search for a free position, and distance between two attempts

# Positions in a name at which a line may break: after a separator, and before a capital letter of camel case.
BREAKS = re.compile(r"(?<=[_\-+./])(?=[^_\-+./])|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def in_sentence(board: Leaderboard, text: str) -> str:
    """Capitalise a sentence unless it begins with the name of a method, which is shown as it is typed."""
    names = {entry.name for entry in (*board.entries, *board.baselines)}
    begins = any(re.match(rf"{re.escape(name)}(?!\w)", text) for name in names)
    return text if begins else text[:1].upper() + text[1:]


def is_recommended(board: Leaderboard, entry: Entry) -> bool:
    """Whether the recommended run belongs to this entry."""
    best = board.best.record
    return (entry.name, entry.network) == (best.name, best.network)


def style_of(board: Leaderboard, entry: Entry) -> str:
    """Return the style of an entry in charts: the recommended one stands out."""
    return "accent" if is_recommended(board, entry) else "other"


def word_pieces(name: str) -> list[str]:
    """Split a name where a line may break: after separators such as underscores and hyphens, and in camel case.

    Example:
        >>> word_pieces("Black-footed_AlbatrossOfHTMLPages")
        ['Black-', 'footed_', 'Albatross', 'Of', 'HTML', 'Pages']
    """
    return BREAKS.split(name)


def short_names(names: Sequence[str], limit: int) -> list[str]:
    """Shorten names such that different names stay different.

    A name loses its last words; if others share its beginning, its middle; if they share its end too, its beginning.

    Args:
        names: Names in any order; equal ones stay equal.
        limit: Largest number of letters, including the ellipsis; at least 8.

    Example:
        >>> short_names(["Laysan Albatross", "Black footed Albatross", "Black footed Alcid", "Crow"], 12)
        ['Laysan…', 'Black…atross', 'Black… Alcid', 'Crow']
    """
    shortened = {name: name for name in names if len(name) <= limit}
    pending = [name for name in dict.fromkeys(names) if name not in shortened]
    for attempt in range(4):
        cut = {name: _cut(name, pending, attempt, limit) for name in pending}
        times = Counter([*cut.values(), *shortened.values()])
        shortened |= {name: text for name, text in cut.items() if times[text] == 1}
        pending = [name for name in pending if name not in shortened]
    for name in pending:  # names that differ in several positions, none of which suffices
        endings = (f"…{number}" for number in count(1))
        numbered = (f"{name[: limit - len(ending)]}{ending}" for ending in endings)
        shortened[name] = next(text for text in numbered if text not in shortened.values())
    return [shortened[name] for name in names]


def _cut(name: str, others: Sequence[str], attempt: int, limit: int) -> str:
    if attempt == 0:
        return f"{_whole_words(name, limit - 1)}…"
    if attempt < 3:
        ending = limit // 2 if attempt == 1 else limit - 4
        return f"{name[: limit - 1 - ending]}…{name[-ending:]}"
    alike = max((_alike(name, other) for other in others if other != name), default=0)
    shown = name[max(0, alike - 2) :][: limit - 2]
    return f"…{shown}…" if not name.endswith(shown) else f"…{shown}"


def _whole_words(name: str, limit: int) -> str:
    """Return the first words of a name, at least half of the limit; otherwise its first letters."""
    ends = [match.start() for match in re.finditer(rf"{BREAKS.pattern}| ", name) if limit / 2 <= match.start() <= limit]
    return name[: ends[-1]].rstrip("_-+./ ") if ends else name[:limit]


def _alike(name: str, other: str) -> int:
    """Return the length of the common prefix of two names."""
    pairs = zip(name, other, strict=False)
    return next((index for index, (first, second) in enumerate(pairs) if first != second), min(len(name), len(other)))


class Box(NamedTuple):
    """Position and size of a label.

    Attributes:
        x: Horizontal position of its centre.
        y: Vertical position of its centre.
        width: Full width.
        height: Full height.
    """

    x: Real
    y: Real
    width: Real
    height: Real

    def overlaps(self, other: Box) -> bool:
        """Whether two boxes overlap."""
        return (
            2 * abs(self.x - other.x) < self.width + other.width
            and 2 * abs(self.y - other.y) < self.height + other.height
        )

    def covers(self, points: np.ndarray, clearance: Real) -> bool:
        """Whether one of the points is in the box, or closer to it than `clearance`."""
        across, up = np.abs(points - (self.x, self.y)).T
        return bool(((across < self.width / 2 + clearance) & (up < self.height / 2 + clearance)).any())


def place_boxes(
    wanted: Sequence[Box],
    width: Real,
    height: Real,
    *,
    points: Sequence[tuple[Real, Real]] = (),
    clearance: Real = 0.0,
) -> list[Box | None]:
    """Move boxes as little as needed until they are inside the drawing and cover neither each other nor a point.

    Args:
        wanted: Preferred box of each label; the first ones are moved least.
        width: Width of the drawing.
        height: Height of the drawing.
        points: Points that no box may cover.
        clearance: Distance between a box and the nearest point.

    Returns:
        One box per label; None if there is no room for it.

    Example:
        >>> place_boxes([Box(50, 50, 40, 12), Box(52, 50, 40, 12)], 100, 100)[1].y
        62.0
        >>> place_boxes([Box(50, 50, 90, 90)], 100, 100, points=[(50, 50)])
        [None]
    """
    marks = np.array(points, dtype=np.float64).reshape(-1, 2)
    placed: list[Box | None] = []
    for box in wanted:
        taken = [other for other in placed if other is not None]
        free = (
            moved
            for moved in _around(_inside(box, width, height), width, height)
            if not moved.covers(marks, clearance) and not any(moved.overlaps(other) for other in taken)
        )
        placed.append(next(free, None))
    return placed


def _around(box: Box, width: Real, height: Real) -> Iterator[Box]:
    """Yield the box, then moved further and further; up and down first, since labels are wider than high."""
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
