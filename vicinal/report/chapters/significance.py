"""How sure the order is."""

from __future__ import annotations

from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Table
from vicinal.report.charts import WIDTH
from vicinal.report.comparison import Comparison
from vicinal.report.drawing import LETTER, Drawing, Scale
from vicinal.report.evidence import Evidence, correlation_of, evidence, ranks_of
from vicinal.report.words import listed, p_value
from vicinal.statistics import Tournament

__all__ = ["significance"]


def significance(comparison: Comparison) -> list[Chapter]:
    """Tests of pairs, ranks over experiments, and whether validation chooses well."""
    blocks: list[Block] = []
    found, ranks, correlation = evidence(comparison), ranks_of(comparison), correlation_of(comparison)
    if found is not None:
        blocks += [Prose(" ".join([_capital(found.verdict.sentence), *found.verdict.caveats])), _against_winner(found)]
        if len(found.best) > 2:
            blocks.append(_matrix(found))
        if found.left_out:
            blocks.append(
                Prose(f"Not paired, since runs or classes are missing: {listed(list(found.left_out))}.", kind="note")
            )
    if ranks is not None:
        blocks.append(_diagram(ranks))
        blocks += [Prose(_capital(note), kind="note") for note in ranks.notes]
    if correlation is not None:
        blocks += [Prose("Does validation choose well?", kind="heading"), Prose(str(correlation))]
    return [Chapter("How sure is the order?", tuple(blocks))] if blocks else []


def _against_winner(found: Evidence) -> Table:
    winner = found.pairs[0].first
    rows = [
        (
            pair.second,
            f"{100 * pair.difference:+.2f}",
            f"{100 * pair.interval.low:+.2f} to {100 * pair.interval.high:+.2f}",
            f"{pair.effect:+.2f}",
            p_value(pair.p_value),
            f"{100 * found.best[pair.second]:.0f} %",
        )
        for pair in found.pairs
        if pair.first == winner
    ]
    caption = (
        f"{_capital(winner)} against each other loss, in points of per cent. Effect is the share of classes in which "
        "it is better less the share in which it is worse. p is corrected for the number of pairs (Holm). The last "
        f"column says in how many resamples of classes and seeds the other loss came first; {winner} did in "
        f"{100 * found.best[winner]:.0f} %."
    )
    return Table(("against", "ahead by", "95 % interval", "effect", "p", "best in"), tuple(rows), caption)


def _matrix(found: Evidence) -> Table:
    order = list(found.best)
    known = {frozenset((pair.first, pair.second)): pair.p_value for pair in found.pairs}
    rows = tuple(
        (name, *("" if to <= at else p_value(known[frozenset((name, order[to]))]) for to in range(1, len(order))))
        for at, name in enumerate(order[:-1])
    )
    return Table(("", *order[1:]), rows, "p of every pair, corrected for their number (Holm).")


def _diagram(found: Tournament) -> Chart:
    """Mean ranks as dots in rows; bars at the right join losses that cannot be told apart."""
    names = list(found.methods)
    means = [found.mean_ranks[name] for name in names]
    left = 14 + LETTER * 1.08 * max(map(len, names))
    bars = [group for group in found.groups if len(group) > 1]
    right = WIDTH - 56 - 9 * len(bars)
    x = Scale(1, max(2, len(names)), left, right)
    top, bottom = 34.0, 42 + 21.0 * len(names)
    drawing = Drawing(WIDTH, bottom + 34, _ranks_said(found))
    drawing.x_axis(
        x,
        bottom,
        f"mean rank over {len(found.experiments)} experiments (1 is best)",
        ticks=range(1, len(names) + 1),
        top=top,
    )
    length = min(found.critical_difference, len(names) - 1.0)
    drawing.line([(x(1), 12), (x(1 + length), 12)], "rule")
    for end in (x(1), x(1 + length)):
        drawing.line([(end, 8), (end, 16)], "rule")
    drawing.text(x(1 + length) + 7 if x(1 + length) < WIDTH - 150 else x(1), 16 if x(1 + length) < WIDTH - 150 else 28,
                 f"critical difference {found.critical_difference:.2f}", "label")  # fmt: skip
    for at, (name, mean) in enumerate(zip(names, means, strict=True)):
        y = 48 + 21.0 * at
        style = "accent" if at == 0 else "other"
        drawing.text(left - 12, y + 4, name, "name strong" if at == 0 else "name", anchor="end")
        drawing.dot(x(mean), y, style, radius=4.2, title=f"{name}: {mean:.2f}")
        drawing.text(WIDTH - 4, y + 4, f"{mean:.2f}", "value", anchor="end")
    for number, group in enumerate(bars):
        across = right + 12 + 9 * number
        first, last = names.index(group[0]), names.index(group[-1])
        drawing.line([(across, 43 + 21.0 * first), (across, 53 + 21.0 * last)], "group")
    caption = (
        "Critical-difference diagram (Friedman, Nemenyi): each dot is the mean rank of a loss over experiments, that "
        "is networks, seeds and folds. Losses joined by a black bar are closer than the critical difference: their "
        "order may be luck. Experiments here share their test classes, so trust the p-values above where the two "
        "disagree."
    )
    if found.friedman is not None:
        caption += f" {found.friedman}"
    return Chart("critical-difference", (Panel(str(drawing), _ranks_said(found)),), caption)


def _ranks_said(found: Tournament) -> str:
    ranks = ", ".join(f"{name} {mean:.2f}" for name, mean in found.mean_ranks.items())
    groups = "; ".join(listed(list(group)) for group in found.groups if len(group) > 1)
    return f"Mean ranks: {ranks}. Not told apart: {groups or 'none'}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
