"""Who won, by how much, and how sure that is."""

from __future__ import annotations

from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Table
from vicinal.report.charts import Row, dot_rows
from vicinal.report.comparison import Comparison, Entry
from vicinal.report.summary import Line, lines
from vicinal.report.words import NONE, TIMES, network, percent, span
from vicinal.statistics import Interval

__all__ = ["leaderboard"]

BESIDE = ("P@1", "P@R", "MAP@R", "mAP", "NMI")


def leaderboard(comparison: Comparison) -> list[Chapter]:
    """One table and drawing for each backbone and dimension, and what the folds come to together."""
    blocks: list[Block] = []
    several = len(comparison.networks) > 1
    for which in sorted(comparison.networks, key=lambda network: network != comparison.main_network):
        found = lines(comparison, comparison.of_network(which))
        if several:
            blocks.append(Prose(f"{network(*which).capitalize()}.", kind="heading"))
        blocks += [_chart(comparison, found, which), _table(comparison, found)]
        blocks += _joined(comparison, [line.entry for line in found])
    return [Chapter("Leaderboard", tuple(blocks))]


def _chart(comparison: Comparison, found: list[Line], which: tuple[str, int | None]) -> Chart:
    rows = [
        Row(
            line.entry.label,
            100 * line.mean,
            thin=_in_percent(line.over_classes),
            thick=_in_percent(line.over_seeds),
            small=[100 * value for value in line.by_seed] if len(line.by_seed) > 1 else (),
            style="accent" if at == 0 else "other",
        )
        for at, line in enumerate(found)
    ]
    ranking = ", ".join(f"{row.name} {row.value:.2f} %" for row in rows)
    metric = comparison.metric
    svg = dot_rows(rows, f"test {metric}, per cent", f"Test {metric} of each loss, best first: {ranking}.")
    said = [f"The large dot is the mean test {metric}; further right is better."]
    if any(line.over_seeds for line in found):
        said.append(
            "Small rings are single seeds, and the thick bar is where the mean over many seeds would lie (95 %)."
        )
    if any(line.over_classes for line in found):
        said.append("The thin line says how far the score would move had other classes been drawn to test on (95 %).")
    name = "-".join(("leaderboard", which[0], str(which[1])))
    return Chart(name, (Panel(svg, f"Ranking by test {metric}: {ranking}."),), " ".join(said))


def _table(comparison: Comparison, found: list[Line]) -> Table:
    metric = comparison.metric
    others = [name for name in BESIDE if name != metric and all(name in _tests(line.entry) for line in found)]
    folds = any(line.deviation is not None for line in found)
    chosen = comparison.first.selected_on == "validation"
    head = ["", "loss", metric, "± seeds", "95 % over classes", *others, "runs"]
    head[5:5] = ["sd folds"] if folds else []
    head[-1:-1] = ["validation"] if chosen else []
    rows = []
    for at, line in enumerate(found):
        entry = line.entry
        rows.append(
            (
                str(at + 1),
                entry.label,
                percent(line.mean),
                _reach(line),
                span(line.over_classes),
                *([percent(line.deviation)] if folds else []),
                *(percent(entry.mean(name)) for name in others),
                *([percent(entry.validation(metric))] if chosen else []),
                str(len(entry.records)),
            )
        )
    caption = (
        "Scores in per cent, on the test classes. ± seeds is half of Student's 95 % interval of the mean; the interval "
        "over classes is a bootstrap, since queries of one class succeed and fail together."
    )
    if chosen:
        caption += f" Validation is the {metric} that chose the reported step."
    return Table(tuple(head), tuple(rows), caption, words=frozenset({1}), best=frozenset({0}))


def _joined(comparison: Comparison, entries: list[Entry]) -> list[Block]:
    """The folds of each seed as one concatenated embedder, beside the mean of the separate ones."""
    if comparison.first.protocol != "reality-check":
        return []
    metric = comparison.metric
    rows: list[tuple[str, ...]] = []
    separate = {(entry.name, entry.backbone, entry.dim): entry for entry in entries}
    for joined in comparison.joined:
        alone = separate.get((joined.name, joined.backbone, joined.dim))
        if alone is None:
            continue
        found = lines(comparison, [joined])[0]
        rows.append(
            (
                str(len(rows) + 1),
                joined.label,
                percent(found.mean),
                _reach(found),
                span(found.over_classes),
                percent(alone.mean(metric)),
                percent(joined.mean("P@1")),
                percent(alone.mean("P@1")),
                f"{len(alone.records) // len(alone.seeds)} {TIMES} {joined.dim}",
            )
        )
    if not rows:
        return [Prose("Not all folds are done or their embeddings were not kept, so they are not joined.", kind="note")]
    joined_head = (f"joined {metric}", "± seeds", "95 % over classes", "separate", "joined P@1", "separate", "size")
    caption = (
        "The models of all folds as one: joined, their embeddings lie side by side and are searched together; separate "
        "is the mean of the models, as in the table above."
    )
    return [Table(("", "loss", *joined_head), tuple(rows), caption, words=frozenset({1}), best=frozenset({0}))]


def _in_percent(interval: Interval | None) -> Interval | None:
    return None if interval is None else Interval(100 * interval.low, 100 * interval.high)


def _reach(line: Line) -> str:
    return NONE if line.over_seeds is None else percent((line.over_seeds.high - line.over_seeds.low) / 2)


def _tests(entry: Entry) -> set[str]:
    return set.intersection(*(set(record.test) for record in entry.records))
