"""Calibration: a similarity threshold with its guarantee, and the probability that two items are the same.

`vicinal calibrate` creates one and saves it as `calibration.json` in the folder of the embedder.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from vicinal.errors import DataError, InputError

__all__ = ["Calibration", "Sameness"]

KEYS = ("threshold", "false_matches", "confidence", "classes", "similarities", "probabilities", "embedder")


@dataclass(frozen=True)
class Calibration:
    """Similarity from which two items count as the same, and the probability that they are.

    Attributes:
        threshold: Similarity: the cosine, or minus the Euclidean distance; larger is closer.
        false_matches: Guaranteed maximum share of the pairs of two new classes that reach the threshold.
        confidence: Probability of the guarantee, over the classes that the threshold was chosen on.
        classes: Number of these classes.
        similarities: Knots of the probability curve, ascending.
        probabilities: Probability at each knot that two items are the same, with equal priors.
        embedder: `Embedder.identity` of the embedder whose similarities these are.

    Example:
        >>> rule = Calibration(0.7, 0.01, 0.95, 600, (0.2, 0.8), (0.1, 0.9))
        >>> rule.same(0.75), round(rule.probability(0.5), 3), round(rule.probability(0.5, prior=0.1), 3)
        (True, 0.5, 0.1)
    """

    threshold: float
    false_matches: float
    confidence: float
    classes: int
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
        return (
            f"same from a similarity of {self.threshold:.6g} on: at most {100 * self.false_matches:g} % of the pairs "
            f"of two new classes reach it, with {100 * self.confidence:g} % confidence over the {self.classes:,} "
            "classes that it was chosen on"
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
        return asdict(self) | {"similarities": list(self.similarities), "probabilities": list(self.probabilities)}

    @classmethod
    def of(cls, values: Any) -> Calibration:
        """Create a calibration from the fields that `as_dict` returned, as read from a file.

        Raises:
            DataError: If the values are not those of a calibration.
        """
        if not isinstance(values, dict) or set(values) != set(KEYS):
            got = sorted(values) if isinstance(values, dict) else type(values).__name__
            raise DataError(f"A calibration has the fields {', '.join(KEYS)}; got {got}.")
        try:
            return cls(
                float(values["threshold"]),
                float(values["false_matches"]),
                float(values["confidence"]),
                int(values["classes"]),
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
        false_matches: Guaranteed maximum share of false matches among pairs of two new classes.
    """

    similarity: float
    same: bool
    probability: float
    threshold: float
    false_matches: float

    @classmethod
    def on(cls, similarity: float, rule: Calibration) -> Sameness:
        """Apply a calibration to a similarity."""
        return cls(similarity, rule.same(similarity), rule.probability(similarity), rule.threshold, rule.false_matches)

    def __bool__(self) -> bool:
        return self.same

    def as_dict(self) -> dict[str, Any]:
        """Return its fields, for JSON."""
        return asdict(self)
