"""Critical-difference diagram: mean ranks on a line, with bars that join methods that do not differ significantly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from vicinal._util.style import ACCENT, INK, QUIET
from vicinal._util.text import counted, p_text
from vicinal.stats.ranks import Tournament

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_critical_difference"]


class Theme(NamedTuple):
    """Colours of a figure."""

    ink: str
    faint: str
    bar: str
    paper: str


THEMES = {
    "light": Theme(INK, QUIET, ACCENT, "#fdfcf9"),
    "dark": Theme("#ebe9e3", "#a5a39c", "#6db8f2", "#161614"),
}
# Sizes in inches: rank axis, spacing of labels, spacing of bars, room above the axis, one letter of a label.
AXIS, ROW, STEP, HEAD, LETTER = 5.0, 0.27, 0.13, 1.15, 0.088
SMALL, TEXT = 9, 10


def plot_critical_difference(found: Tournament, *, theme: Literal["light", "dark"] = "light") -> Figure:
    """Draw mean ranks, best on the left; a bar joins methods that do not differ significantly.

    Args:
        found: Tournament to draw.
        theme: "light", or "dark" for dark pages.

    Returns:
        A figure; save it with `figure.savefig("ranks.png")`.

    Reference:
        Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 2006.
    """
    from matplotlib.figure import Figure  # slow to import

    colours = THEMES[theme]
    count = len(found.methods)
    bars = _levels(found)
    top = 0.15 + STEP * (1 + max((level for _, _, level in bars), default=-1))  # start of the labels
    rows = (count + 1) // 2
    margin = 0.3 + LETTER * (6 + max(len(_plain(method)) for method in found.methods))
    width, depth = AXIS + 2 * margin, top + ROW * rows
    figure = Figure(figsize=(width, HEAD + depth + 0.1), facecolor=colours.paper)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(-margin, AXIS + margin), ylim=(-depth - 0.1, HEAD))
    scale = AXIS / (count - 1)
    positions = [scale * (rank - 1) for rank in found.mean_ranks.values()]
    _draw_axis(axes, count, scale, colours)
    _draw_ruler(axes, found, scale, colours)
    for first, last, level in bars:
        height = -0.12 - STEP * level
        axes.plot(
            [positions[first] - 0.05, positions[last] + 0.05],
            [height] * 2,
            color=colours.bar,
            lw=3.5,
            solid_capstyle="butt",
        )
    _draw_methods(axes, found, positions, top, colours)
    return figure


def _levels(found: Tournament) -> list[tuple[int, int, int]]:
    """Return the first and last method of each bar, and its level; bars that do not overlap share a level."""
    ends: list[int] = []
    bars = []
    for group in found.groups:
        first, last = found.methods.index(group[0]), found.methods.index(group[-1])
        if first == last:
            continue
        level = next((number for number, end in enumerate(ends) if end < first), len(ends))
        ends[level : level + 1] = [last]
        bars.append((first, last, level))
    return bars


def _draw_axis(axes: Axes, count: int, scale: float, colours: Theme) -> None:
    axes.plot([0, AXIS], [0, 0], color=colours.ink, lw=1.2)
    for rank in range(1, count + 1, 1 + count // 25):
        position = scale * (rank - 1)
        axes.plot([position, position], [0, 0.08], color=colours.ink, lw=1.2)
        axes.text(position, 0.12, str(rank), ha="center", va="bottom", fontsize=SMALL, color=colours.ink)


def _draw_ruler(axes: Axes, found: Tournament, scale: float, colours: Theme) -> None:
    heading = f"mean rank over {counted(len(found.experiments), 'experiment')}"
    if found.friedman is not None:
        heading += f"; Friedman {p_text(found.friedman.p_value)}"
    axes.text(0, 0.9, heading, va="center", fontsize=SMALL, color=colours.ink)
    length = scale * found.critical_difference
    label = f"critical difference {found.critical_difference:.2f}"
    if length > AXIS:
        label, length = f"{label}, longer than the axis: no difference can be significant", 0.0
    else:
        axes.plot([0, length], [0.55, 0.55], color=colours.ink, lw=1.2)
        for end in (0, length):
            axes.plot([end, end], [0.5, 0.6], color=colours.ink, lw=1.2)
        length += 0.1
    axes.text(length, 0.55, label, va="center", fontsize=SMALL, color=colours.ink)


def _draw_methods(axes: Axes, found: Tournament, positions: Sequence[float], top: float, colours: Theme) -> None:
    """Label the better half on the left and the other half on the right, so that no two lines cross."""
    count = len(positions)
    half = (count + 1) // 2
    for number, (method, rank) in enumerate(found.mean_ranks.items()):
        left = number < half
        height = -top - ROW * (number if left else count - 1 - number)
        edge = -0.1 if left else AXIS + 0.1
        axes.plot(
            [positions[number], positions[number], edge], [0, height, height], color=colours.faint, lw=0.9, zorder=1
        )
        side = "right" if left else "left"
        shift = -0.06 if left else 0.06
        axes.text(edge + shift, height, f"{rank:.2f}", ha=side, va="center", fontsize=SMALL, color=colours.faint)
        axes.text(edge + 8 * shift, height, _plain(method), ha=side, va="center", fontsize=TEXT, color=colours.ink)


def _plain(method: str, limit: int = 32) -> str:
    """Shorten a label, and escape dollar signs, which matplotlib would read as a formula."""
    short = method if len(method) <= limit else f"{method[: limit - 1]}…"
    return short.replace("$", r"\$")
