"""Same or different: what a threshold on the similarity costs, for the winner and the ways beside it."""

from __future__ import annotations

import numpy as np

from vicinal.evaluation import Verification, verify
from vicinal.evaluation.items import by_role
from vicinal.leaderboard import Entry, Leaderboard
from vicinal.report.blocks import Chapter, Chart, Panel, Table
from vicinal.report.charts import Curve, line_chart

__all__ = ["verification_chapter"]

SHOWN, POINTS = 4, 60
HIGHEST = 0.5  # beyond which all curves go to the same end


def verification_chapter(board: Leaderboard) -> list[Chapter]:
    """The curve DET of the first ways, and thresholds of the winner."""
    found = {entry.label: _verified(board, entry) for entry in board.of_network()[:SHOWN]}
    known = {name: verification for name, verification in found.items() if verification is not None}
    if not known:
        return []
    lowest = max(1e-6, min(1 / verification.pairs[1] for verification in known.values()))
    rates = np.logspace(np.log10(lowest), np.log10(HIGHEST), POINTS)
    decades = [10.0**power for power in range(int(np.ceil(np.log10(lowest))), 0)]
    curves = {
        name: Curve(
            [(float(rate), 100 * _false_rejects(verification, float(rate))) for rate in rates],
            "accent" if place == 0 else "other",
        )
        for place, (name, verification) in enumerate(known.items())
    }
    alt = "DET. " + "; ".join(f"{name}: EER {100 * each['EER']:.1f} per cent" for name, each in known.items()) + "."
    label = "false accepts (FAR); upwards: false rejects, per cent"
    svg = line_chart(curves, x_label=label, alt=alt, ticks=decades, log=True)
    caption = (
        "Are two items the same? A threshold on the similarity that rarely takes different classes for the same (left) "
        "overlooks more pairs that are (upwards). All pairs of test items, one run of each way."
    )
    name, winner = next(iter(known.items()))
    return [Chapter("Same or different", (Chart("det", (Panel(svg, alt),), caption), _thresholds(name, winner)))]


def _verified(board: Leaderboard, entry: Entry) -> Verification | None:
    run = entry.typical(board.score)
    if not run.has_test_items:
        return None
    items = run.test_items()
    if run.record.gallery and items.roles is None:
        return None
    rows, truth, gallery = by_role(items.embeddings, items.labels, items.roles)
    # In steps, which are finer than what is shown, and take a sixth of the time.
    return verify(rows, truth, gallery=gallery, distance=run.record.distance, exact=False)


def _false_rejects(found: Verification, rate: float) -> float:
    place = int(np.searchsorted(found.curve.false_accepts, rate, side="right")) - 1
    return float(1 - found.curve.true_accepts[place])


def _thresholds(name: str, found: Verification) -> Table:
    rows = []
    for score, threshold in found.thresholds.items():
        if score == "accuracy":
            continue
        recognised = 1 - found["EER"] if score == "EER" else found[score]
        ends = found.intervals[score]
        low, high = (1 - ends.high, 1 - ends.low) if score == "EER" else ends
        false = f"{100 * found['EER']:.2f}" if score == "EER" else f"{100 * float(score.removeprefix('TAR@FAR=')):g}"
        rows.append((f"{threshold:.4f}", false, f"{100 * recognised:.1f}", f"{100 * low:.1f} to {100 * high:.1f}"))
    caption = (
        f"Thresholds on the similarity of {name} and what they cost: of pairs of two classes so many are accepted, of "
        "pairs of one class so many recognised, with the interval over classes. These are rates of the test classes; "
        "`vicinal calibrate` chooses a threshold with a promise about new ones."
    )
    head = ("threshold", "false accepts, %", "recognised, %", "95 % interval")
    return Table(head, tuple(rows), caption, words=frozenset())
