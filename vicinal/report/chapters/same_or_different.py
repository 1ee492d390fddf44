"""Chapter on verification: the error rates of a similarity threshold, for the winner and the methods after it."""

from __future__ import annotations

import numpy as np

from vicinal.evaluation import Verification, verify
from vicinal.evaluation.items import by_role
from vicinal.leaderboard import Entry, Leaderboard
from vicinal.report.blocks import Chapter, Chart, Panel, Table
from vicinal.report.charts import Curve, line_chart

__all__ = ["verification_chapter"]

SHOWN, POINTS = 4, 60
HIGHEST = 0.5  # largest false accept rate drawn; beyond it all curves converge


def verification_chapter(board: Leaderboard) -> list[Chapter]:
    """Draw the DET curves of the first methods, and list thresholds of the winner."""
    results = {entry.label: _verified(board, entry) for entry in board.of_network()[:SHOWN]}
    available = {name: verification for name, verification in results.items() if verification is not None}
    if not available:
        return []
    lowest = max(1e-6, min(1 / verification.pairs[1] for verification in available.values()))
    rates = np.logspace(np.log10(lowest), np.log10(HIGHEST), POINTS)
    decades = [10.0**power for power in range(int(np.ceil(np.log10(lowest))), 0)]
    curves = {
        name: Curve(
            [(float(rate), 100 * _false_rejects(verification, float(rate))) for rate in rates],
            "accent" if rank == 0 else "other",
        )
        for rank, (name, verification) in enumerate(available.items())
    }
    alt = "DET. " + "; ".join(f"{name}: EER {100 * each['EER']:.1f} per cent" for name, each in available.items()) + "."
    label = "false accepts (FAR); upwards: false rejects, per cent"
    svg = line_chart(curves, x_label=label, alt=alt, ticks=decades, log=True)
    caption = (
        "Are two items the same? A threshold on the similarity that rarely takes different classes for the same (left) "
        "overlooks more pairs that are (upwards). All pairs of test items, one run of each way."
    )
    name, winner = next(iter(available.items()))
    return [Chapter("Same or different", (Chart("det", (Panel(svg, alt),), caption), _thresholds(name, winner)))]


def _verified(board: Leaderboard, entry: Entry) -> Verification | None:
    run = entry.typical(board.score)
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
        f"Thresholds on the similarity of {name} and what they cost: of pairs of two classes so many are accepted, of "
        "pairs of one class so many recognised, with the interval over classes. These are rates of the test classes; "
        "`vicinal calibrate` chooses a threshold with a promise about new ones."
    )
    head = ("threshold", "false accepts, %", "recognised, %", "95 % interval")
    return Table(head, tuple(rows), caption, words=frozenset())
