"""Chapter on verification: error rates of a similarity threshold, for the recommended and the best methods."""

from __future__ import annotations

import numpy as np

from vicinal.evaluation import Verification, verify
from vicinal.evaluation.items import by_role
from vicinal.leaderboard import Leaderboard
from vicinal.report.blocks import Chapter, Chart, Panel, Table
from vicinal.report.charts import Curve, line_chart
from vicinal.report.labels import is_recommended
from vicinal.runs import Run

__all__ = ["verification_chapter"]

SHOWN, POINTS = 4, 60
HIGHEST = 0.5  # largest false accept rate drawn; beyond it all curves converge


def verification_chapter(board: Leaderboard) -> list[Chapter]:
    """Draw DET curves of the recommended and the best methods, and list thresholds of the recommended one."""
    best = board.best.record.name
    others = [entry for entry in board.of_network() if not is_recommended(board, entry)][: SHOWN - 1]
    results = {best: _verified(board.best)} | {entry.name: _verified(entry.typical(board.score)) for entry in others}
    available = {name: verification for name, verification in results.items() if verification is not None}
    if not available:
        return []
    lowest = max(1e-6, min(1 / verification.pairs[1] for verification in available.values()))
    rates = np.logspace(np.log10(lowest), np.log10(HIGHEST), POINTS)
    decades = [10.0**power for power in range(int(np.ceil(np.log10(lowest))), 0)]
    curves = {
        name: Curve(
            [(float(rate), 100 * _false_rejects(verification, float(rate))) for rate in rates],
            "accent" if name == best else "other",
        )
        for name, verification in available.items()
    }
    alt = "DET. " + "; ".join(f"{name}: EER {100 * each['EER']:.1f} %" for name, each in available.items()) + "."
    svg = line_chart(
        curves, x_label="false accept rate", y_label="false reject rate, %", alt=alt, ticks=decades, log=True
    )
    caption = (
        "DET curves: do two items belong to the same class? A higher threshold on the similarity accepts fewer pairs "
        "of different classes (left) and rejects more pairs of the same class (up). Lower is better. All pairs of test "
        "items, one run per method."
    )
    tables = [_thresholds(best, available[best])] if best in available else []
    return [Chapter("Verification", (Chart("det", (Panel(svg, alt),), caption), *tables))]


def _verified(run: Run) -> Verification | None:
    if not run.has_test_items:
        return None
    items = run.test_items()
    if run.record.gallery and items.roles is None:
        return None
    rows, truth, gallery = by_role(items.embeddings, items.labels, items.roles)
    # Binned: finer than the drawing's resolution, at a sixth of the time.
    return verify(rows, truth, gallery=gallery, distance=run.record.distance, exact=False)


def _false_rejects(verification: Verification, rate: float) -> float:
    index = int(np.searchsorted(verification.curve.false_accepts, rate, side="right")) - 1
    return float(1 - verification.curve.true_accepts[index])


def _thresholds(name: str, verification: Verification) -> Table:
    rows = []
    for score, threshold in verification.thresholds.items():
        if score == "accuracy":
            continue
        recognised = 1 - verification["EER"] if score == "EER" else verification[score]
        ends = verification.intervals[score]
        low, high = (1 - ends.high, 1 - ends.low) if score == "EER" else ends
        false = (
            f"{100 * verification['EER']:.2f}" if score == "EER" else f"{100 * float(score.removeprefix('TAR@FAR=')):g}"
        )
        rows.append((f"{threshold:.4f}", false, f"{100 * recognised:.1f}", f"{100 * low:.1f} to {100 * high:.1f}"))
    caption = (
        f"Similarity thresholds of {name}. False accepts: share of pairs of different classes above the threshold. "
        "True accepts: share of pairs of the same class above it, with a 95 % interval over classes. These are rates "
        "on the test classes; for a threshold with a known rate on new classes, run `vicinal calibrate`."
    )
    head = ("threshold", "false accepts, %", "true accepts, %", "95 % interval")
    return Table(head, tuple(rows), caption, words=frozenset())
