"""Calibration: a similarity threshold, what is known of its false matches, and the probability of "same".

`vicinal calibrate` creates one and saves it as `calibration.json` in the folder of the embedder.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, overload

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from vicinal.errors import DataError, InputError
from vicinal.evaluation.threshold import LEVELS, UNITS

__all__ = ["Calibration", "Sameness"]

VERSION = 2  # format of calibration.json


@dataclass(frozen=True)
class Calibration:
    """Similarity from which two items count as the same, and the probability that they are.

    Attributes:
        threshold: Similarity: the cosine, or minus the Euclidean distance; larger is closer.
        false_matches: Rate of false matches that the threshold was chosen for: a share of the pairs of items of two
            new classes.
        level: Strength of the statement about this rate: "estimate", "bound", "average" or "guarantee"; see
            `vicinal.evaluation.threshold`.
        per: "classes" if every pair of classes counts the same, "items" if every pair of items does.
        confidence: Confidence of a bound, a guarantee or the interval.
        classes: Number of classes that the threshold was chosen on.
        seen: Rate of false matches among these classes; of an estimate, that of cross-fitting.
        interval: Approximate interval of the rate of false matches.
        true_matches: Share of the pairs of items of one class that reach the threshold.
        similarities: Knots of the probability curve, ascending.
        probabilities: Probability at each knot that two items are the same, with equal priors.
        embedder: `Embedder.identity` of the embedder whose similarities these are.

    Example:
        >>> rate = {"seen": 0.007, "interval": (0.005, 0.01), "true_matches": 0.5}
        >>> curve = {"similarities": (0.2, 0.8), "probabilities": (0.1, 0.9)}
        >>> rule = Calibration(0.7, 0.01, "bound", "classes", 0.95, 600, **rate, **curve)
        >>> rule.same(0.75), round(rule.probability(0.5), 3), round(rule.probability(0.5, prior=0.1), 3)
        (True, 0.5, 0.1)
    """

    threshold: float
    false_matches: float
    level: str
    per: str
    confidence: float
    classes: int
    seen: float
    interval: tuple[float, float]
    true_matches: float
    similarities: tuple[float, ...]
    probabilities: tuple[float, ...]
    embedder: str = ""

    def __post_init__(self) -> None:
        problems = []
        if not math.isfinite(self.threshold):
            problems.append(f"threshold must be a number, got {self.threshold}")
        if not (0 < self.false_matches < 1 and 0 < self.confidence < 1):
            problems.append(
                f"false_matches and confidence must lie between 0 and 1, got {self.false_matches} and {self.confidence}"
            )
        if self.level not in LEVELS or self.per not in UNITS:
            problems.append(f"level and per must be names of vicinal, got {self.level!r} and {self.per!r}")
        rates = [self.seen, *self.interval, self.true_matches]
        if len(rates) != 4 or not all(0 <= rate <= 1 for rate in rates):
            problems.append(f"seen, interval and true_matches must lie between 0 and 1, got {rates}")
        if self.classes < 2:
            problems.append(f"classes must be at least 2, got {self.classes}")
        knots, chances = np.array(self.similarities, dtype=float), np.array(self.probabilities, dtype=float)
        if len(knots) != len(chances) or not len(knots) or not np.isfinite(knots).all() or (np.diff(knots) <= 0).any():
            problems.append("similarities must be rising numbers, one for each of the probabilities")
        if not ((chances > 0) & (chances < 1)).all() or (np.diff(chances) < 0).any():
            problems.append("probabilities must lie between 0 and 1 and must not fall")
        if problems:
            raise InputError(f"This is no calibration: {'; '.join(problems)}.")

    def __str__(self) -> str:
        return f"Two items are the same if their similarity is at least {self.threshold:.6g}. {self.claim()}"

    def claim(self) -> str:
        """Return what is known of the rate of false matches, in words."""
        rate, sure = f"{100 * self.false_matches:.3g} %", f"{100 * self.confidence:g} %"
        weight = "classes" if self.per == "classes" else "items"
        like = f"drawn like these {self.classes:,} (every pair of {weight} counts the same)"
        if self.level == "estimate":
            low, high = (f"{100 * end:.2g} %" for end in self.interval)
            return (
                f"Estimate: {100 * self.seen:.2g} % of the pairs of items of two held-out classes reached a threshold "
                f"chosen in this way on the others; approximate {sure} interval {low} to {high} for new classes {like}."
            )
        if self.level == "bound":
            return (
                f"Bound: with approximately {sure} confidence, at most {rate} of the pairs of items of two new "
                f"classes reach it, for classes {like}."
            )
        if self.level == "average":
            return (
                f"Average: proved that, in the mean over calibrations, at most {rate} of the pairs of items of two "
                f"new classes reach it, for classes {like}."
            )
        return (
            f"Guarantee: proved that, with {sure} confidence, at most {rate} of the pairs of items of two new classes "
            f"reach it, for classes {like}."
        )

    @overload
    def same(self, similarity: float) -> bool: ...
    @overload
    def same(self, similarity: NDArray[Any]) -> NDArray[np.bool_]: ...
    def same(self, similarity: float | NDArray[Any]) -> bool | NDArray[np.bool_]:
        """Return whether a similarity reaches the threshold."""
        reached = np.asarray(similarity) >= self.threshold
        return reached if reached.ndim else bool(reached)

    @overload
    def probability(self, similarity: float, *, prior: float = 0.5) -> float: ...
    @overload
    def probability(self, similarity: NDArray[Any], *, prior: float = 0.5) -> Float64[np.ndarray, "*shape"]: ...
    def probability(
        self, similarity: float | NDArray[Any], *, prior: float = 0.5
    ) -> float | Float64[np.ndarray, "*shape"]:
        """Return the probability that two items with this similarity are of one class.

        Args:
            similarity: One similarity, or an array of them.
            prior: Probability that two items are of one class before the similarity is known.
        """
        if not 0 < prior < 1:
            raise InputError(f"A prior probability lies between 0 and 1, got {prior}.")
        even = np.interp(similarity, self.similarities, self.probabilities)
        posterior = prior * even / (prior * even + (1 - prior) * (1 - even))
        return np.asarray(posterior, dtype=np.float64) if np.ndim(posterior) else float(posterior)

    def as_dict(self) -> dict[str, Any]:
        """Return its fields, for JSON."""
        lists = {name: list(getattr(self, name)) for name in ("interval", "similarities", "probabilities")}
        return {"version": VERSION} | asdict(self) | lists

    @classmethod
    def of(cls, values: Any) -> Calibration:
        """Create a calibration from the fields that `as_dict` returned, as read from a file.

        Raises:
            DataError: If the values are not those of a calibration.
        """
        if not isinstance(values, dict):
            raise DataError(f"A calibration is a JSON object; got {type(values).__name__}.")
        if values.get("version") != VERSION:
            raise DataError(
                f"This calibration has the format version {values.get('version', 1)}, and this vicinal reads version "
                f"{VERSION}. Calibrate again: vicinal calibrate MODEL DATA."
            )
        names = [part.name for part in fields(cls)]
        if set(values) != {"version", *names}:
            raise DataError(f"A calibration has the fields version, {', '.join(names)}; got {sorted(values)}.")
        try:
            low, high = map(float, values["interval"])
            return cls(
                float(values["threshold"]),
                float(values["false_matches"]),
                str(values["level"]),
                str(values["per"]),
                float(values["confidence"]),
                int(values["classes"]),
                float(values["seen"]),
                (low, high),
                float(values["true_matches"]),
                tuple(map(float, values["similarities"])),
                tuple(map(float, values["probabilities"])),
                str(values["embedder"]),
            )
        except (TypeError, ValueError) as error:
            raise DataError(f"A calibration cannot be read: {error}") from None


@dataclass(frozen=True)
class Sameness:
    """Whether two items are the same; `bool()` of it is `same`.

    Attributes:
        similarity: Cosine, or minus the Euclidean distance.
        same: Whether it reaches the threshold.
        probability: Probability that both are of one class, with equal priors.
        threshold: Threshold of the calibration.
        false_matches: Rate of false matches that the threshold was chosen for.
        level: Strength of the statement about this rate: "estimate", "bound", "average" or "guarantee".
    """

    similarity: float
    same: bool
    probability: float
    threshold: float
    false_matches: float
    level: str

    @classmethod
    def on(cls, similarity: float, rule: Calibration) -> Sameness:
        """Apply a calibration to a similarity."""
        probability = rule.probability(similarity)
        return cls(similarity, rule.same(similarity), probability, rule.threshold, rule.false_matches, rule.level)

    def __bool__(self) -> bool:
        return self.same

    def as_dict(self) -> dict[str, Any]:
        """Return its fields, for JSON."""
        return asdict(self)
