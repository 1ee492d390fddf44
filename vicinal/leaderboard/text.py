"""Leaderboards in words and in a table of the terminal; the report uses the same words."""

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

# A head and a rule above the rows, and another rule above those of baselines.
RULED = box.Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
GAP, NAME = 3, 24  # blanks between columns, and letters of a name before it may go on in the next line
# What a narrow terminal does without, first what is missed least.
SPARED = ("s/run", "runs", "over folds", "P@1", "validation", "joined", "over seeds", "over classes")


def print_leaderboard(board: Leaderboard, console: Console) -> None:
    """Show the table, the verdict, how far validation can be trusted, what methods demanded, and what is missing."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    if board.entries:
        table, spared = _table(board, console.width)
        console.print(table)
        if spared:
            say(f"Not shown, for want of room: {listed(spared)}.")
    for network in board.networks:
        of_which = f"{network_in_words(network)}: " if len(board.networks) > 1 else ""
        for found in (board.verdict(network), board.correlation(network)):
            if found is not None:
                say(f"{of_which}{found}")
    chances = (rising_in_words(board), budget_in_words(board), rates_in_words(board))
    for text in [*notes(board), *filter(None, chances), *demands(board), *foreign_batches(board)]:
        say(text)
    for entry, text in gaps(board):
        of_network = f" ({network_in_words(entry.network)})" if len(board.networks) > 1 else ""
        say(f"{entry.name}{of_network}: {text}")
    for record in board.failed:
        say(f"failed: {record.name}, {record.experiment}: {record.error}")


def network_in_words(network: Network) -> str:
    """A backbone and a dimension.

    Example:
        >>> network_in_words(("resnet50", 128)), network_in_words(("resnet50", None))
        ('resnet50, 128 dimensions', 'resnet50, its own features')
    """
    backbone, dim = network
    return f"{backbone}, {'its own features' if dim is None else f'{dim} dimensions'}"


def best_in_words(board: Leaderboard) -> str:
    """Which run is best, and what chose it."""
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
    """The test classes that a score is of: those with a query that has something to find."""
    record = board.first
    known = record.per_class.get(board.score, ())
    missing = {name for name, value in zip(record.classes, known, strict=False) if value is None}
    return [name for name in record.classes if name not in missing]


def notes(board: Leaderboard) -> list[str]:
    """What a reader of the scores has to know, with the methods that it is true of unless it is of all.

    Where it is true of some runs of a method alone, their seeds and folds are said, too.
    """
    runs: dict[str, list[str]] = {}
    said: dict[str, dict[str, list[str]]] = {}
    for record in board.records:
        which = _which_run(record, several=len(board.networks) > 1)
        runs.setdefault(record.name, []).append(which)
        for note in record.notes:
            said.setdefault(note, {}).setdefault(record.name, []).append(which)
    return [f"Note{_about(who, runs)}: {note}" for note, who in said.items()]


def _which_run(record: Record, *, several: bool) -> str:
    network = [network_in_words(record.network)] if several else []
    fold = [] if record.fold is None else [f"fold {record.fold}"]
    return ", ".join([*network, f"seed {record.seed}", *fold])


def _about(who: Mapping[str, list[str]], runs: Mapping[str, list[str]]) -> str:
    """Whom a note is about, in brackets; nothing where it is about all."""
    if who == runs:
        return ""
    alike = {tuple(which) for which in who.values()}
    if who.keys() == runs.keys() and len(alike) == 1:
        return f" ({'; '.join(*alike)})"
    named = [name if which == runs[name] else f"{name}: {'; '.join(which)}" for name, which in who.items()]
    return f" ({listed(named)})"


def demands(board: Leaderboard) -> list[str]:
    """What methods asked for that others did not; a line for all that asked for the same."""
    asked: dict[str, dict[str, None]] = {}
    for run in board.runs:
        asked.setdefault(run.record.name, {}).update(dict.fromkeys(run.record.demands))
    alike: dict[str, list[str]] = {}
    for name, words in asked.items():
        alike.setdefault("; ".join(words), []).append(name)
    return [f"{listed(names)} demanded: {words}" for words, names in alike.items() if words]


def foreign_batches(board: Leaderboard) -> list[str]:
    """Which methods ran in batches that are not those of their papers; a sentence each."""
    said: dict[str, str] = {}
    for record in board.records:
        loss = str(record.recipe["loss"])
        function = OBJECTIVES.get(without_alias(loss))  # a loss of the user's own may not be known here
        traits = None if function is None or record.recipe.get("ccp") is not None else traits_of(function)
        wanted = None if traits is None else traits.items_per_class
        items = int(record.recipe.get("samples_per_class", 0))
        if any(word.startswith("batches of ") for word in record.demands):  # its own, as near as the classes allow
            continue
        if wanted is not None and record.recipe.get("sampler", "classes") == "classes" and items > wanted:
            said[record.name] = foreign_batch(record.name, int(record.recipe["classes_per_batch"]), items, wanted)
    return list(said.values())


def gaps(board: Leaderboard) -> list[tuple[Entry, str]]:
    """Which folds an entry lacks, and which were not joined; a sentence each."""
    said = []
    for entry in board.entries:
        folds = max(record.folds or 0 for record in entry.records)
        for seed, missing in entry.missing_folds.items():
            which = f"fold{'s' if len(missing) > 1 else ''} {listed([str(fold) for fold in missing])}"
            done = f"{folds - len(missing)} of {folds} folds of seed {seed}"
            said.append((entry, f"{done}; {which} missing, and its score is the mean of the others."))
        said += [(entry, f"folds not joined, {reason}.") for reason in entry.not_joined]
    return said


def run_counts(entry: Entry) -> str:
    """How many runs there are, and of how many where folds are missing: "3 of 4"."""
    missing = sum(map(len, entry.missing_folds.values()))
    return f"{len(entry.runs)} of {len(entry.runs) + missing}" if missing else str(len(entry.runs))


def _table(board: Leaderboard, width: int) -> tuple[Table, list[str]]:
    """Return the table with as many columns as fit, and the names of the others."""
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
            words = name == "loss"  # a long name goes on in the next line, a number never does
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
