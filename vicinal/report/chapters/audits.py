"""Chapter on the distance of each loss: whether it is a metric, and what that proves about the items of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vicinal._util.machine import cache_folder
from vicinal.errors import VicinalError
from vicinal.leaderboard import Entry, Leaderboard
from vicinal.report.blocks import Block, Chapter, Chart, Panel, Prose, Table
from vicinal.report.charts import Curve, line_chart
from vicinal.spaces import LabelMetric, MetricVerdict, RunAudit, audit, audit_run, label_metric_of, p_max
from vicinal.spaces.run_audit import LABEL_LOSSES

__all__ = ["distance_audits"]

TRIPLES = 200_000


def distance_audits(board: Leaderboard) -> list[Chapter]:
    """Audit the distance of every loss, and the bounds of runs whose loss is a distance to labels."""
    verdicts: dict[str, MetricVerdict] = {}
    for entry in board.of_network():
        try:
            verdicts[entry.name] = _verdict(entry.records[0].recipe)
        except VicinalError:  # a custom loss that this installation does not know
            continue
    if not verdicts:
        return []
    blocks: list[Block] = [_verdicts(verdicts)]
    of_labels = [entry for entry in board.of_network() if entry.records[0].recipe.get("loss") in LABEL_LOSSES]
    if of_labels:
        blocks += [_region(of_labels), *_bounds(of_labels)]
    return [Chapter("Distance audit", tuple(blocks))]


def _verdict(recipe: Mapping[str, Any]) -> MetricVerdict:
    loss = str(recipe.get("loss", ""))
    options = recipe.get("loss_options", {}) if loss in LABEL_LOSSES else {}
    return audit(loss, triples=TRIPLES, cache=cache_folder() / "audits", **options)


def _verdicts(verdicts: Mapping[str, MetricVerdict]) -> Table:
    """Return a table with one row per distance and the losses that use it."""
    losses: dict[tuple[str, ...], list[str]] = {}
    for name, verdict in verdicts.items():
        row = (_distance(verdict), verdict.kind, _because(verdict), _detour(verdict))
        losses.setdefault(row, []).append(name)
    return Table(
        ("distance", "losses", "kind", "evidence", "shortest detour"),
        tuple((distance, ", ".join(losses[distance, *rest]), *rest) for distance, *rest in losses),
        "Whether the distance that a loss uses is a metric. Shortest detour: the shortest path through a third point "
        "that a search over triples found, relative to the direct distance. Below 100 %, the triangle inequality is "
        "violated. If the search finds no violation, that is not a proof.",
        words=frozenset({0, 1, 2, 3}),
    )


def _distance(verdict: MetricVerdict) -> str:
    return verdict.subject.split(" (of ")[0].split()[0]


def _because(verdict: MetricVerdict) -> str:
    if verdict.faults:
        return "; ".join(verdict.faults)
    if verdict.kind == verdict.proved:
        return f"proved: {verdict.proof}"
    if verdict.kind == "metric":
        return f"no violation in {verdict.triples:,} triples"
    if verdict.kind == "weak-metric":
        return f"violations, but none through a vertex in {verdict.triples_through_vertices:,} triples"
    return f"violations; symmetric, and 0 only for equal points, in {verdict.pairs:,} pairs"


def _detour(verdict: MetricVerdict) -> str:
    worst = verdict.worst
    if verdict.faults or not np.isfinite(worst.direct) or worst.direct <= 0:
        return ""
    return f"{100 * (worst.first + worst.second) / worst.direct:.1f} %"


def _region(entries: Sequence[Entry]) -> Chart:
    """Draw k and p of each loss against the largest p of a metric."""
    metrics = {entry.name: _metric_of(entry) for entry in entries}
    smoothing = max(metric.smoothing for metric in metrics.values())
    limit = [(float(k), p_max(float(k), smoothing)) for k in np.linspace(0.02, 0.98, 97)]
    curves = {"limit": Curve(limit)} | {
        name: Curve([(metric.k, metric.p)], "accent") for name, metric in metrics.items()
    }
    alt = "The largest p of a metric over k; " + "; ".join(
        f"{name} has k = {metric.k:g}, p = {metric.p:g}" for name, metric in metrics.items()
    )
    caption = (
        "The line is the largest p for which the loss is a metric, for each k. Losses on or below it are metrics. "
        "Losses above it are weak metrics: the triangle inequality holds only through labels."
    )
    return Chart("metric-region", (Panel(line_chart(curves, x_label="k", y_label="p", alt=alt), alt),), caption)


def _bounds(entries: Sequence[Entry]) -> list[Block]:
    """Compare the triangle inequality's bounds on the training items of one run per loss with the actual distances."""
    audits: dict[str, RunAudit] = {}
    without = []
    for entry in entries:
        run = entry.typical()
        if run.folder is None or not run.has_model:
            without.append(f"{entry.name} (its model was not saved)")
            continue
        try:
            audits[entry.name] = audit_run(run.folder, data=run.record.dataset, triples=TRIPLES)
        except VicinalError as error:
            without.append(f"{entry.name} ({str(error).rstrip('.')})")
    blocks: list[Block] = []
    if audits:
        blocks += [_bound_table(audits), _score_table(audits)]
    if without:
        blocks.append(Prose(f"No bounds for {'; '.join(without)}.", kind="note"))
    return blocks


def _bound_table(audits: Mapping[str, RunAudit]) -> Table:
    rows = []
    for name, run in audits.items():
        bounds = run.bounds
        assert bounds is not None  # always set for a loss on class probabilities
        inter = "none" if bounds.inter_bound is None else f"{bounds.inter_bound:.2f}"
        rows.append(
            (
                name,
                f"{bounds.epsilon:.2f}",
                f"{bounds.metric.between_labels:.2f}",
                f"{bounds.largest_intra:.2f}",
                f"{bounds.intra_bound:.2f}",
                f"{bounds.smallest_inter:.2f}",
                inter,
                "yes" if bounds.holds else "no",
                f"{float(bounds.certified.double().mean()):.1%}",
            )
        )
    return Table(
        ("loss", "ε", "F(2M)", "within", "bound", "between", "bound", "certificate", "items proved"),
        tuple(rows),
        "Training items of the run with the median score. ε: largest distance of an item to its label. F(2M): "
        "distance of two labels. Within: largest distance of two items of one class, proved to be at most 2ε. Between: "
        "smallest distance of items of two classes, proved to be at least F(2M) - 2ε. Certificate: 4ε < F(2M), which "
        "proves that every ranking of these items is perfect. Items proved: share of items for which it is proved "
        "individually.",
    )


def _score_table(audits: Mapping[str, RunAudit]) -> Table:
    rows = tuple(
        (name, classes, by, f"{100 * score:.1f}", f"{100 * first:.1f}")
        for name, run in audits.items()
        for classes, by, score, first in run.scores
    )
    caption = (
        "Scores of the same runs, with neighbours by the distance of the loss, by the cosine of the embeddings, and by "
        "the cosine of the features."
    )
    return Table(("loss", "classes", "neighbours by", "MAP@R", "P@1"), rows, caption, words=frozenset({0, 1, 2}))


def _metric_of(entry: Entry) -> LabelMetric:
    recipe = entry.records[0].recipe
    return label_metric_of(str(recipe["loss"]), recipe.get("loss_options", {}))
