"""Leaderboards as text: the last screen of a comparison, and sentences that the report uses too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vicinal._util.text import counted, fraction, listed
from vicinal.leaderboard.effort import budget_in_words, rates_in_words, rising_in_words
from vicinal.leaderboard.entry import Entry
from vicinal.leaderboard.gain import usable
from vicinal.objectives import OBJECTIVES, traits_of, without_alias
from vicinal.runs.notes import foreign_batch
from vicinal.runs.record import Network, Record
from vicinal.stats import Interval
from vicinal.stats.verdicts import LEVEL

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
# Columns that a narrow terminal hides, least important first; scores are always shown.
HIDEABLE = ("s/run", "runs", "over folds", "validation", "joined", "over seeds", "over classes")
SCORES = {
    "MAP@R": "how well items of the query's class fill the top of its ranking",
    "P@1": "share of queries whose nearest item has the same class",
}
RANGES = "Ranges are 95 % intervals"


def print_leaderboard(board: Leaderboard, console: Console) -> None:
    """Print the verdict, the advice and the table; then details: caveats, notes, budgets and missing runs."""

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False)

    headline = _headline(board)
    if headline:
        say(headline)
    for advice in board.advice():
        say(str(advice))
        if advice.command:
            console.print(f"  {advice.command}", highlight=False, markup=False, soft_wrap=True)
    if board.entries:
        table, hidden = _table(board, console.width)
        say("")
        console.print(table)
        for text in _legend(table, hidden):
            say(text)
    details = _details(board, headline)
    if board.entries and details:
        say("\nDetails")
    for text in details:
        say(f"- {text}")


def _headline(board: Leaderboard) -> str:
    """Return the outcome in one sentence; empty for a single method without a baseline."""
    if board.entries and board.gain is not None and board.gain.answer == "no":
        return "No trained method beats the untrained network."
    verdict = board.verdict() if board.entries else None
    return "" if verdict is None else verdict.sentence


def _legend(table: Table, hidden: Sequence[str]) -> list[str]:
    """Return a line on each score of a table, on its ranges and on hidden columns."""
    columns = [str(column.header).replace("\n", " ") for column in table.columns]
    lines = [f"{name}: {meaning}." for name, meaning in SCORES.items() if name in columns]
    over = {"over classes": "test classes", "over seeds": "seeds"}
    ranges = [words for name, words in over.items() if name in columns]
    if ranges:
        lines.append(f"{RANGES} over {listed(ranges)}.")
    if hidden:
        lines.append(f"Hidden at this width: {listed(hidden)}.")
    return lines


def _details(board: Leaderboard, headline: str) -> list[str]:
    """Return everything else that a reader should know, a sentence or two each.

    Args:
        board: Leaderboard to describe.
        headline: Sentence that is already printed.
    """
    details = []
    for network in board.networks:
        prefix = f"{network_in_words(network)}: " if len(board.networks) > 1 else ""
        verdict, correlation = board.verdict(network), board.correlation(network)
        if verdict is not None and verdict.sentence != headline:
            details.append(f"{prefix}{verdict}")
        elif verdict is not None and verdict.caveats:
            details.append(f"{prefix}{' '.join(verdict.caveats)}")
        if correlation is not None:
            details.append(f"{prefix}{correlation}")
    details += networks_in_words(board)
    effort = (rising_in_words(board), budget_in_words(board), rates_in_words(board))
    details += [*notes(board), *filter(None, effort), *demands(board), *foreign_batches(board)]
    for entry, text in gaps(board):
        network_note = f" ({network_in_words(entry.network)})" if len(board.networks) > 1 else ""
        details.append(f"{entry.name}{network_note}: {text}")
    return details + [f"Failed: {record.name}, {record.experiment}: {record.error}" for record in board.failed]


def networks_in_words(board: Leaderboard) -> list[str]:
    """Compare the best network with each of the others, and with the choice of a loss; empty for a single network."""
    tests = board.network_pairs if board.entries else []
    lines = []
    for test in (test for test in tests if test.first == tests[0].first):
        low, high = (fraction(end, sign=True) for end in test.interval)
        clearly = "significantly" if test.p_value < LEVEL else "not significantly"
        gain = f"{board.score} {fraction(test.difference, sign=True)} (95 % interval {low} to {high})"
        lines.append(f"{test.first} is {clearly} better than {test.second}: {gain}.")
    scores = [entry.mean(board.score) for entry in board.of_network()] if lines else []
    if scores and max(test.difference for test in tests) > max(scores) - min(scores):
        lines.append("The network matters more than the loss here.")
    return lines


def network_in_words(network: Network) -> str:
    """Describe a backbone and its dimension.

    Example:
        >>> network_in_words(("resnet50", 128)), network_in_words(("resnet50", None))
        ('resnet50, 128 dimensions', 'resnet50, all features')
    """
    backbone, dim = network
    return f"{backbone}, {'all features' if dim is None else f'{dim} dimensions'}"


def best_in_words(board: Leaderboard) -> str:
    """Describe the recommended run, what chose it, and which others are level with it."""
    record, choice = board.best.record, board.choice
    fold = "" if record.fold is None else f", fold {record.fold}"
    run = f"{record.name} ({network_in_words(record.network)}, seed {record.seed}{fold})"
    divided = board.gain is not None and board.gain.answer == "divided"
    untrained = record.role == "baseline"
    others = [entry.name for entry in choice.level if entry is not choice.entry]
    classes = counted(choice.classes, "validation class")
    if board.chosen_by == "test":
        chosen = f"{run}, the best on test classes. There was no validation, so its score is biased upwards."
        chosen += " No trained model is better than this untrained network." if untrained else ""
    elif untrained:
        noise = f" beyond the noise of {classes}" if others else " on validation classes"
        chosen = f"{run}. No trained model is better than this untrained network{noise}."
        chosen += " On test classes a trained model is better." if divided else ""
    elif others:
        level = f"On {classes} it is not distinguishable from {listed(others)}"
        chosen = f"{run}. {level}; of these it has the best record on other data."
    else:
        chosen = f"{run}, the best on validation classes."
    return f"{chosen} On test classes the untrained network is better." if divided and not untrained else chosen


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
    """Return the special settings of methods, one line for all methods with the same ones."""
    requested: dict[str, dict[str, None]] = {}
    for run in board.runs:
        requested.setdefault(run.record.name, {}).update(dict.fromkeys(run.record.demands))
    alike: dict[str, list[str]] = {}
    for name, words in requested.items():
        alike.setdefault("; ".join(words), []).append(name)
    return [
        f"{listed(names)} {'use' if len(names) > 1 else 'uses'} {words}." for words, names in alike.items() if words
    ]


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
            sentences.append((entry, f"{done} finished; {which} missing. The score is the mean of the others."))
        sentences += [(entry, f"folds not joined, {reason}.") for reason in entry.not_joined]
    return sentences


def run_counts(entry: Entry) -> str:
    """Return the number of runs, and the expected number if folds are missing: "3 of 4"."""
    missing = sum(map(len, entry.missing_folds.values()))
    return f"{len(entry.runs)} of {len(entry.runs) + missing}" if missing else str(len(entry.runs))


def _table(board: Leaderboard, width: int) -> tuple[Table, list[str]]:
    """Return the table with as many columns as fit, and the names of the hidden columns."""
    baselines = {(entry.name, entry.network if usable(entry) else None): entry for entry in board.baselines}
    cells = [_cells(entry, board.score) for entry in (*board.entries, *baselines.values())]
    filled = [name for name in cells[0] if any(row[name] for row in cells)]
    if len({entry.network for entry in board.entries}) == 1:
        filled = [name for name in filled if name not in ("network", "dim")]
    hidden: list[str] = []
    widths = {name: max(len(text) for text in (*name.split(), *(row[name] for row in cells))) for name in filled}
    widths["loss"] = min(NAME, widths["loss"])
    for name in HIDEABLE:
        if name in filled and sum(GAP + widths[shown] for shown in filled if shown not in hidden) > width:
            hidden.append(name)
    table = Table(box=RULED, title=board.title, title_justify="left", pad_edge=False)
    for name in filled:
        if name not in hidden:
            words = name == "loss"  # long names wrap, numbers never do
            table.add_column(
                name.replace("over ", "over\n"),
                justify="left" if words else "right",
                no_wrap=not words,
                overflow="fold",
                min_width=widths[name],
            )
    for number, row in enumerate(cells):
        shown = [escape(row[name]) for name in filled if name not in hidden]
        table.add_row(*shown, end_section=number == len(board.entries) - 1 and bool(baselines))
    return table, hidden


def _cells(entry: Entry, score: str) -> dict[str, str]:
    backbone, dim = entry.network if usable(entry) else ("", 0)
    return {
        "loss": entry.name,
        "network": backbone,
        "dim": "all" if dim is None else str(dim or ""),
        score: fraction(entry.mean(score)),
        "over classes": _ends(entry.over_classes(score)),
        "over seeds": _ends(entry.over_seeds(score)),
        "over folds": _deviation(entry.fold_deviation(score)),
        "joined": "" if entry.joined is None else fraction(entry.joined.mean(score)),
        **{name: fraction(entry.mean(name)) if name in entry.scores else "" for name in SCORES if name != score},
        "validation": "" if entry.validation(score) is None else fraction(entry.validation(score)),
        "runs": run_counts(entry),
        "s/run": f"{entry.seconds:.0f}" if entry.records[0].role == "run" else "",
    }


def _ends(interval: Interval | None) -> str:
    return "" if interval is None else f"{fraction(interval.low, 3)}-{fraction(interval.high, 3)}"


def _deviation(value: float | None) -> str:
    return "" if value is None else f"sd {fraction(value, 3)}"
