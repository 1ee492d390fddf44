"""Chapter on the significance of the ranking."""

from __future__ import annotations

from vicinal._util.text import NONE, listed, p_number, percent
from vicinal.leaderboard import Leaderboard
from vicinal.leaderboard.text import network_in_words
from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Table
from vicinal.report.charts import WIDTH
from vicinal.report.drawing import LETTER, Drawing, Scale
from vicinal.report.labels import in_sentence
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
            blocks.append(Prose(network_in_words(network), kind="heading"))
        if verdict is not None:
            blocks += [Prose(in_sentence(board, str(verdict))), _against_winner(board, network, verdict)]
        if len(board.of_network(network)) > 2 and board.pairs(network):
            blocks.append(_matrix(board, network))
        if correlation is not None:
            blocks += [Prose("Validation against test", kind="heading"), Prose(str(correlation))]
    if board.ranks is not None:
        blocks.append(_diagram(board))
        blocks += [Prose(in_sentence(board, note), kind="note") for note in board.ranks.notes]
    return [Chapter("Significance", tuple(blocks))] if blocks else []


def _against_winner(board: Leaderboard, network: Network, verdict: Verdict) -> Table:
    winner, best = verdict.winner, board.best_probabilities(network)
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
            else (NONE, NONE, NONE, NONE, "nothing shared")
        )
        rows.append((entry.name, *numbers, NONE if best is None else f"{percent(best.shares[entry.name], 0)} %"))
    caption = (
        f"{winner} against each other loss, in percentage points, on the test classes, seeds and folds that both "
        "have. Effect: share of classes in which it is better, minus the share in which it is worse. p values are "
        "corrected for the number of pairs (Holm)."
    )
    if best is not None:
        caption += (
            f" P(best): probability that the other loss is the best, from the {best.basis} that all losses share; for "
            f"{winner} it is {percent(best.shares[verdict.winner], 0)} %."
        )
    else:
        caption += " P(best) needs at least two seeds that all losses share."
    head = ("against", "difference", "95 % interval", "effect", "p", "compared on", "P(best)")
    return Table(head, tuple(rows), caption, words=frozenset({0, 5}))


def _matrix(board: Leaderboard, network: Network) -> Table:
    entries = board.of_network(network)
    p_values = {(pair.first, pair.second): p_number(pair.p_value) for pair in board.pairs(network)}
    rows = tuple(
        (
            row_entry.name,
            *("" if column <= row else p_values.get((row_entry.name, other.name), NONE) for column, other in rest),
        )
        for row, row_entry in enumerate(entries[:-1])
        for rest in [list(enumerate(entries))[1:]]
    )
    return Table(
        ("", *(entry.name for entry in entries[1:])),
        rows,
        "p value of every pair, corrected for the number of pairs (Holm).",
    )


def _diagram(board: Leaderboard) -> Chart:
    """Draw mean ranks as dots in rows; bars at the right join losses that are not statistically distinguishable."""
    ranks = board.ranks
    assert ranks is not None  # checked by the caller
    names = list(ranks.methods)
    means = list(ranks.mean_ranks.values())
    left = 14 + LETTER * 1.08 * max(map(len, names))
    bars = [group for group in ranks.groups if len(group) > 1]
    right = WIDTH - 56 - 9 * len(bars)
    x = Scale(1, max(2, len(names)), left, right)
    top, bottom = 34.0, 42 + 21.0 * len(names)
    drawing = Drawing(WIDTH, bottom + 34, _ranks_in_words(ranks))
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
        recommended = ranks.methods[index] == board.best.record.name
        style = "accent" if recommended else "other"
        drawing.text(left - 12, y + 4, name, "name strong" if recommended else "name", anchor="end")
        drawing.dot(x(mean), y, style, radius=4.2, title=f"{name}: {mean:.2f}")
        drawing.text(WIDTH - 4, y + 4, f"{mean:.2f}", "value", anchor="end")
    for number, group in enumerate(bars):
        across = right + 12 + 9 * number
        first, last = ranks.methods.index(group[0]), ranks.methods.index(group[-1])
        drawing.line([(across, 43 + 21.0 * first), (across, 53 + 21.0 * last)], "group")
    caption = (
        "Critical-difference diagram (Friedman, Nemenyi). Each dot is the mean rank of a loss over experiments: "
        "networks, seeds and folds. Losses joined by a bar do not differ significantly. These experiments share their "
        "test classes; if the diagram and the p values above disagree, rely on the p values."
    )
    if ranks.friedman is not None:
        caption += f" {ranks.friedman}"
    return Chart("critical-difference", (Panel(str(drawing), _ranks_in_words(ranks)),), caption)


def _ranks_in_words(tournament: Tournament) -> str:
    ranks = ", ".join(f"{name} {mean:.2f}" for name, mean in tournament.mean_ranks.items())
    groups = "; ".join(listed(list(group)) for group in tournament.groups if len(group) > 1)
    return f"Mean ranks: {ranks}. Not significantly different: {groups or 'none'}."
