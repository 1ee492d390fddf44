"""A leaderboard as plain data, for scripts: what `vicinal compare --json` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vicinal.results.entry import Entry
from vicinal.statistics import Interval

if TYPE_CHECKING:
    from vicinal.results.leaderboard import Leaderboard

__all__ = ["leaderboard_data"]


def leaderboard_data(board: Leaderboard) -> dict[str, Any]:
    """Return what was found as JSON can hold it: entries and baselines best first, verdict, gain and advice.

    What is not known is null: an interval over seeds where there is one seed, a validation score where none was chosen
    by, the folder of the best model where none was kept.
    """
    found, gain = (board.verdict(), board.gain) if board.entries else (None, None)
    return {
        "title": board.title if board.records or board.failed else "",
        "score": board.score,
        "chosen_by": board.chosen_by,
        "same_batches": board.first.same_batches,
        "entries": [_entry(entry, board.score) for entry in board.entries],
        "baselines": [_entry(entry, board.score) for entry in board.baselines],
        "verdict": None
        if found is None
        else {
            "winner": found.winner,
            "significant": found.significant,
            "beaten": list(found.beaten),
            "undecided": list(found.undecided),
            "sentence": found.sentence,
        },
        "gain": None
        if gain is None
        else {
            "answer": gain.answer,
            "trained": gain.trained.name,
            "baseline": gain.baseline.name,
            "difference": None if gain.test is None else _finite(gain.test.difference),
            "interval": None if gain.test is None else [_finite(end) for end in gain.test.interval],
            "sentence": str(gain),
        },
        "advice": [{"about": each.about, "text": each.text, "command": each.command} for each in board.advice()],
        "best": None if not board.entries or board.best_folder is None else str(board.best_folder),
        "failed": [{"name": record.name, "seed": record.seed, "error": record.error} for record in board.failed],
    }


def _entry(entry: Entry, score: str) -> dict[str, Any]:
    backbone, dim = entry.network
    return {
        "name": entry.name,
        "backbone": backbone,
        "dim": dim,
        "runs": len(entry.records),
        "seconds": _finite(entry.seconds),
        "validation": _finite(entry.validation(score)),
        "mean": _finite(entry.mean(score)),
        "over_seeds": _ends(entry.over_seeds(score)),
        "over_classes": _ends(entry.over_classes(score)),
        "scores": {name: _finite(entry.mean(name)) for name in sorted(entry.scores)},
    }


def _ends(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [_finite(interval.low), _finite(interval.high)]


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
