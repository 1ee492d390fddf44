"""How losses use the space."""

from __future__ import annotations

import numpy as np
from scipy import stats

from vicinal.evaluation import spectral_decay
from vicinal.report.blocks import Chapter, Chart, Panel
from vicinal.report.charts import scatter
from vicinal.report.comparison import Comparison, Entry

__all__ = ["spectral"]

NAME = "spectral decay"


def spectral(comparison: Comparison) -> list[Chapter]:
    """Spectral decay against R@1."""
    points = []
    for at, entry in enumerate(comparison.losses):
        decay = _decay(entry)
        name = "R@1" if all("R@1" in record.test for record in entry.records) else "P@1"
        if decay is not None and all(name in record.test for record in entry.records):
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
    if np.ptp(decays) > 0 and np.ptp(recalls) > 0:
        caption += (
            f" Its correlation with R@1 is {stats.pearsonr(decays, recalls).statistic:.2f} over these {len(points)} "
            "losses; Roth et al. (2020) found -0.80 on CUB, -0.85 on Cars and -0.63 on SOP over 23."
        )
    return [Chapter("Use of the space", (Chart("spectral-decay", (Panel(svg, alt),), caption),))]


def _decay(entry: Entry) -> float | None:
    if all(NAME in record.test for record in entry.records):
        return entry.mean(NAME)
    kept = [trial for trial in entry.trials if trial.has_embeddings]
    return float(np.mean([spectral_decay(trial.embeddings()[0]) for trial in kept])) if kept else None
