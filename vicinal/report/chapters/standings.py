"""Chapter with the leaderboard: scores of all losses, with intervals."""

from __future__ import annotations

from vicinal._util.text import NONE, TIMES, percent
from vicinal.leaderboard import Entry, Leaderboard
from vicinal.leaderboard.gain import usable
from vicinal.leaderboard.text import gaps, network_in_words, notes, run_counts
from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Table
from vicinal.report.charts import Row, dot_rows
from vicinal.report.labels import is_recommended, style_of
from vicinal.runs import Network
from vicinal.stats import Interval

__all__ = ["leaderboard_tables"]

BESIDE = ("P@1", "P@R", "MAP@R", "mAP", "NMI")


def leaderboard_tables(board: Leaderboard) -> list[Chapter]:
    """Show a table and a chart for each backbone and dimension, the scores of joined folds, notes and missing runs."""
    blocks: list[Block] = []
    several = len(board.networks) > 1
    for network in sorted(board.networks, key=lambda network: network != board.main_network):
        entries = board.of_network(network)
        if several:
            blocks.append(Prose(network_in_words(network), kind="heading"))
        blocks += [
            _chart(board, entries, [entry for entry in board.baselines_of(network) if usable(entry)], network),
            _table(board, entries, board.baselines_of(network)),
            *_joined(board, entries),
        ]
    blocks += [Prose(text, kind="warning") for text in notes(board)]
    for entry, text in gaps(board):
        of_network = f" ({network_in_words(entry.network)})" if several else ""
        blocks.append(Prose(f"{entry.name}{of_network}: {text}", kind="warning"))
    return [Chapter("Leaderboard", tuple(blocks))]


def _chart(board: Leaderboard, trained: list[Entry], baselines: list[Entry], network: Network) -> Chart:
    """Draw all losses, and the untrained network below a rule; chance is omitted, since it would compress the scale."""
    score, entries = board.score, [*trained, *baselines]
    intervals = [(entry.over_classes(score), entry.over_seeds(score)) for entry in entries]
    rows = [
        Row(
            entry.name,
            100 * entry.mean(score),
            thin=_in_percent(over_classes),
            thick=_in_percent(over_seeds),
            small=[100 * value for value in entry.by_seed(score)] if over_seeds is not None else (),
            style=style_of(board, entry),
            ring=rank >= len(trained),
        )
        for rank, (entry, (over_classes, over_seeds)) in enumerate(zip(entries, intervals, strict=True))
    ]
    ranking = ", ".join(f"{entry.name} {percent(entry.mean(score))} %" for entry in trained)
    if baselines:
        ranking += "; untrained: "
        ranking += ", ".join(f"{entry.name} {percent(entry.mean(score))} %" for entry in baselines)
    svg = dot_rows(rows, f"{score} on the test classes, %", f"Test {score} of each loss, best first: {ranking}.")
    sentences = [f"Large dots: mean {score} on the test classes. Blue: the recommended model."]
    if baselines:
        sentences.append("Rings below the line: the untrained network, the baseline that a loss has to beat.")
    if any(over_seeds for _, over_seeds in intervals):
        sentences.append("Small rings: single seeds. Thick bars: 95 % interval over seeds.")
    if any(over_classes for over_classes, _ in intervals):
        sentences.append("Thin lines: 95 % interval over test classes.")
    name = "-".join(("leaderboard", network[0], str(network[1])))
    return Chart(name, (Panel(svg, f"Ranking by test {score}: {ranking}."),), " ".join(sentences))


def _table(board: Leaderboard, trained: list[Entry], baselines: list[Entry]) -> Table:
    score, entries = board.score, [*trained, *baselines]
    other_scores = [name for name in BESIDE if name != score and all(name in entry.scores for entry in entries)]
    columns: dict[str, list[str]] = {
        "": [*map(str, range(1, len(trained) + 1)), *("" for _ in baselines)],
        "loss": [entry.name for entry in entries],
        score: [percent(entry.mean(score)) for entry in entries],
        "± seeds": [_reach(entry, score) for entry in entries],
        "95 % interval": [_span(entry.over_classes(score)) for entry in entries],
    }
    deviations = [entry.fold_deviation(score) for entry in entries]
    if any(deviation is not None for deviation in deviations):
        columns["SD over folds"] = [percent(deviation, 1) for deviation in deviations]
    columns |= {name: [percent(entry.mean(name)) for entry in entries] for name in other_scores}
    validated = any(entry.validation(score) is not None for entry in entries)
    if validated:
        columns["validation"] = [percent(entry.validation(score)) for entry in entries]
    columns["runs"] = [run_counts(entry) for entry in entries]
    caption = (
        "Scores in %, on the test classes; the recommended model is in bold. ± seeds: half of the 95 % t interval of "
        "the mean over seeds. 95 % interval: over test classes."
    )
    if validated:
        caption += f" Validation: {score} on the validation classes at the reported step."
    if baselines:
        caption += " Rows without a rank are baselines without training: the network's own features, the same reduced "
        caption += "by PCA, and neighbours in random order (chance)."
    rows = tuple(zip(*columns.values(), strict=True))
    bold = frozenset(number for number, entry in enumerate(entries) if is_recommended(board, entry))
    return Table(tuple(columns), rows, caption, words=frozenset({1}), best=bold)


def _joined(board: Leaderboard, entries: list[Entry]) -> list[Block]:
    """Compare the joined model of each seed's folds with the mean of the separate models."""
    score = board.score
    both = [(entry, entry.joined) for entry in entries if entry.joined is not None]
    if not both:
        return []
    both.sort(key=lambda pair: -pair[1].mean(score))
    rows = tuple(
        (
            str(rank),
            entry.name,
            percent(joined.mean(score)),
            _reach(joined, score),
            _span(joined.over_classes(score)),
            percent(entry.mean(score)),
            percent(joined.mean("P@1")),
            percent(entry.mean("P@1")),
            f"{entry.records[0].folds} {TIMES} {entry.network[1]}",
        )
        for rank, (entry, joined) in enumerate(both, 1)
    )
    head = (f"joined {score}", "± seeds", "95 % interval", f"single {score}", "joined P@1", "single P@1", "size")
    caption = (
        "Joined: the embeddings of all folds are concatenated and searched as one. Single: the mean over the separate "
        "models, as in the table above."
    )
    bold = frozenset(number for number, (entry, _) in enumerate(both) if is_recommended(board, entry))
    return [Table(("", "loss", *head), rows, caption, words=frozenset({1}), best=bold)]


def _in_percent(interval: Interval | None) -> Interval | None:
    return None if interval is None else Interval(100 * interval.low, 100 * interval.high)


def _span(interval: Interval | None) -> str:
    return NONE if interval is None else f"{percent(interval.low, 1)} {NONE} {percent(interval.high, 1)}"


def _reach(entry: Entry, score: str) -> str:
    interval = entry.over_seeds(score)
    return NONE if interval is None else percent((interval.high - interval.low) / 2)
