"""Same or different: how well one threshold on the similarity tells pairs of one class from pairs of two."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from vicinal.atomic import replacing, write_atomically
from vicinal.errors import InputError, look_up
from vicinal.evaluation.pair_counts import GroupCounts, count_pairs
from vicinal.evaluation.pair_similarities import PairCounts
from vicinal.evaluation.roc import Curve, area, best_accuracy, curve_of, equal_error, true_accepts_at
from vicinal.evaluation.scored_items import Encoder, LabelledItems, ScoredItems, as_scored_items
from vicinal.neighbours.checked_inputs import ArrayLike, Labels
from vicinal.phrasing import counted
from vicinal.statistics.intervals import Interval, times_drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Verification", "verify", "verify_items"]

RATES = {"TAR@FAR=1e-2": 1e-2, "TAR@FAR=1e-3": 1e-3, "TAR@FAR=1e-4": 1e-4, "TAR@FAR=1e-5": 1e-5, "TAR@FAR=1e-6": 1e-6}
FIRM = 100  # false accepts from which on a rate is more than a few accidents
FEW_CLASSES = 30  # below which resampled classes say little


@dataclass(frozen=True, eq=False, repr=False)
class Verification:
    """How well a threshold on the similarity decides between same and different.

    Attributes:
        overall: AUC, EER, accuracy (where both kinds of pairs count the same), and TAR at those FARs that there are
            enough pairs for.
        intervals: Of each, over classes.
        thresholds: Of each but AUC: the similarity, the cosine or minus the Euclidean distance.
        curve: The points of ROC; `det` has the rates of errors.
        pairs: How many of one class, and of two.
        classes: The labels in rising order.
        by_class: For each class with pairs, the share of them that the threshold of each rate accepts.
        settings: What was asked for.
        notes: What a reader should know before believing the numbers.

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
        """Names of the scores, so that `dict(verification)` has them all."""
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
        """How many pairs and classes there were, and how much classes differ."""
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
        """The curve DET: the rates of false accepts and of false rejects."""
        return self.curve.false_accepts, 1 - self.curve.true_accepts

    def per_class(self, name: str) -> dict[int | str, float]:
        """The share of each class's pairs that the threshold of a score accepts, worst class first."""
        return dict(sorted(look_up("score per class", name, self.by_class).items(), key=lambda entry: entry[1]))

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw DET; save the figure if a path is given."""
        from vicinal.evaluation.det_plot import draw_det

        figure = draw_det(self)
        if path is not None:
            with replacing(Path(path)) as file:
                figure.savefig(file, format=Path(path).suffix[1:].lower() or "png")
        return figure

    def to_dict(self) -> dict[str, float]:
        """Each score by its name."""
        return {name: float(value) for name, value in self.overall.items()}

    def to_json(self, path: str | Path | None = None) -> str:
        """Return all but the curve as JSON, and write it if a path is given."""
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
    labels: Labels | LabelledItems,
    *,
    gallery: ArrayLike | None = None,
    gallery_labels: Labels | None = None,
    sequences: Labels | None = None,
    gallery_sequences: Labels | None = None,
    distance: str | None = None,
    exact: bool = True,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Verification:
    """Score embeddings by how well one threshold on the similarity tells pairs of one class from pairs of two.

    All pairs are counted, blocks of them at a time. Up to 33 million pairs similarities are exact; beyond that they are
    computed in float32 and rounded to steps of 4e-6, and everything else is exact.

    Args:
        embeddings: One row per item, or per query if there is a gallery; or an embedder.
        labels: One label per row; or the dataset that the rows are of.
        gallery: One row per reference, for queries that are compared with other items.
        gallery_labels: One label per reference.
        sequences: One entry per row; pairs with the same entry do not count.
        gallery_sequences: One entry per reference, with a gallery.
        distance: "cosine" or "euclidean"; by default the embedder's own, and cosine for embeddings.
        exact: False rounds the similarities of few pairs as those of many, which takes a fraction of the time.
        draws: Resamples of the intervals; 0 for no intervals.
        confidence: Of the intervals.
        seed: Of the resamples.
        progress: Called with the fraction of pairs that are done.

    Example:
        >>> print(verify([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], ["a", "a", "b", "b"], draws=0))
        score            value   interval over classes   threshold
        AUC             1.0000
        EER             0.0000                            0.995037
        accuracy        1.0000                            0.995037
        <BLANKLINE>
        2 pairs of one class, 4 of two, 2 classes.
        Note: There are 4 pairs of two classes: a FAR of 1e-2 or less needs at least 100.
    """
    items = as_scored_items(
        embeddings,
        labels,
        gallery=gallery,
        gallery_labels=gallery_labels,
        sequences=sequences,
        gallery_sequences=gallery_sequences,
        distance=distance,
    )
    return verify_items(items, exact=exact, draws=draws, confidence=confidence, seed=seed, progress=progress)


def verify_items(
    items: ScoredItems,
    *,
    exact: bool = True,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Verification:
    """Do what `verify` does, for items that are checked already."""
    if draws < 0 or seed < 0 or not 0 < confidence < 1:
        raise InputError(
            f"draws and seed must not be negative and 0 < confidence < 1; got {draws}, {seed} and {confidence}."
        )
    counts, groups = count_pairs(items, exact=exact, progress=progress)
    pairs = int(counts.positives.sum()), int(counts.negatives.sum())
    points = {"EER": equal_error(counts), "accuracy": best_accuracy(counts)}
    points |= {name: true_accepts_at(counts, rate) for name, rate in RATES.items() if rate * pairs[1] >= 1}
    overall = {"AUC": area(counts)} | {name: point.score for name, point in points.items()}
    thresholds = {name: point.threshold for name, point in points.items()}
    return Verification(
        overall,
        _intervals(groups, overall, draws, confidence, seed) if draws else {},
        thresholds,
        curve_of(counts),
        pairs,
        items.classes,
        _by_class(groups, thresholds, items.classes),
        {
            "distance": items.queries.distance,
            "gallery": not items.ignored.itself,
            "sequences": items.ignored.queries is not None,
            "draws": draws,
            "confidence": confidence,
            "seed": seed,
            "step": counts.step,
        },
        _notes(counts, pairs[1], len(items.classes), draws),
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
    """The share of each class's pairs that each threshold accepts."""
    if groups.similarities is None or groups.codes is None:
        return {}
    pairs = np.bincount(groups.codes, minlength=len(classes))
    known = np.flatnonzero(pairs)
    found = {}
    for name, threshold in thresholds.items():
        accepted = np.bincount(groups.codes[groups.similarities >= threshold], minlength=len(classes))
        found[name] = {classes[code]: float(accepted[code] / pairs[code]) for code in known}
    return found


def _intervals(
    groups: GroupCounts, overall: Mapping[str, float], draws: int, confidence: float, seed: int
) -> dict[str, Interval]:
    """Bootstrap over groups of whole classes: pairs of one class fail together, and those of two classes with both.

    A pair of two groups comes up as often as both are drawn, one within a group as often as the group. Scores of a draw
    are read off the curve at a few hundred thresholds; what counts is how far they are from the same reading without a
    draw.
    """
    many = len(groups.positives)
    times = times_drawn(np.random.default_rng(seed), draws, many)
    times = np.vstack([np.ones(many), times])
    within = np.einsum("gge->ge", groups.negatives).astype(np.float64)
    between = groups.negatives.astype(np.float64)
    between[np.arange(many), np.arange(many)] = 0
    negatives = times @ within
    for group in range(many):
        negatives += times[:, group, None] * (times @ between[group])
    scores = _coarse_scores(times @ groups.positives, negatives, overall)
    tail = (1 - confidence) / 2
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
    """The scores of each row of counts between edges."""
    with np.errstate(invalid="ignore", divide="ignore"):
        # accepted from each edge on, the highest first, and before it nothing
        true, false = (
            np.cumsum(np.pad(counts[:, ::-1], ((0, 0), (1, 0))), axis=1) / counts.sum(axis=1, keepdims=True)
            for counts in (positives, negatives)
        )
    found = {
        "AUC": np.sum(np.diff(false, axis=1) * (true[:, 1:] + true[:, :-1]) / 2, axis=1),
        "accuracy": np.max((true + 1 - false) / 2, axis=1),
        "EER": np.array([_crossing(f, 1 - t) for f, t in zip(false, true, strict=True)]),
    }
    for name in wanted:
        if name in RATES:
            found[name] = np.array([np.interp(RATES[name], f, t) for f, t in zip(false, true, strict=True)])
    return {name: found[name] for name in wanted}


def _crossing(accepted: NDArray[np.float64], rejected: NDArray[np.float64]) -> float:
    place = int(np.argmax(accepted >= rejected))
    if place == 0:
        return float("nan")
    gap, after = rejected[place - 1] - accepted[place - 1], accepted[place] - rejected[place]
    return float(accepted[place - 1] + gap / (gap + after) * (accepted[place] - accepted[place - 1]))
