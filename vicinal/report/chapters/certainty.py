"""Chapter on the significance of the ranking."""

from __future__ import annotations

from vicinal._util.text import NONE, capitalised, in_words, listed, p_number, percent
from vicinal.leaderboard import Leaderboard
from vicinal.leaderboard.text import network_in_words
from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Table
from vicinal.report.charts import WIDTH
from vicinal.report.drawing import LETTER, Drawing, Scale
from vicinal.runs import Network
from vicinal.stats import Tournament, Verdict

__all__ = ["significance"]


def significance(board: Leaderboard) -> list[Chapter]:
    """Report pairwise tests, ranks over experiments, and how well validation predicts the test ranking."""
    blocks: list[Block] = []
    several = len(board.networks) > 1
    for network in sorted(board.networks, key=lambda network: network != board.main_network):
        verdict, correlation = board.verdict(network), board.correlation(network)
        if several and verdict is not None:
            blocks.append(Prose(f"{capitalised(network_in_words(network))}.", kind="heading"))
        if verdict is not None:
            blocks += [Prose(capitalised(in_words(str(verdict)))), _against_winner(board, network, verdict)]
        if len(board.of_network(network)) > 2 and board.pairs(network):
            blocks.append(_matrix(board, network))
        if correlation is not None:
            blocks += [Prose("Does validation choose well?", kind="heading"), Prose(str(correlation))]
    if board.ranks is not None:
        blocks.append(_diagram(board.ranks))
        blocks += [Prose(in_words(capitalised(note)), kind="note") for note in board.ranks.notes]
    return [Chapter("How sure is the order?", tuple(blocks))] if blocks else []


def _against_winner(board: Leaderboard, network: Network, verdict: Verdict) -> Table:
    winner, best = in_words(verdict.winner), board.best_probabilities(network)
    tests = {pair.second: pair for pair in board.pairs(network) if pair.first == verdict.winner}
    rows = []
    for entry in board.of_network(network)[1:]:
        pair = tests.get(entry.name)
        numbers = (
            (
                percent(pair.difference, sign=True),
                f"{percent(pair.interval.low, sign=True)} to {percent(pair.interval.high, sign=True)}",
                f"{pair.effect:+.2f}",
                p_number(pair.p_value),
                pair.basis,
            )
            if pair is not None
            else (NONE, NONE, NONE, NONE, "nothing")
        )
        rows.append((entry.label, *numbers, NONE if best is None else f"{percent(best.shares[entry.name], 0)} %"))
    caption = (
        f"{capitalised(winner)} against each other loss, in points of per cent, on the test classes, seeds and folds "
        "that the two share. Effect is the share of classes in which it is better less the share in which it is worse. "
        "p is corrected for the number of pairs (Holm)."
    )
    if best is not None:
        caption += (
            f" The last column says in how many resamples of the {best.basis} that all losses share the other came "
            f"first; {winner} did in {percent(best.shares[verdict.winner], 0)} %."
        )
    head = ("against", "ahead by", "95 % interval", "effect", "p", "compared on", "best in")
    return Table(head, tuple(rows), caption, words=frozenset({0, 5}))


def _matrix(board: Leaderboard, network: Network) -> Table:
    entries = board.of_network(network)
    p_values = {(pair.first, pair.second): p_number(pair.p_value) for pair in board.pairs(network)}
    rows = tuple(
        (
            row_entry.label,
            *("" if column <= row else p_values.get((row_entry.name, other.name), NONE) for column, other in rest),
        )
        for row, row_entry in enumerate(entries[:-1])
        for rest in [list(enumerate(entries))[1:]]
    )
    return Table(
        ("", *(entry.label for entry in entries[1:])), rows, "p of every pair, corrected for their number (Holm)."
    )


def _diagram(ranks: Tournament) -> Chart:
    """Draw mean ranks as dots in rows; bars at the right join losses that are not statistically distinguishable."""
    names = [in_words(name) for name in ranks.methods]
    means = list(ranks.mean_ranks.values())
    left = 14 + LETTER * 1.08 * max(map(len, names))
    bars = [group for group in ranks.groups if len(group) > 1]
    right = WIDTH - 56 - 9 * len(bars)
    x = Scale(1, max(2, len(names)), left, right)
    top, bottom = 34.0, 42 + 21.0 * len(names)
    drawing = Drawing(WIDTH, bottom + 34, _ranks_said(ranks))
    drawing.x_axis(
        x,
        bottom,
        f"mean rank over {len(ranks.experiments)} experiments (1 is best)",
        ticks=range(1, len(names) + 1),
        top=top,
    )
    length = min(ranks.critical_difference, len(names) - 1.0)
    drawing.line([(x(1), 12), (x(1 + length), 12)], "rule")
    for end in (x(1), x(1 + length)):
        drawing.line([(end, 8), (end, 16)], "rule")
    drawing.text(x(1 + length) + 7 if x(1 + length) < WIDTH - 150 else x(1), 16 if x(1 + length) < WIDTH - 150 else 28,
                 f"critical difference {ranks.critical_difference:.2f}", "label")  # fmt: skip
    for index, (name, mean) in enumerate(zip(names, means, strict=True)):
        y = 48 + 21.0 * index
        style = "accent" if index == 0 else "other"
        drawing.text(left - 12, y + 4, name, "name strong" if index == 0 else "name", anchor="end")
        drawing.dot(x(mean), y, style, radius=4.2, title=f"{name}: {mean:.2f}")
        drawing.text(WIDTH - 4, y + 4, f"{mean:.2f}", "value", anchor="end")
    for number, group in enumerate(bars):
        across = right + 12 + 9 * number
        first, last = ranks.methods.index(group[0]), ranks.methods.index(group[-1])
        drawing.line([(across, 43 + 21.0 * first), (across, 53 + 21.0 * last)], "group")
    caption = (
        "Critical-difference diagram (Friedman, Nemenyi): each dot is the mean rank of a loss over experiments, that "
        "is networks, seeds and folds. Losses joined by a black bar are closer than the critical difference: their "
        "order may be luck. Experiments here share their test classes, so trust the p-values above where the two "
        "disagree."
    )
    if ranks.friedman is not None:
        caption += f" {ranks.friedman}"
    return Chart("critical-difference", (Panel(str(drawing), _ranks_said(ranks)),), caption)


def _ranks_said(tournament: Tournament) -> str:
    ranks = ", ".join(f"{in_words(name)} {mean:.2f}" for name, mean in tournament.mean_ranks.items())
    groups = "; ".join(in_words(listed(list(group))) for group in tournament.groups if len(group) > 1)
    return f"Mean ranks: {ranks}. Not told apart: {groups or 'none'}."
