"""Chapters on the conditions that all losses shared, on the exceptions, and on failed runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from vicinal._util.text import NONE, TIMES, counted, listed, short
from vicinal.leaderboard import Leaderboard
from vicinal.leaderboard.effort import budget_in_words, rate_in_words, rising_in_words
from vicinal.leaderboard.text import foreign_batches, network_in_words, scored_classes
from vicinal.report.blocks import Block, Chapter, Code, Prose, Table
from vicinal.report.labels import in_sentence
from vicinal.runs import Record
from vicinal.runs.recipe import flat

__all__ = ["conditions", "failures"]

CHOSEN = {
    "validation": "The reported step of each run is the one with the highest score on the validation classes.",
    "test": "Selected on test: the reported step is the one with the highest score on the test classes, so all scores "
    "are too high. Compare them only with papers that do the same.",
    "last": "The reported step of each run is the last one.",
}
# Settings that the demands of a loss or other tables already show.
SAID = (
    "learning_rate",
    "backbone",
    "dim",
    "mining",
    "memory",
    "ccp",
    "proxies_per_class",
    "proxy_multiplier",
    "classes_per_batch",
    "samples_per_class",
    "fold",
)
# Settings that identify a loss or a run rather than its conditions.
OWN = ("loss", "loss_options", "seed")
NAMED = 5  # most unscored classes to list


def conditions(board: Leaderboard) -> list[Chapter]:
    """Report data, protocol and settings, then a table of the losses' special requirements."""
    first, records = board.first, board.records
    settings = {record.key: flat(record.recipe) for record in records}
    names = list(dict.fromkeys(name for values in settings.values() for name in values))
    alike = [name for name in names if len({repr(values.get(name)) for values in settings.values()}) == 1]
    shared = {name: next(iter(settings.values())).get(name) for name in alike if name not in OWN}
    facts: list[tuple[str, str]] = [
        ("data", f"{first.dataset} (hash {first.data[:12]})"),
        ("test classes", _test_classes(board)),
        ("protocol", first.protocol),
        ("splits", _splits(records)),
        ("seeds", listed([str(seed) for seed in sorted({record.seed for record in records})])),
        ("networks", "; ".join(network_in_words(which) for which in board.networks)),
        ("batch", _batch(settings) + ("; the same batches for all losses" if first.same_batches else "")),
        ("steps", _range([record.steps for record in records])),
        ("budget", (budget_in_words(board) or "").rstrip(".")),
        ("score", board.score),
    ]
    rising = rising_in_words(board)
    blocks: list[Block] = [
        Prose(CHOSEN[first.selected_on], kind="warning" if first.selected_on == "test" else "text"),
        Table(("condition", "value"), tuple((name, value) for name, value in facts if value), words=frozenset({0, 1})),
        _demands(board, settings, [name for name in names if name not in alike]),
        *(Prose(in_sentence(board, text), kind="warning") for text in foreign_batches(board)),
        *([] if rising is None else [Prose(in_sentence(board, rising), kind="warning")]),
        Code(
            "\n".join(f"{name} = {value!r}" for name, value in shared.items() if value not in (None, {})),
            summary="All settings that every run has in common",
        ),
    ]
    return [Chapter("Experimental setup", tuple(blocks))]


def failures(board: Leaderboard) -> list[Chapter]:
    """Report the runs that ended with an error, and the losses that they belong to."""
    failed = board.failed
    if not failed:
        return []
    rows = tuple(
        (
            record.name,
            str(record.seed),
            NONE if record.fold is None else str(record.fold),
            record.error or "",
        )
        for record in failed
    )
    whose = Counter(record.name for record in failed)
    done = len(board.records)
    text = (
        f"{counted(len(failed), 'run')} of {done + len(failed)} failed: "
        + listed([f"{name} ({count})" for name, count in whose.items()])
        + ". Means are over the runs that finished."
    )
    table = Table(("loss", "seed", "fold", "error"), rows, "Error message of each failed run.", words=frozenset({0, 3}))
    return [Chapter("Failed runs", (Prose(text, kind="warning"), table))]


def _demands(board: Leaderboard, settings: dict[str, dict[str, Any]], differing: list[str]) -> Block:
    rows = []
    for entry in board.of_network():
        record = entry.records[0]
        values = settings[record.key]
        own = [f"{name} {short(value)}" for name, value in record.recipe.get("loss_options", {}).items()]
        unlike = [
            f"{name} {short(values.get(name))}"
            for name in differing
            if name not in (*OWN, *SAID) and _unusual(name, values, settings)
        ]
        rows.append(
            (
                entry.name,
                ", ".join(own) or "defaults",
                "; ".join(dict.fromkeys([*record.demands, *unlike])) or "none",
                rate_in_words(record),
                _search(record),
            )
        )
    return Table(
        ("loss", "loss options", "other differences", "learning rate", "search"),
        tuple(rows),
        "All other settings are the same for every loss: network, batch size, augmentation, steps and evaluations. "
        "Learning rates and other tuned settings were chosen on the validation classes.",
        words=frozenset({0, 1, 2, 3, 4}),
    )


def _search(record: Record) -> str:
    """Describe how many trials chose the settings, and their cost relative to a run."""
    if not record.tuning_trials:
        return "not tuned"
    cost = f", {record.tuning_images / record.images:.1f} times the images of one run" if record.images else ""
    return counted(record.tuning_trials, "trial") + cost


def _unusual(name: str, values: dict[str, Any], settings: dict[str, dict[str, Any]]) -> bool:
    """Whether a setting differs from the most common value."""
    common = Counter(repr(other.get(name)) for other in settings.values()).most_common(1)[0][0]
    return repr(values.get(name)) != common


def _test_classes(board: Leaderboard) -> str:
    scored, all_classes = scored_classes(board), board.first.classes
    left = [name for name in all_classes if name not in scored]
    if not left:
        return f"{len(scored):,}"
    named = listed(left) if len(left) <= NAMED else f"{listed(left[:NAMED])} ..."
    return f"{len(scored):,}; {counted(len(left), 'more class')} ({named}) cannot be scored: no match to find"


def _splits(records: list[Record]) -> str:
    hashes = sorted({(record.seed, -1 if record.fold is None else record.fold, record.split[:8]) for record in records})
    shown = [f"seed {seed}{'' if fold < 0 else f' fold {fold}'}: {split}" for seed, fold, split in hashes[:6]]
    return ", ".join(shown) + (f" and {len(hashes) - 6} more" if len(hashes) > 6 else "")


def _batch(settings: dict[str, dict[str, Any]]) -> str:
    batches = Counter(
        f"{values.get('classes_per_batch')} classes {TIMES} {counted(int(values.get('samples_per_class', 0)), 'item')}"
        for values in settings.values()
    )
    return "; ".join(batches)


def _range(values: list[int]) -> str:
    if not values:
        return ""
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,} to {max(values):,}"
