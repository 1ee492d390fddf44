"""Training effort of each method: its budget, its learning rate, and whether more images might have helped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from vicinal._util.text import counted, duration, fraction, listed
from vicinal.leaderboard.entry import Entry
from vicinal.runs.record import Record

if TYPE_CHECKING:
    from vicinal.leaderboard.leaderboard import Leaderboard

__all__ = ["budget_in_words", "ended_by", "rate_in_words", "rates_in_words", "rise", "risers", "rising_in_words"]

LAST_PART = 0.25  # share of a run's images; a score that still rises there shows that the budget was too small
NOTABLE = 0.02  # smallest rise that counts, as a share of the score
FEWEST = 3  # evaluations needed to detect a rise


def budget_in_words(board: Leaderboard) -> str | None:
    """Describe how many images the runs saw; None if the journal does not record it."""
    records = [record for record in board.records if record.images]
    if not records:
        return None
    fewest, most = min(record.images for record in records), max(record.images for record in records)
    if fewest == most:
        return f"Every run saw {counted(most, 'image')}."
    text = f"Runs saw {fewest:,} to {counted(most, 'image')}"
    ends = [ended_by(record) for record in records]
    if "time" in ends:
        text += f" in {_time_limits(records)} of training each"
    if early := ends.count("patience"):
        text += f"; {counted(early, 'run')} of {len(records)} ended early"
        patience = records[0].recipe["training"].get("patience")  # the same for all
        text += "" if patience is None else f", since {counted(patience, 'evaluation')} in a row had brought nothing"
    return f"{text}."


def ended_by(record: Record) -> Literal["steps", "time", "patience"]:
    """Return what ended a run: its step budget, its time budget, or a validation score that had stopped rising."""
    training = record.recipe["training"]
    steps, seconds = training["steps"], training.get("seconds")
    if steps is not None and record.steps >= steps:
        return "steps"
    return "time" if seconds is not None and record.seconds >= seconds else "patience"


def _time_limits(records: Sequence[Record]) -> str:
    limits = sorted({float(record.recipe["training"].get("seconds") or 0.0) for record in records} - {0.0})
    return duration(limits[0]) if len(limits) == 1 else f"{duration(limits[0])} to {duration(limits[-1])}"


def rate_in_words(record: Record) -> str:
    """Describe the learning rate, and its position among the rates that were tried.

    Example:
        >>> recipe = {"training": {"learning_rate": 1e-3}}
        >>> rate_in_words(Record(key="", name="", status="done", recipe=recipe, rates={1e-3: 0.2, 3e-3: 0.1}))
        '0.001, the lowest of 2 tried'
    """
    rate = float(record.recipe["training"]["learning_rate"])
    tried = record.rates
    if len(tried) < 2:
        return f"{rate:g}"
    scored = {each: score for each, score in tried.items() if score is not None}
    best = max(scored, key=lambda each: scored[each]) if scored else None
    if best is not None and rate not in tried:  # a search continued from the best rate
        return f"{rate:.3g}, searched for around {best:g}, {_place(best, tried)}"
    return f"{rate:g}, {_place(rate, tried)}"


def _place(rate: float, tried: Mapping[float, float | None]) -> str:
    position = "the lowest of" if rate <= min(tried) else "the highest of" if rate >= max(tried) else "best of"
    return f"{position} {len(tried)} tried"


def rates_in_words(board: Leaderboard) -> str | None:
    """Describe which learning rate was chosen for each method; None if no rates were tried."""
    climbed = [entry for entry in board.of_network() if entry.records[0].rates] if board.entries else []
    if not climbed:
        return None
    alike: dict[str, list[str]] = {}
    for entry in climbed:
        alike.setdefault(rate_in_words(entry.records[0]), []).append(entry.name)
    descriptions = [f"{listed(names)} {rate}" for rate, names in alike.items()]
    at_an_end = any("lowest" in rate or "highest" in rate for rate in alike)
    longer = f"; --rates {len(climbed[0].records[0].rates) + 2} would look beyond the ends" if at_an_end else ""
    return f"Learning rates, chosen on validation classes: {'; '.join(descriptions)}{longer}."


def rise(entry: Entry) -> float | None:
    """Return how much an entry's validation score rose in the last quarter of its images, as a mean over its runs.

    None if runs were evaluated too rarely to tell, or ended because their scores had stopped rising.
    """
    rises = [_rise(record) for record in entry.records]
    measured = [value for value in rises if value is not None]
    return float(np.mean(measured)) if measured else None


def risers(board: Leaderboard) -> list[tuple[Entry, float]]:
    """Return the main network's entries whose scores were still rising at the end of the budget, and by how much."""
    rising = []
    for entry in board.of_network():
        risen, score = rise(entry), entry.validation(board.score)
        if risen is not None and score and risen >= NOTABLE * score:
            rising.append((entry, risen))
    return rising


def rising_in_words(board: Leaderboard) -> str | None:
    """Describe which methods were still rising at the end of the budget; None if none was, or if it is unknown."""
    if not board.entries:
        return None
    rising = risers(board)
    if not rising:
        return None
    descriptions = [f"{entry.name} ({fraction(risen, 3, sign=True)} in its last quarter)" for entry, risen in rising]
    seen = max(record.images for entry in board.of_network() for record in entry.records)
    order = " and may change the order" if len(board.of_network()) > 1 else ""
    return (
        f"Still rising after {counted(seen, 'image')}: {listed(descriptions)}. More of them would raise the validation "
        f"scores further{order}."
    )


def _rise(record: Record) -> float | None:
    if len(record.curve) < FEWEST or ended_by(record) == "patience":
        return None
    before = [score for images, score in record.curve if images <= (1 - LAST_PART) * record.images]
    if not before:
        return None
    return max(0.0, max(score for _, score in record.curve) - max(before))
