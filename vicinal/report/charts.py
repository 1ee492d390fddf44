"""Charts that several chapters use: dots with intervals, labelled lines, and scatter plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from vicinal.report.drawing import LETTER, Drawing, Real, Scale, spread

__all__ = ["Curve", "Row", "dot_rows", "line_chart", "scatter", "small_lines"]

Points = Sequence[tuple[Real, Real]]
WIDTH = 480.0


@final
@dataclass(frozen=True)
class Row:
    """A row of `dot_rows`.

    Args:
        name: Label at the left.
        value: Position of the dot.
        thin: Ends of the thin line.
        thick: Ends of the thick line.
        small: Positions of small dots.
        style: "accent" or "other".
        ring: Whether to draw a ring below a rule, for entries without a rank.
    """

    name: str
    value: Real
    thin: tuple[Real, Real] | None = None
    thick: tuple[Real, Real] | None = None
    small: Sequence[Real] = ()
    style: str = "other"
    ring: bool = False


@final
@dataclass(frozen=True)
class Curve:
    """A line through points.

    Args:
        points: Points in drawing order.
        style: "accent", "other" or the name of a colour.
        low: Lower edge of a band around it.
        high: Upper edge.
    """

    points: Points
    style: str = "other"
    low: Points = field(default_factory=tuple)
    high: Points = field(default_factory=tuple)


def dot_rows(rows: Sequence[Row], label: str, alt: str) -> str:
    """Draw one dot per row, with its intervals, over a common axis."""
    ends = [end for row in rows for end in (row.value, *(row.thin or ()), *(row.thick or ()), *row.small)]
    low, high = _padded(min(ends), max(ends))
    left = 12 + LETTER * 1.08 * max(len(row.name) for row in rows)
    bottom = 8 + 24.0 * len(rows)
    drawing = Drawing(WIDTH, bottom + 36, alt)
    x = Scale(low, high, left, WIDTH - 46)
    drawing.x_axis(x, bottom, label, top=4)
    for index, row in enumerate(rows):
        y = 18 + 24.0 * index
        strong = " strong" if row.style == "accent" else " other" if row.ring else ""
        if row.ring and index and not rows[index - 1].ring:
            drawing.line([(0, y - 12), (WIDTH - 4, y - 12)], "grid")
        drawing.text(left - 10, y + 4, row.name, f"name{strong}", anchor="end")
        for span, style in ((row.thin, "thin"), (row.thick, "thick")):
            if span is not None:
                drawing.line([(x(max(span[0], low)), y), (x(min(span[1], high)), y)], f"{style} {row.style}")
        for value in row.small:
            drawing.dot(x(value), y, f"hollow {row.style}", radius=2.4, title=f"{value:.2f}")
        dot = f"hollow {row.style}" if row.ring else row.style
        drawing.dot(x(row.value), y, dot, radius=4.4, title=f"{row.name}: {row.value:.2f}")
        drawing.text(WIDTH - 4, y + 4, f"{row.value:.2f}", f"value{strong}", anchor="end")
    return str(drawing)


def line_chart(
    curves: Mapping[str, Curve],
    *,
    x_label: str,
    y_label: str,
    alt: str,
    ticks: Sequence[Real] | None = None,
    log: bool = False,
    height: Real = 300,
) -> str:
    """Draw lines, each labelled at its right end."""
    right = WIDTH - 14 - LETTER * 1.12 * max(len(name) for name in curves)
    every = [point for curve in curves.values() for point in (*curve.points, *curve.low, *curve.high)]
    xs, ys = [point[0] for point in every], [point[1] for point in every]
    drawing = Drawing(WIDTH, height, alt)
    x = Scale(min(xs), max(xs), 44, right, log=log)
    y = Scale(*_padded(min(ys), max(ys)), height - 40, 24)
    drawing.text(4, 12, y_label, "label")
    drawing.y_axis(y, 36, right)
    drawing.x_axis(x, height - 40, x_label, ticks=ticks)
    ordered = sorted(
        curves.items(), key=lambda item: item[1].style != "other"
    )  # highlighted curves are drawn last, on top
    for name, curve in ordered:
        _curve(drawing, curve, x, y)
        if len(curve.points) <= 12:
            for value in curve.points:
                drawing.dot(x(value[0]), y(value[1]), curve.style, radius=2.6, title=f"{name}: {value[1]:.2f}")
    wanted = [y(curve.points[-1][1]) for _, curve in ordered]
    for (name, curve), label_y in zip(ordered, spread(wanted, 14.5, 24, height - 44), strict=True):
        end = curve.points[-1]
        drawing.line([(x(end[0]) + 4, y(end[1])), (right + 8, label_y)], "grid")
        drawing.text(right + 11, label_y + 4, name, f"name {curve.style}")
    return str(drawing)


def small_lines(
    behind: Sequence[Curve], front: Sequence[Curve], *, alt: str, low: Real, high: Real, ticks: int = 3
) -> str:
    """Draw a small panel: the lines of one loss in front of those of the others."""
    width, height = 200.0, 128.0
    every = [*behind, *front]
    points = [point for curve in every for point in curve.points]
    drawing = Drawing(width, height, alt)
    x = Scale(min(p[0] for p in points), max(p[0] for p in points), 34, width - 8)
    y = Scale(low, high, height - 20, 6)
    drawing.y_axis(y, 34, width - 4, ticks=y.ticks(ticks))
    drawing.x_axis(x, height - 20, ticks=x.ticks(3))
    for curve in every:
        _curve(drawing, curve, x, y)
    return str(drawing)


def scatter(
    points: Sequence[tuple[str, Real, Real, str]], *, x_label: str, y_label: str, alt: str, height: Real = 320
) -> str:
    """Draw named dots (name, x, y, style); a name is written next to its dot if there is room."""
    xs, ys = [point[1] for point in points], [point[2] for point in points]
    drawing = Drawing(WIDTH, height, alt)
    longest = LETTER * max(len(point[0]) for point in points)
    x = Scale(*_padded(min(xs), max(xs)), 44, WIDTH - 10 - longest)
    y = Scale(*_padded(min(ys), max(ys)), height - 42, 24)
    drawing.text(4, 12, y_label, "label")
    drawing.y_axis(y, 44, WIDTH - 6)
    drawing.x_axis(x, height - 42, x_label)
    taken = [(x(across) - 5, x(across) + 5, y(up)) for _, across, up, _ in points]
    for name, across, up, style in sorted(points, key=lambda point: point[3] == "other"):
        px, py, wide = x(across), y(up), LETTER * len(name)
        for start, anchor, label_x in ((px + 8, "start", px + 8), (px - 8 - wide, "end", px - 8)):
            free = all(abs(py - row) > 11 or start + wide < left or start > right for left, right, row in taken)
            if free and start > 40:
                drawing.text(label_x, py + 4, name, f"name {style}", anchor=anchor)
                taken.append((start, start + wide, py))
                break
        drawing.dot(px, py, style, radius=4.2, title=f"{name}: {across:.3f}, {up:.2f}")
    return str(drawing)


def _curve(drawing: Drawing, curve: Curve, x: Scale, y: Scale) -> None:
    def placed(points: Points) -> list[tuple[Real, Real]]:
        return [(x(across), min(max(y(up), y.end), y.start)) for across, up in points]

    if curve.low:
        drawing.area(placed(curve.high), placed(curve.low), curve.style)
    drawing.line(placed(curve.points), curve.style)


def _padded(low: Real, high: Real) -> tuple[Real, Real]:
    """Add some padding around the values."""
    pad = 0.06 * (high - low) or 0.05 * abs(high) or 0.05
    return low - pad, high + pad
