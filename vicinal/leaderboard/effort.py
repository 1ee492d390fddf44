"""What each method was given and made of it: its learning rate, and whether more images might have helped it."""

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

LAST_PART = 0.25  # of the images of a run, in which a score that still rises tells that they were too few
NOTABLE = 0.02  # of the score
FEWEST = 3  # evaluations that tell a rise from its end


def budget_in_words(board: Leaderboard) -> str | None:
    """How many images runs saw; None where a journal does not tell."""
    records = [record for record in board.records if record.images]
    if not records:
        return None
    fewest, most = min(record.images for record in records), max(record.images for record in records)
    if fewest == most:
        return f"Every run saw {counted(most, 'image')}."
    told = f"Runs saw {fewest:,} to {counted(most, 'image')}"
    ends = [ended_by(record) for record in records]
    if "time" in ends:
        told += f" in {_time_limits(records)} of training each"
    if early := ends.count("patience"):
        told += f"; {counted(early, 'run')} of {len(records)} ended early"
        patience = records[0].recipe["training"].get("patience")  # the same for all
        told += "" if patience is None else f", since {counted(patience, 'evaluation')} in a row had brought nothing"
    return f"{told}."


def ended_by(record: Record) -> Literal["steps", "time", "patience"]:
    """What ended a run: its steps or its time was used up, or its validation score had stopped rising."""
    training = record.recipe["training"]
    steps, seconds = training["steps"], training.get("seconds")
    if steps is not None and record.steps >= steps:
        return "steps"
    return "time" if seconds is not None and record.seconds >= seconds else "patience"


def _time_limits(records: Sequence[Record]) -> str:
    limits = sorted({float(record.recipe["training"].get("seconds") or 0.0) for record in records} - {0.0})
    return duration(limits[0]) if len(limits) == 1 else f"{duration(limits[0])} to {duration(limits[-1])}"


def rate_in_words(record: Record) -> str:
    """The learning rate, and where it stood among those tried.

    Example:
        >>> recipe = {"training": {"learning_rate": 1e-3}}
        >>> rate_in_words(Record(key="", name="", status="done", recipe=recipe, rates={1e-3: 0.2, 3e-3: 0.1}))
        '0.001, the lowest of 2 tried'
    """
    rate = float(record.recipe["training"]["learning_rate"])
    tried = record.rates
    if len(tried) < 2:
        return f"{rate:g}"
    known = {each: score for each, score in tried.items() if score is not None}
    best = max(known, key=lambda each: known[each]) if known else None
    if best is not None and rate not in tried:  # a search went on from there
        return f"{rate:.3g}, searched for around {best:g}, {_place(best, tried)}"
    return f"{rate:g}, {_place(rate, tried)}"


def _place(rate: float, tried: Mapping[float, float | None]) -> str:
    place = "the lowest of" if rate <= min(tried) else "the highest of" if rate >= max(tried) else "best of"
    return f"{place} {len(tried)} tried"


def rates_in_words(board: Leaderboard) -> str | None:
    """Which learning rates were chosen for whom; None where rates were taken as given."""
    climbed = [entry for entry in board.of_network() if entry.records[0].rates] if board.entries else []
    if not climbed:
        return None
    alike: dict[str, list[str]] = {}
    for entry in climbed:
        alike.setdefault(rate_in_words(entry.records[0]), []).append(entry.name)
    told = [f"{listed(names)} {rate}" for rate, names in alike.items()]
    at_an_end = any("lowest" in rate or "highest" in rate for rate in alike)
    longer = f"; --rates {len(climbed[0].records[0].rates) + 2} would look beyond the ends" if at_an_end else ""
    return f"Learning rates, chosen on validation classes: {'; '.join(told)}{longer}."


def rise(entry: Entry) -> float | None:
    """How much the validation score of an entry still rose in the last quarter of its images, a mean over its runs.

    None where runs were scored too rarely to tell, or ended because their scores had stopped rising.
    """
    rises = [_rise(record) for record in entry.records]
    known = [value for value in rises if value is not None]
    return float(np.mean(known)) if known else None


def risers(board: Leaderboard) -> list[tuple[Entry, float]]:
    """The entries of the main network that were still rising when the images were used up, and by how much."""
    found = []
    for entry in board.of_network():
        risen, score = rise(entry), entry.validation(board.score)
        if risen is not None and score and risen >= NOTABLE * score:
            found.append((entry, risen))
    return found


def rising_in_words(board: Leaderboard) -> str | None:
    """Who was still rising when the images were used up; None where nobody was, as far as can be told."""
    if not board.entries:
        return None
    found = risers(board)
    if not found:
        return None
    told = [f"{entry.name} ({fraction(risen, 3, sign=True)} in its last quarter)" for entry, risen in found]
    seen = max(record.images for entry in board.of_network() for record in entry.records)
    order = " and may change the order" if len(board.of_network()) > 1 else ""
    return (
        f"Still rising after {counted(seen, 'image')}: {listed(told)}. More of them would raise the validation "
        f"scores further{order}."
    )


def _rise(record: Record) -> float | None:
    if len(record.curve) < FEWEST or ended_by(record) == "patience":
        return None
    before = [score for images, score in record.curve if images <= (1 - LAST_PART) * record.images]
    if not before:
        return None
    return max(0.0, max(score for _, score in record.curve) - max(before))
