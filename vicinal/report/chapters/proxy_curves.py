"""Chance-constrained proxies: what changed from one instance to the next."""

from __future__ import annotations

import numpy as np

from vicinal.report.blocks import Chapter, Chart, Panel
from vicinal.report.charts import Curve, line_chart
from vicinal.results import Entry, Leaderboard

__all__ = ["proxy_instances"]

FIELDS = ("covering radius", "inter-class distance", "proxy radius", "proxy spread", "MAP@R")


def proxy_instances(board: Leaderboard) -> list[Chapter]:
    """Draw what runs with alternating proxy problems logged at the end of each."""
    panels = []
    for field in FIELDS:
        found = {entry.label: _by_instance(entry, field) for entry in board.of_network()}
        drawn = {name: points for name, points in found.items() if len(points) > 1}
        if drawn:
            alt = f"{field} by instance: " + "; ".join(
                f"{name} from {points[0][1]:.3g} to {points[-1][1]:.3g}" for name, points in drawn.items()
            )
            curves = {
                name: Curve(points, "accent" if at == 0 else "other") for at, (name, points) in enumerate(drawn.items())
            }
            ticks = sorted({x for points in drawn.values() for x, _ in points})
            svg = line_chart(curves, x_label="instance", alt=alt, ticks=ticks[:: -(-len(ticks) // 10)], height=220)
            panels.append(Panel(svg, alt, title=field))
    if not panels:
        return []
    caption = (
        "Each instance is a proxy problem that was trained until its score no longer rose; then the proxies were put "
        "on items far from them. A covering radius that falls says that fewer items are far from every proxy of "
        "their class. Means over runs."
    )
    return [Chapter("Chance-constrained proxies", (Chart("proxies", tuple(panels), caption),))]


def _by_instance(entry: Entry, field: str) -> list[tuple[float, float]]:
    found: dict[int, list[float]] = {}
    for run in entry.runs:
        for line in run.log:
            if "instance" in line and isinstance(line.get(field), int | float):
                found.setdefault(int(line["instance"]), []).append(float(line[field]))
    return [(float(instance), float(np.mean(found[instance]))) for instance in sorted(found)]
