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
CLEAR = 1.645  # standard errors that a gain must exceed, 5 % one-sided


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
        text += f"; {early} of {counted(len(records), 'run')} stopped early"
        patience = records[0].recipe["training"].get("patience")  # the same for all
        text += "" if patience is None else f", after {counted(patience, 'evaluation')} without improvement"
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
        '0.001, lowest of 2 tried'
    """
    rate = float(record.recipe["training"]["learning_rate"])
    tried = record.rates
    if len(tried) < 2:
        return f"{rate:g}"
    scored = {each: score for each, score in tried.items() if score is not None}
    best = max(scored, key=lambda each: scored[each]) if scored else None
    if best is not None and rate not in tried:  # a search continued from the best rate
        return f"{rate:.3g}, tuned near {best:g}, {_rank(best, tried)}"
    return f"{rate:g}, {_rank(rate, tried)}"


def _rank(rate: float, tried: Mapping[float, float | None]) -> str:
    position = "lowest of" if rate <= min(tried) else "highest of" if rate >= max(tried) else "best of"
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
    return f"Learning rates selected on validation classes: {'; '.join(descriptions)}."


def rise(entry: Entry) -> float | None:
    """Return how much an entry's validation score would rise with a larger budget; None if that is not known.

    It is measured by runs with twice the budget where there were any. Otherwise it is the rise in the last quarter of
    the images, as a mean over runs, unless the learning rate falls to zero at the end, which hides it.
    """
    tested = entry.records[0].twice_the_budget
    if tested is not None:
        gain, error = tested
        return gain if gain > CLEAR * error else 0.0
    rises = [_rise(record) for record in entry.records]
    measured = [value for value in rises if value is not None]
    return float(np.mean(measured)) if measured else None


def risers(board: Leaderboard) -> list[tuple[Entry, float]]:
    """Return the main network's entries whose scores would rise notably with a larger budget, and by how much."""
    rising = []
    for entry in board.of_network():
        risen, score = rise(entry), entry.validation(board.score)
        notable = 0.0 if entry.records[0].twice_the_budget is not None else NOTABLE
        if risen is not None and score and risen > notable * score:
            rising.append((entry, risen))
    return rising


def rising_in_words(board: Leaderboard) -> str | None:
    """Describe which methods were still rising at the end of the budget; None if none was, or if it is unknown."""
    if not board.entries:
        return None
    rising = risers(board)
    if not rising:
        return None
    tested = rising[0][0].records[0].twice_the_budget is not None
    descriptions = [f"{entry.name} ({fraction(risen, 3, sign=True)})" for entry, risen in rising]
    if tested:
        return f"Twice the budget raises the validation scores of {listed(descriptions)}, and of no other method."
    seen = max(record.images for entry in board.of_network() for record in entry.records)
    order = " and may change the order" if len(board.of_network()) > 1 else ""
    return (
        f"Validation scores rose in the last quarter of {counted(seen, 'image')}: {listed(descriptions)}. A larger "
        f"budget would raise them further{order}."
    )


def _rise(record: Record) -> float | None:
    falls = record.recipe["training"].get("schedule") == "cosine"
    if len(record.curve) < FEWEST or ended_by(record) == "patience" or falls:
        return None
    before = [score for images, score in record.curve if images <= (1 - LAST_PART) * record.images]
    if not before:
        return None
    return max(0.0, max(score for _, score in record.curve) - max(before))
