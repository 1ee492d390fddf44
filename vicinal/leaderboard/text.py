"""Leaderboards as text: a terminal table and sentences, which the report uses too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vicinal._util.text import fraction, listed
from vicinal.leaderboard.effort import budget_in_words, rates_in_words, rising_in_words
from vicinal.leaderboard.entry import Entry
from vicinal.leaderboard.gain import usable
from vicinal.objectives import OBJECTIVES, traits_of, without_alias
from vicinal.runs.notes import foreign_batch
from vicinal.runs.record import Network, Record
from vicinal.stats import Interval

if TYPE_CHECKING:
    from vicinal.leaderboard.leaderboard import Leaderboard

__all__ = [
    "best_in_words",
    "demands",
    "foreign_batches",
    "gaps",
    "network_in_words",
    "notes",
    "print_leaderboard",
    "run_counts",
    "scored_classes",
]

# A header and a rule above the rows, and another rule above the baselines.
RULED = box.Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
GAP, NAME = 3, 24  # spaces between columns, and letters of a name before it may wrap
# Columns that a narrow terminal omits, least important first.
SPARED = ("s/run", "runs", "over folds", "P@1", "validation", "joined", "over seeds", "over classes")


def print_leaderboard(board: Leaderboard, console: Console) -> None:
    """Print the table, the verdict, the reliability of validation, special requirements of methods and missing runs."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    if board.entries:
        table, spared = _table(board, console.width)
        console.print(table)
        if spared:
            say(f"Not shown, for want of room: {listed(spared)}.")
    for network in board.networks:
        of_which = f"{network_in_words(network)}: " if len(board.networks) > 1 else ""
        for result in (board.verdict(network), board.correlation(network)):
            if result is not None:
                say(f"{of_which}{result}")
    chances = (rising_in_words(board), budget_in_words(board), rates_in_words(board))
    for text in [*notes(board), *filter(None, chances), *demands(board), *foreign_batches(board)]:
        say(text)
    for entry, text in gaps(board):
        of_network = f" ({network_in_words(entry.network)})" if len(board.networks) > 1 else ""
        say(f"{entry.name}{of_network}: {text}")
    for record in board.failed:
        say(f"failed: {record.name}, {record.experiment}: {record.error}")


def network_in_words(network: Network) -> str:
    """Describe a backbone and its dimension.

    Example:
        >>> network_in_words(("resnet50", 128)), network_in_words(("resnet50", None))
        ('resnet50, 128 dimensions', 'resnet50, its own features')
    """
    backbone, dim = network
    return f"{backbone}, {'its own features' if dim is None else f'{dim} dimensions'}"


def best_in_words(board: Leaderboard) -> str:
    """Describe the best run, and the scores that chose it."""
    record = board.best.record
    fold = "" if record.fold is None else f", fold {record.fold}"
    run = f"{record.name} with {network_in_words(record.network)}, seed {record.seed}{fold}"
    if board.chosen_by == "validation":
        chosen = f"{run}, chosen by validation scores"
    else:
        chosen = f"{run}, chosen by test scores, since there are no validation scores: they flatter it"
    divided = board.gain is not None and board.gain.answer == "divided"
    if record.role == "baseline" and divided:
        return f"{chosen}, on which no trained model is ahead of it; on the test classes one is."
    if record.role == "baseline":
        return f"{chosen}. No trained model is better than this untrained network, which costs no training."
    if divided:
        return f"{chosen}, on which it is ahead of the untrained network; on the test classes it is not."
    return f"{chosen}."


def scored_classes(board: Leaderboard) -> list[str]:
    """Return the test classes that have a score: those with a query that has a relevant item."""
    record = board.first
    values = record.per_class.get(board.score, ())
    missing = {name for name, value in zip(record.classes, values, strict=False) if value is None}
    return [name for name in record.classes if name not in missing]


def notes(board: Leaderboard) -> list[str]:
    """Return the notes of the records, each with the methods that it applies to unless it applies to all.

    If a note applies only to some runs of a method, their seeds and folds are given too.
    """
    runs: dict[str, list[str]] = {}
    methods_of: dict[str, dict[str, list[str]]] = {}
    for record in board.records:
        which = _which_run(record, several=len(board.networks) > 1)
        runs.setdefault(record.name, []).append(which)
        for note in record.notes:
            methods_of.setdefault(note, {}).setdefault(record.name, []).append(which)
    return [f"Note{_about(who, runs)}: {note}" for note, who in methods_of.items()]


def _which_run(record: Record, *, several: bool) -> str:
    network = [network_in_words(record.network)] if several else []
    fold = [] if record.fold is None else [f"fold {record.fold}"]
    return ", ".join([*network, f"seed {record.seed}", *fold])


def _about(who: Mapping[str, list[str]], runs: Mapping[str, list[str]]) -> str:
    """Return the methods that a note is about, in parentheses; empty if it is about all."""
    if who == runs:
        return ""
    alike = {tuple(which) for which in who.values()}
    if who.keys() == runs.keys() and len(alike) == 1:
        return f" ({'; '.join(*alike)})"
    named = [name if which == runs[name] else f"{name}: {'; '.join(which)}" for name, which in who.items()]
    return f" ({listed(named)})"


def demands(board: Leaderboard) -> list[str]:
    """Return the special requirements of methods, one line for all methods with the same ones."""
    requested: dict[str, dict[str, None]] = {}
    for run in board.runs:
        requested.setdefault(run.record.name, {}).update(dict.fromkeys(run.record.demands))
    alike: dict[str, list[str]] = {}
    for name, words in requested.items():
        alike.setdefault("; ".join(words), []).append(name)
    return [f"{listed(names)} demanded: {words}" for words, names in alike.items() if words]


def foreign_batches(board: Leaderboard) -> list[str]:
    """Return one sentence for each method whose batches differ from those of its paper."""
    sentences: dict[str, str] = {}
    for record in board.records:
        loss = str(record.recipe["loss"])
        function = OBJECTIVES.get(without_alias(loss))  # a custom loss may not be known here
        traits = None if function is None or record.recipe.get("ccp") is not None else traits_of(function)
        wanted = None if traits is None else traits.items_per_class
        items = int(record.recipe.get("samples_per_class", 0))
        if any(word.startswith("batches of ") for word in record.demands):  # close to the paper's batches
            continue
        if wanted is not None and record.recipe.get("sampler", "classes") == "classes" and items > wanted:
            sentences[record.name] = foreign_batch(record.name, int(record.recipe["classes_per_batch"]), items, wanted)
    return list(sentences.values())


def gaps(board: Leaderboard) -> list[tuple[Entry, str]]:
    """Return a sentence on the missing folds and on the folds that were not joined, for each entry that has any."""
    sentences = []
    for entry in board.entries:
        folds = max(record.folds or 0 for record in entry.records)
        for seed, missing in entry.missing_folds.items():
            which = f"fold{'s' if len(missing) > 1 else ''} {listed([str(fold) for fold in missing])}"
            done = f"{folds - len(missing)} of {folds} folds of seed {seed}"
            sentences.append((entry, f"{done}; {which} missing, and its score is the mean of the others."))
        sentences += [(entry, f"folds not joined, {reason}.") for reason in entry.not_joined]
    return sentences


def run_counts(entry: Entry) -> str:
    """Return the number of runs, and the expected number if folds are missing: "3 of 4"."""
    missing = sum(map(len, entry.missing_folds.values()))
    return f"{len(entry.runs)} of {len(entry.runs) + missing}" if missing else str(len(entry.runs))


def _table(board: Leaderboard, width: int) -> tuple[Table, list[str]]:
    """Return the table with as many columns as fit, and the names of the omitted columns."""
    baselines = {(entry.name, entry.network if usable(entry) else None): entry for entry in board.baselines}
    cells = [_cells(entry, board.score) for entry in (*board.entries, *baselines.values())]
    filled = [name for name in cells[0] if any(row[name] for row in cells)]
    if len({entry.network for entry in board.entries}) == 1:
        filled = [name for name in filled if name not in ("network", "dim")]
    spared: list[str] = []

    widths = {name: max(len(text) for text in (*name.split(), *(row[name] for row in cells))) for name in filled}
    widths["loss"] = min(NAME, widths["loss"])
    for name in SPARED:
        if name in filled and sum(GAP + widths[shown] for shown in filled if shown not in spared) > width:
            spared.append(name)
    table = Table(box=RULED, title=board.title, title_justify="left", pad_edge=False)
    for name in filled:
        if name not in spared:
            words = name == "loss"  # long names wrap, numbers never do
            table.add_column(
                name.replace("over ", "over\n"),
                justify="left" if words else "right",
                no_wrap=not words,
                overflow="fold",
                min_width=widths[name],
            )
    for number, row in enumerate(cells):
        shown = [escape(row[name]) for name in filled if name not in spared]
        table.add_row(*shown, end_section=number == len(board.entries) - 1 and bool(baselines))
    return table, spared


def _cells(entry: Entry, score: str) -> dict[str, str]:
    backbone, dim = entry.network if usable(entry) else ("", 0)
    return {
        "loss": entry.name,
        "network": backbone,
        "dim": "own" if dim is None else str(dim or ""),
        score: fraction(entry.mean(score)),
        "over classes": _ends(entry.over_classes(score)),
        "over seeds": _ends(entry.over_seeds(score)),
        "over folds": _deviation(entry.fold_deviation(score)),
        "joined": "" if entry.joined is None else fraction(entry.joined.mean(score)),
        **({} if score == "P@1" else {"P@1": fraction(entry.mean("P@1")) if "P@1" in entry.scores else ""}),
        "validation": _known(entry.validation(score)),
        "runs": run_counts(entry),
        "s/run": f"{entry.seconds:.0f}" if entry.records[0].role == "run" else "",
    }


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f"{fraction(interval.low, 3)}-{fraction(interval.high, 3)}"


def _deviation(value: float | None) -> str:
    return "" if value is None else f"sd {fraction(value, 3)}"


def _known(value: float | None) -> str:
    return "" if value is None else fraction(value)
