"""Small SVG drawings. Colours and fonts come from the style sheet, so one file serves light and dark themes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import final

from matplotlib.ticker import MaxNLocator

__all__ = ["LETTER", "Drawing", "Real", "Scale", "number", "spread"]

Real = float | int
LETTER = 6.2  # mean width of a letter at the default size, in drawing units
DIGIT, APART = 7.4, 2.0  # width of a digit on an axis as phones render it, and gap between two numbers


@final
@dataclass(frozen=True)
class Scale:
    """A mapping from values to positions.

    Args:
        low: Value at the start.
        high: Value at the end.
        start: Position of the start.
        end: Position of the end.
        log: Whether the scale is logarithmic.

    Example:
        >>> Scale(0, 10, 100, 200)(5)
        150.0
    """

    low: Real
    high: Real
    start: Real
    end: Real
    log: bool = False

    def __call__(self, value: Real) -> float:
        """Return the position of a value."""
        low, high, value = map(math.log2, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return self.start + (self.end - self.start) * (value - low) / (high - low or 1.0)

    def ticks(self, count: int = 5) -> list[float]:
        """Return round values on the scale."""
        return [
            float(value) for value in MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
            if self.low - 1e-9 <= value <= self.high + 1e-9
        ]  # fmt: skip


@final
class Drawing:
    """An SVG element under construction; positions are in units of about a pixel.

    Args:
        width: Width of the drawing.
        height: Height of the drawing.
        alt: Alternative text.
    """

    def __init__(self, width: Real, height: Real, alt: str) -> None:
        self.width, self.height, self.alt = width, height, alt
        self._parts: list[str] = []

    def __str__(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(self.alt)}">{"".join(self._parts)}</svg>'
        )

    def line(self, points: Iterable[tuple[Real, Real]], style: str) -> None:
        """Draw a line through points."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        if path:
            self._parts.append(f'<path class="line {style}" d="M{path}"/>')

    def area(self, upper: Sequence[tuple[Real, Real]], lower: Sequence[tuple[Real, Real]], style: str) -> None:
        """Fill the area between two lines."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in [*upper, *reversed(lower)])
        if path:
            self._parts.append(f'<path class="area {style}" d="M{path}Z"/>')

    def dot(self, x: Real, y: Real, style: str, *, radius: Real = 3.0, title: str = "") -> None:
        """Draw a dot with an optional tooltip."""
        tail = f"><title>{escape(title)}</title></circle>" if title else "/>"
        self._parts.append(f'<circle class="dot {style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"{tail}')

    def box(
        self, x: Real, y: Real, width: Real, height: Real, style: str, *, opacity: Real = 1.0, title: str = ""
    ) -> None:
        """Fill a rectangle."""
        tail = f"><title>{escape(title)}</title></rect>" if title else "/>"
        shade = "" if opacity == 1.0 else f' fill-opacity="{opacity:.2f}"'
        self._parts.append(
            f'<rect class="box {style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{shade}{tail}'
        )

    def text(self, x: Real, y: Real, words: str, style: str = "", *, anchor: str = "start", turn: Real = 0) -> None:
        """Write text; `anchor` is "start", "middle" or "end"."""
        turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
        self._parts.append(
            f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}>{escape(words)}</text>'
        )

    def x_axis(
        self, scale: Scale, y: Real, label: str = "", *, ticks: Sequence[Real] | None = None, top: Real = 0
    ) -> None:
        """Draw numbers along the bottom, and faint lines up to `top` if it is given.

        Numbers that would touch the previous one are left out. A label that is longer than its axis is kept within the
        drawing.
        """
        taken = -math.inf
        for value in scale.ticks() if ticks is None else ticks:
            if top:
                self.line([(scale(value), top), (scale(value), y)], "grid")
            half = DIGIT * len(number(value)) / 2
            if scale(value) - half >= taken:
                self.text(scale(value), y + 13, number(value), "tick", anchor="middle")
                taken = scale(value) + half + APART
        if label:
            half = 1.2 * LETTER * len(label) / 2  # as phones render it
            middle = max(half, min((scale.start + scale.end) / 2, self.width - half))
            self.text(middle, y + 30, label, "label", anchor="middle")

    def y_axis(self, scale: Scale, x: Real, right: Real, *, ticks: Sequence[Real] | None = None) -> None:
        """Draw numbers at the left and faint horizontal lines."""
        for value in scale.ticks(4) if ticks is None else ticks:
            self.line([(x, scale(value)), (right, scale(value))], "grid")
            self.text(x - 5, scale(value) + 3.5, number(value), "tick", anchor="end")


def number(value: Real) -> str:
    """Format a number on an axis as briefly as possible.

    Example:
        >>> number(0.30000000000000004), number(20000.0), number(-0.0)
        ('0.3', '20k', '0')
    """
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value + 0.0:.4g}" if value else "0"


def spread(places: Sequence[Real], gap: Real, low: Real, high: Real) -> list[float]:
    """Move labels apart until they no longer overlap, each as little as possible, keeping their order.

    Args:
        places: Preferred position of each label.
        gap: Smallest distance between two labels.
        low: Smallest position.
        high: Largest position.

    Example:
        >>> spread([10.0, 11.0, 50.0], 10, 0, 100)
        [5.5, 15.5, 50.0]
    """
    blocks: list[list[int]] = []  # groups of touching labels

    def middle(members: list[int]) -> float:
        reach = gap * (len(members) - 1) / 2
        wanted = sum(places[index] for index in members) / len(members)
        return min(max(wanted, low + reach), high - reach)

    for index in sorted(range(len(places)), key=lambda index: places[index]):
        members = [index]
        while blocks and middle(members) - middle(blocks[-1]) < gap * (len(members) + len(blocks[-1])) / 2:
            members = blocks.pop() + members
        blocks.append(members)
    positions = [0.0] * len(places)
    for members in blocks:
        for position, index in enumerate(members):
            positions[index] = middle(members) + gap * (position - (len(members) - 1) / 2)
    return positions
