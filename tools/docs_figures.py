"""Draw the figures of docs/results.md and docs/promises.md from their tables: `python tools/docs_figures.py`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[1] / "docs"
INTERVAL = re.compile(r"^([+-]\.\d+) \(([+-]\.\d+) to ([+-]\.\d+)\)$")
TIMES = re.compile(r"^([\d,.]+) x$")
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#808080"
COLOURS = {"holds": BLUE, "does not hold": ORANGE}


def table_rows(page: Path) -> list[list[str]]:
    """Return the cells of every table row of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("| ")
    ]


def intervals(rows: list[list[str]]) -> list[tuple[str, str, list[float]]]:
    """Return claim, verdict and (difference, low, high) of the rows that have them."""
    read = [(row[0], row[1], INTERVAL.match(row[2])) for row in rows if len(row) == 4]
    return [(claim, verdict, [float(number) for number in match.groups()]) for claim, verdict, match in read if match]


def speed_ups(rows: list[list[str]]) -> list[tuple[str, float]]:
    """Return the work and how many times as fast it is, of the rows that have it."""
    read = [(row[0], TIMES.match(row[3])) for row in rows if len(row) == 4]
    return [(work, float(match[1].replace(",", ""))) for work, match in read if match]


def draw_results(out: Path) -> None:
    """Draw the differences of the results page with their intervals."""
    rows = intervals(table_rows(DOCS / "results.md"))
    figure, axes = plt.subplots(figsize=(7.5, 0.3 * len(rows) + 1), layout="constrained")
    axes.axvline(0, color="black", linewidth=0.8)
    for height, (_, verdict, (mean, low, high)) in enumerate(rows):
        colour = COLOURS.get(verdict, GREY)
        axes.plot([low, high], [height, height], color=colour, linewidth=2.5, solid_capstyle="butt")
        axes.plot(mean, height, "o", color=colour, markersize=6)
    axes.set_yticks(range(len(rows)), [claim for claim, _, _ in rows])
    axes.set_xlabel("difference in MAP@R, with 95 % interval")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    for name, colour in [*COLOURS.items(), ("suggestive or inconclusive", GREY)]:
        axes.plot([], [], "o-", color=colour, label=name)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    save(figure, out / "results.svg")


def draw_speed(out: Path) -> None:
    """Draw the ratios of the page about speed."""
    rows = speed_ups(table_rows(DOCS / "promises.md"))
    figure, axes = plt.subplots(figsize=(7.5, 0.32 * len(rows) + 1), layout="constrained")
    values = [value for _, value in rows]
    axes.barh(
        range(len(rows)), [value - 1 for value in values], left=1, color=[BLUE if v >= 1 else ORANGE for v in values]
    )
    for height, value in enumerate(values):
        ends = {"ha": "left", "xytext": (4, 0)} if value >= 1 else {"ha": "right", "xytext": (-4, 0)}
        axes.annotate(f"{value:,g} x", (value, height), textcoords="offset points", va="center", **ends)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 8, max(values) * 4)
    axes.set_xticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1,000"])
    axes.set_yticks(range(len(rows)), [work for work, _ in rows])
    axes.set_xlabel("times as fast as the alternative (logarithmic)")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, out / "speed.svg")


def save(figure: plt.Figure, path: Path) -> None:
    """Write a figure that is the same file each time."""
    figure.savefig(path, facecolor="white", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the figures")
    folder = parser.parse_args().out
    mpl.rcParams["svg.hashsalt"] = "vicinal"
    draw_results(folder)
    draw_speed(folder)
