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
            verdicts[entry.label] = _verdict(entry.records[0].recipe)
        except VicinalError:  # a custom loss that this installation does not know
            continue
    if not verdicts:
        return []
    blocks: list[Block] = [_verdicts(verdicts)]
    of_labels = [entry for entry in board.of_network() if entry.records[0].recipe.get("loss") in LABEL_LOSSES]
    if of_labels:
        blocks += [_region(of_labels), *_bounds(of_labels)]
    return [Chapter("What each loss measures with", tuple(blocks))]


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
        ("distance", "of", "it is a", "because", "shortest detour"),
        tuple((distance, ", ".join(losses[distance, *rest]), *rest) for distance, *rest in losses),
        "A metric has no way through a third point that is shorter than the direct one. The shortest detour that the "
        "search found is given as a share of the direct way: below 100 % the triangle inequality fails. A search that "
        "finds nothing proves nothing.",
        words=frozenset({0, 1, 2, 3}),
    )


def _distance(verdict: MetricVerdict) -> str:
    return verdict.subject.split(" (of ")[0].split()[0].replace("_", " ")


def _because(verdict: MetricVerdict) -> str:
    if verdict.faults:
        return "; ".join(verdict.faults)
    if verdict.kind == verdict.proved:
        return f"proved: {verdict.proof}"
    if verdict.kind == "metric":
        return f"no shorter way in {verdict.triples:,} triples"
    if verdict.kind == "weak-metric":
        return f"shorter ways, but none through a vertex in {verdict.triples_through_vertices:,} triples"
    return f"shorter ways; symmetric, and 0 for equal points alone, in {verdict.pairs:,} pairs"


def _detour(verdict: MetricVerdict) -> str:
    worst = verdict.worst
    if verdict.faults or not np.isfinite(worst.direct) or worst.direct <= 0:
        return ""
    return f"{100 * (worst.first + worst.second) / worst.direct:.1f} %"


def _region(entries: Sequence[Entry]) -> Chart:
    """Draw k and p of each loss against the largest p of a metric."""
    metrics = {entry.label: _metric_of(entry) for entry in entries}
    smoothing = max(metric.smoothing for metric in metrics.values())
    limit = [(float(k), p_max(float(k), smoothing)) for k in np.linspace(0.02, 0.98, 97)]
    curves = {"limit": Curve(limit)} | {
        name: Curve([(metric.k, metric.p)], "accent") for name, metric in metrics.items()
    }
    alt = "The largest p of a metric over k; " + "; ".join(
        f"{name} has k = {metric.k:g}, p = {metric.p:g}" for name, metric in metrics.items()
    )
    caption = (
        "The line is the largest p of a metric for each k. Losses on or under it are metrics; those above it are "
        "weak-metrics, in which only ways through labels are never shorter."
    )
    return Chart("metric-region", (Panel(line_chart(curves, x_label="k (upwards: p)", alt=alt), alt),), caption)


def _bounds(entries: Sequence[Entry]) -> list[Block]:
    """Compare the triangle inequality's bounds on the training items of one run per loss with the actual distances."""
    audits: dict[str, RunAudit] = {}
    without = []
    for entry in entries:
        run = entry.typical()
        if run.folder is None or not run.has_model:
            without.append(f"{entry.label} (its model was not kept)")
            continue
        try:
            audits[entry.label] = audit_run(run.folder, data=run.record.dataset, triples=TRIPLES)
        except VicinalError as error:
            without.append(f"{entry.label} ({str(error).rstrip('.')})")
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
        inter = "nothing" if bounds.inter_bound is None else f"{bounds.inter_bound:.2f}"
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
        ("loss", "ε", "F(2M)", "within", "at most", "between", "at least", "certificate", "items proved"),
        tuple(rows),
        "Training items of the middle run. ε is the largest distance of an item to its label, F(2M) that of two "
        "labels. `within` is the largest distance of two items of a class, proved to be at most 2ε; `between` the "
        "smallest of two classes, proved to be at least F(2M) - 2ε. Where 4ε < F(2M), the certificate, every ranking "
        "of these items is proved to be perfect; the last column counts the items for which it is proved one by one.",
    )


def _score_table(audits: Mapping[str, RunAudit]) -> Table:
    rows = tuple(
        (name, f"{classes} classes", by, f"{100 * score:.1f}", f"{100 * first:.1f}")
        for name, run in audits.items()
        for classes, by, score, first in run.scores
    )
    caption = "The same runs, with neighbours by the loss's own distance, by cosine, and by cosine of the features."
    return Table(("loss", "items of", "neighbours by", "MAP@R", "P@1"), rows, caption, words=frozenset({0, 1, 2}))


def _metric_of(entry: Entry) -> LabelMetric:
    recipe = entry.records[0].recipe
    return label_metric_of(str(recipe["loss"]), recipe.get("loss_options", {}))
