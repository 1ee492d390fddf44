"""Verification: how well a threshold on the similarity separates pairs of one class from pairs of two classes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from vicinal._util.files import replacing, write_atomically
from vicinal._util.text import counted
from vicinal.errors import look_up
from vicinal.evaluation.items import Encoder, Gallery, GroundTruth, LabelledItems, ScoredItems, as_scored_items
from vicinal.evaluation.pairs import GroupCounts, PairCounts, count_pairs
from vicinal.neighbours.inputs import ArrayLike, Labels
from vicinal.stats.intervals import NO_INTERVALS, USUAL_INTERVALS, Bootstrap, Interval, percentile_tail, times_drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Verification", "rates_at", "verify", "verify_items"]


# Rates of a similarity threshold: the ROC and DET curves, the area under ROC, and operating points.
#
# Two items are accepted as the same if their similarity is at least the threshold. FAR, the rate of false accepts, is
# the share of the pairs of two classes that are accepted; TAR, the rate of true accepts, is the share of the pairs of
# one class that are accepted; FRR = 1 - TAR.


class Curve(NamedTuple):
    """Points of ROC and DET from the highest threshold to the lowest, without points on straight segments.

    Attributes:
        thresholds: Thresholds, descending from infinity, which accepts nothing.
        false_accepts: FAR at each threshold.
        true_accepts: TAR at each threshold; 1 - TAR over FAR is the DET curve.
    """

    thresholds: Float64[np.ndarray, " t"]
    false_accepts: Float64[np.ndarray, " t"]
    true_accepts: Float64[np.ndarray, " t"]


class OperatingPoint(NamedTuple):
    """A score and its threshold."""

    score: float
    threshold: float


def area(counts: PairCounts) -> float:
    """Return the area under ROC: how often a pair of one class is more similar than a pair of two; ties count half.

    Example:
        >>> area(PairCounts(np.array([0.1, 0.5, 0.9]), np.array([0, 1, 1]), np.array([2, 1, 0])))
        0.9166666666666666
    """
    below = np.cumsum(counts.negatives) - counts.negatives
    won = counts.positives.astype(np.float64) @ (below + counts.negatives / 2)
    return float(won / (float(counts.positives.sum()) * float(counts.negatives.sum())))


def curve_of(counts: PairCounts) -> Curve:
    """Return ROC, including the point where nothing is accepted; points on straight segments are left out.

    Example:
        >>> curve_of(PairCounts(np.array([0.1, 0.5, 0.9]), np.array([0, 1, 1]), np.array([2, 1, 1]))).true_accepts
        array([0., 1., 1.])
    """
    thresholds, false, true = counts.accepted
    turns = np.ones(len(false), dtype=bool)
    turns[1:-1] = (np.diff(false, 2) != 0) | (np.diff(true, 2) != 0)
    return Curve(thresholds[turns], (false / false[-1])[turns], (true / true[-1])[turns])


def true_accepts_at(counts: PairCounts, false_accepts: float) -> OperatingPoint:
    """Return the highest TAR of a threshold whose FAR is at most this, and the lowest such threshold."""
    thresholds, false, true = counts.accepted
    index = int(np.searchsorted(false, false_accepts * float(false[-1]) * (1 + 1e-12), side="right")) - 1
    return OperatingPoint(float(true[index] / true[-1]), _finite(thresholds, index))


def equal_error(counts: PairCounts) -> OperatingPoint:
    """Return the EER, where FAR and FRR are equal, interpolated linearly between the two ROC points around it."""
    thresholds, false, true = counts.accepted
    accepted, rejected = false / false[-1], 1 - true / true[-1]
    index = int(np.argmax(accepted >= rejected))
    gap, after = rejected[index - 1] - accepted[index - 1], accepted[index] - rejected[index]
    fraction = gap / (gap + after)
    return OperatingPoint(
        float((1 - fraction) * accepted[index - 1] + fraction * accepted[index]), _finite(thresholds, index)
    )


def best_accuracy(counts: PairCounts) -> OperatingPoint:
    """Return the best balanced accuracy, where both kinds of pairs have equal weight: (TAR + 1 - FAR) / 2."""
    thresholds, false, true = counts.accepted
    right = (true / true[-1] + 1 - false / false[-1]) / 2
    index = int(np.argmax(right))
    return OperatingPoint(float(right[index]), _finite(thresholds, index))


def _finite(thresholds: Float64[np.ndarray, " t"], place: int) -> float:
    """Return the threshold at an index; for the one that accepts nothing, the next float above all similarities."""
    return float(np.nextafter(thresholds[1], np.inf) if place == 0 else thresholds[place])


RATES = {"TAR@FAR=1e-2": 1e-2, "TAR@FAR=1e-3": 1e-3, "TAR@FAR=1e-4": 1e-4, "TAR@FAR=1e-5": 1e-5, "TAR@FAR=1e-6": 1e-6}
FIRM = 100  # number of false accepts from which a rate is reliable
FEW_CLASSES = 30  # number of classes below which a bootstrap over classes says little


@dataclass(frozen=True, eq=False, repr=False)
class Verification:
    """How well a threshold on the similarity decides between same and different.

    Attributes:
        overall: AUC, EER, accuracy (balanced: both kinds of pairs have equal weight), and TAR at each FAR that there
            are enough pairs for.
        intervals: Interval of each score, over classes.
        thresholds: Threshold of each score but AUC: the cosine, or minus the Euclidean distance.
        curve: Points of ROC; `det` has the error rates.
        pairs: Numbers of pairs of one class, and of two classes.
        classes: Labels in ascending order.
        by_class: For each class with pairs, the share of them that the threshold of each score accepts.
        settings: Settings of the evaluation.
        notes: Caveats to read before relying on the numbers.

    Example:
        >>> found = verify([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], ["a", "a", "b", "b"])
        >>> found["AUC"], found["EER"], found.pairs
        (1.0, 0.0, (2, 4))
    """

    overall: Mapping[str, float]
    intervals: Mapping[str, Interval]
    thresholds: Mapping[str, float]
    curve: Curve
    pairs: tuple[int, int]
    classes: tuple[int, ...] | tuple[str, ...]
    by_class: Mapping[str, Mapping[int | str, float]]
    settings: Mapping[str, str | float | int | bool | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        return look_up("score", name, self.overall)

    def keys(self) -> Iterable[str]:
        """Return the names of the scores, so that `dict(verification)` works."""
        return self.overall.keys()

    def __repr__(self) -> str:
        return f"Verification({', '.join(f'{name}={value:.4f}' for name, value in self.overall.items())})"

    def __str__(self) -> str:
        lines = [f"{'score':<12}  {'value':>8}  {'interval over classes':>22}  {'threshold':>10}"]
        for name, value in self.overall.items():
            ends = self.intervals.get(name)
            between = f"{ends.low:.4f} to {ends.high:.4f}" if ends else ""
            threshold = f"{self.thresholds[name]:.6f}" if name in self.thresholds else ""
            lines.append(f"{name:<12}  {value:>8.4f}  {between:>22}  {threshold:>10}".rstrip())
        return "\n".join([*lines, "", self.summary(), *(f"Note: {note}" for note in self.notes)])

    def summary(self) -> str:
        """Return the numbers of pairs and classes, and how much classes differ, as text."""
        spread = ""
        name = next((name for name, rate in reversed(RATES.items()) if rate * self.pairs[1] >= FIRM), "")
        if name in self.by_class:
            shares = np.array(list(self.by_class[name].values()))
            low, middle, high = np.quantile(shares, [0.1, 0.5, 0.9])
            spread = f" {name} of a class: {middle:.3f} in the middle, {low:.3f} to {high:.3f} for 8 of 10 classes."
        pairs = f"{counted(self.pairs[0], 'pair')} of one class, {self.pairs[1]:,} of two"
        return f"{pairs}, {counted(len(self.classes), 'class')}.{spread}"

    @property
    def det(self) -> tuple[Float64[np.ndarray, " t"], Float64[np.ndarray, " t"]]:
        """DET curve: the rates of false accepts and of false rejects."""
        return self.curve.false_accepts, 1 - self.curve.true_accepts

    def thresholds_in_words(self) -> str:
        """Return the threshold of each score in one line."""
        return "Thresholds: " + ", ".join(f"{name} {value:.4f}" for name, value in self.thresholds.items()) + "."

    def per_class(self, name: str) -> dict[int | str, float]:
        """Return the share of each class's pairs that the threshold of a score accepts, worst class first."""
        return dict(sorted(look_up("score per class", name, self.by_class).items(), key=lambda entry: entry[1]))

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the DET curve; save the figure if a path is given."""

        figure = draw_det(self)
        if path is not None:
            with replacing(Path(path)) as file:
                figure.savefig(file, format=Path(path).suffix[1:].lower() or "png")
        return figure

    def to_dict(self) -> dict[str, float]:
        """Return each score by name."""
        return {name: float(value) for name, value in self.overall.items()}

    def to_json(self, path: str | Path | None = None) -> str:
        """Return everything except the curve as JSON, and write it if a path is given."""
        record: dict[str, Any] = {
            "overall": self.to_dict(),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "thresholds": dict(self.thresholds),
            "pairs": {"one class": self.pairs[0], "two classes": self.pairs[1]},
            "classes": len(self.classes),
            "per class": {name: list(self.per_class(name).items()) for name in self.by_class},
            "settings": dict(self.settings),
            "notes": list(self.notes),
        }
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        if path is not None:
            write_atomically(Path(path), text + "\n")
        return text


def verify(
    embeddings: ArrayLike | Encoder,
    labels: Labels | LabelledItems | GroundTruth,
    *,
    gallery: Gallery | None = None,
    distance: str | None = None,
    exact: bool = True,
    intervals: Bootstrap | None = USUAL_INTERVALS,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Verification:
    """Score embeddings by how well a similarity threshold separates pairs of one class from pairs of two classes.

    All pairs are counted, block by block. For up to 33 million pairs, similarities are exact; beyond that they are
    computed in float32 and rounded to steps of 4e-6, and everything else is exact.

    Args:
        embeddings: One row per item, or per query if there is a gallery; or an embedder.
        labels: One label per row; or the dataset of the rows. `GroundTruth(labels, sequences=...)` leaves out
            pairs of one sequence.
        gallery: Pair of embeddings and labels, one row per reference, for queries that are compared with other items.
        distance: "cosine" or "euclidean"; by default the embedder's own, and cosine for embeddings.
        exact: Whether similarities are exact if there are few pairs; False rounds them, which is much faster.
        intervals: Resamples, confidence and seed of the intervals; None for no intervals.
        progress: Callback, called with the fraction of pairs that are done.

    Example:
        >>> print(verify([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], ["a", "a", "b", "b"], intervals=None))
        score            value   interval over classes   threshold
        AUC             1.0000
        EER             0.0000                            0.995037
        accuracy        1.0000                            0.995037
        <BLANKLINE>
        2 pairs of one class, 4 of two, 2 classes.
        Note: There are 4 pairs of two classes: a FAR of 1e-2 or less needs at least 100.
    """
    items = as_scored_items(embeddings, labels, gallery=gallery, distance=distance)
    return verify_items(items, exact=exact, intervals=intervals, progress=progress)


def rates_at(
    threshold: float,
    embeddings: ArrayLike,
    labels: Labels | GroundTruth,
    *,
    gallery: Gallery | None = None,
    distance: str | None = None,
) -> tuple[float, float]:
    """Return FAR and TAR of a threshold: the accepted shares of the pairs of two classes, and of one class.

    Example:
        >>> rates_at(0.9, [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], ["a", "a", "b", "b"])
        (0.0, 1.0)
    """
    counts, _ = count_pairs(as_scored_items(embeddings, labels, gallery=gallery, distance=distance))
    reached = counts.values >= threshold
    false, true = (pairs[reached].sum() / pairs.sum() for pairs in (counts.negatives, counts.positives))
    return float(false), float(true)


def verify_items(
    items: ScoredItems,
    *,
    exact: bool = True,
    intervals: Bootstrap | None = USUAL_INTERVALS,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Verification:
    """Score items that are already validated; see `verify`."""
    bootstrap = intervals or NO_INTERVALS
    counts, groups = count_pairs(items, exact=exact, progress=progress)
    pairs = int(counts.positives.sum()), int(counts.negatives.sum())
    points = {"EER": equal_error(counts), "accuracy": best_accuracy(counts)}
    points |= {name: true_accepts_at(counts, rate) for name, rate in RATES.items() if rate * pairs[1] >= 1}
    overall = {"AUC": area(counts)} | {name: point.score for name, point in points.items()}
    thresholds = {name: point.threshold for name, point in points.items()}
    return Verification(
        overall,
        _intervals(groups, overall, bootstrap) if bootstrap.draws else {},
        thresholds,
        curve_of(counts),
        pairs,
        items.classes,
        _by_class(groups, thresholds, items.classes),
        {
            "distance": items.queries.distance,
            "gallery": not items.ignored.itself,
            "sequences": items.ignored.queries is not None,
            **asdict(bootstrap),
            "step": counts.step,
        },
        _notes(counts, pairs[1], len(items.classes), bootstrap.draws),
    )


def _notes(counts: PairCounts, negatives: int, classes: int, draws: int) -> tuple[str, ...]:
    notes = []
    absent = [name for name, rate in RATES.items() if rate * negatives < 1]
    weak = [name for name, rate in RATES.items() if 1 <= rate * negatives < FIRM]
    if absent:
        rate = absent[0].removeprefix("TAR@FAR=")
        notes.append(
            f"There are {negatives:,} pairs of two classes: a FAR of {rate} or less needs at least "
            f"{round(1 / RATES[absent[0]]):,}."
        )
    if weak:
        notes.append(f"{', '.join(weak)}: fewer than {FIRM} pairs decide; a few accidents, and no more than a hint.")
    if draws and classes < FEW_CLASSES:
        notes.append(f"Intervals over {classes} classes say little; {FEW_CLASSES} or more say something.")
    if counts.step:
        notes.append(f"Similarities were computed in float32 and rounded to steps of {counts.step:.1e}.")
    return tuple(notes)


def _by_class(
    groups: GroupCounts, thresholds: Mapping[str, float], classes: tuple[int, ...] | tuple[str, ...]
) -> dict[str, dict[int | str, float]]:
    """Return the share of each class's pairs that each threshold accepts."""
    if groups.similarities is None or groups.codes is None:
        return {}
    pairs = np.bincount(groups.codes, minlength=len(classes))
    with_pairs = np.flatnonzero(pairs)
    shares = {}
    for name, threshold in thresholds.items():
        accepted = np.bincount(groups.codes[groups.similarities >= threshold], minlength=len(classes))
        shares[name] = {classes[code]: float(accepted[code] / pairs[code]) for code in with_pairs}
    return shares


def _intervals(groups: GroupCounts, overall: Mapping[str, float], bootstrap: Bootstrap) -> dict[str, Interval]:
    """Bootstrap over groups of whole classes, since the pairs of a class are not independent of each other.

    A pair of two groups is weighted by the product of how often both are drawn, a pair within a group by how often the
    group is drawn. The scores of a draw are read off the curve at a few hundred thresholds; the interval uses their
    difference from the same reading without resampling.
    """
    count = len(groups.positives)
    times = times_drawn(np.random.default_rng(bootstrap.seed), bootstrap.draws, count)
    times = np.vstack([np.ones(count), times])
    within = np.einsum("gge->ge", groups.negatives).astype(np.float64)
    between = groups.negatives.astype(np.float64)
    between[np.arange(count), np.arange(count)] = 0
    negatives = times @ within
    for group in range(count):
        negatives += times[:, group, None] * (times @ between[group])
    scores = _coarse_scores(times @ groups.positives, negatives, overall)
    tail = percentile_tail(bootstrap.confidence, count)
    intervals = {}
    for name, values in scores.items():
        shift = values[1:] - values[0]
        low, high = np.nanquantile(shift, [tail, 1 - tail]) if np.isfinite(shift).any() else (0.0, 0.0)
        ends = np.clip([overall[name] + low, overall[name] + high], 0, 1)
        intervals[name] = Interval(float(ends[0]), float(ends[1]))
    return intervals


def _coarse_scores(
    positives: NDArray[np.float64], negatives: NDArray[np.float64], wanted: Iterable[str]
) -> dict[str, NDArray[np.float64]]:
    """Return the scores of each row of counts in bins."""
    with np.errstate(invalid="ignore", divide="ignore"):
        # accepted from each edge on, the highest edge first; at the start nothing is
        true, false = (
            np.cumsum(np.pad(counts[:, ::-1], ((0, 0), (1, 0))), axis=1) / counts.sum(axis=1, keepdims=True)
            for counts in (positives, negatives)
        )
    results = {
        "AUC": np.sum(np.diff(false, axis=1) * (true[:, 1:] + true[:, :-1]) / 2, axis=1),
        "accuracy": np.max((true + 1 - false) / 2, axis=1),
        "EER": np.array([_crossing(f, 1 - t) for f, t in zip(false, true, strict=True)]),
    }
    for name in wanted:
        if name in RATES:
            results[name] = np.array([np.interp(RATES[name], f, t) for f, t in zip(false, true, strict=True)])
    return {name: results[name] for name in wanted}


def _crossing(accepted: NDArray[np.float64], rejected: NDArray[np.float64]) -> float:
    index = int(np.argmax(accepted >= rejected))
    if index == 0:
        return float("nan")
    gap, after = rejected[index - 1] - accepted[index - 1], accepted[index] - rejected[index]
    return float(accepted[index - 1] + gap / (gap + after) * (accepted[index] - accepted[index - 1]))


# The DET curve of a verification: both kinds of errors, on logarithmic axes.

LOWEST = 1e-7


def draw_det(found: Verification) -> Figure:
    """Draw false rejects over false accepts, and mark the EER and the scored rates."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    false, rejected = found.det
    shown = (false > 0) & (rejected > 0)
    axes.plot(false[shown], rejected[shown], color="#1f5fa8", linewidth=1.6)
    for name, value in found.overall.items():
        if name.startswith("TAR@FAR=") and value < 1:
            rate = float(name.removeprefix("TAR@FAR="))
            axes.plot(rate, 1 - value, "o", color="#1f5fa8", markersize=4)
            axes.annotate(f"{value:.2f}", (rate, 1 - value), (4, 5), textcoords="offset points", fontsize=8)
    if found["EER"] > 0:
        axes.plot(found["EER"], found["EER"], "D", color="#b5482a", markersize=5)
        axes.annotate(
            f"EER {found['EER']:.3f}", (found["EER"], found["EER"]), (6, 6), textcoords="offset points", fontsize=8
        )
    axes.set(xscale="log", yscale="log", xlabel="false accepts (FAR)", ylabel="false rejects (1 - TAR)")
    axes.set_xlim(max(LOWEST, float(false[shown].min(initial=1))), 1)
    axes.set_ylim(top=1.1, bottom=max(1e-4, float(np.min(rejected[shown], initial=1))))
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)
    axes.set_title("DET: what a threshold costs; numbers are TAR", fontsize=9)
    return figure
