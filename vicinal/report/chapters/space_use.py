"""How losses use the space."""

from __future__ import annotations

import numpy as np
from scipy import stats

from vicinal.evaluation import spectral_decay
from vicinal.report.blocks import Chapter, Chart, Panel
from vicinal.report.charts import scatter
from vicinal.results import Entry, Leaderboard

__all__ = ["spectral"]

NAME = "spectral decay"
FEWEST = 5  # losses, for a correlation that says more than their number


def spectral(board: Leaderboard) -> list[Chapter]:
    """Spectral decay against R@1."""
    points = []
    for at, entry in enumerate(board.of_network()):
        decay = _decay(entry)
        name = "R@1" if "R@1" in entry.scores else "P@1"
        if decay is not None and name in entry.scores:
            points.append((entry.label, decay, 100 * entry.mean(name), "accent" if at == 0 else "other"))
    if len(points) < 3:
        return []
    _, decays, recalls, _ = zip(*points, strict=True)
    alt = "Spectral decay and R@1: " + "; ".join(
        f"{name} {decay:.3f}, {recall:.1f}" for name, decay, recall, _ in points
    )
    svg = scatter(
        points, x_label="spectral decay (further left: more directions in use)", y_label="R@1, per cent", alt=alt
    )
    caption = "Spectral decay says how unevenly a loss uses the directions of the space; 0 would be all alike."
    if len(points) >= FEWEST and np.ptp(decays) > 0 and np.ptp(recalls) > 0:
        caption += (
            f" Its correlation with R@1 is {stats.pearsonr(decays, recalls).statistic:.2f} over these {len(points)} "
            "losses; Roth et al. (2020) found -0.80 on CUB, -0.85 on Cars and -0.63 on SOP over 23."
        )
    return [Chapter("Use of the space", (Chart("spectral-decay", (Panel(svg, alt),), caption),))]


def _decay(entry: Entry) -> float | None:
    if NAME in entry.scores:
        return entry.mean(NAME)
    kept = [run for run in entry.runs if run.has_test_items]
    return float(np.mean([spectral_decay(run.test_items().embeddings) for run in kept])) if kept else None
