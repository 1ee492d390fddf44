"""Chapters with curves: scores over k, dimensions, images seen and proxy instances, and spectral decay."""

from __future__ import annotations

import numpy as np
from scipy import stats

from vicinal.evaluation import spectral_decay
from vicinal.leaderboard import Entry, Leaderboard
from vicinal.report.blocks import Chapter, Chart, Panel
from vicinal.report.charts import Curve, line_chart, scatter, small_lines
from vicinal.report.labels import style_of
from vicinal.runs import Record

__all__ = ["dimension_curves", "proxy_instances", "recall_curves", "spectral", "training_curves"]


POINTS = 120  # most points of a line in a small panel


def recall_curves(board: Leaderboard) -> list[Chapter]:
    """Plot R@k against k."""
    entries = board.of_network()
    shared = set.intersection(*(entry.scores for entry in entries))
    ks = sorted(int(name[2:]) for name in shared if name.startswith("R@") and name[2:].isdigit())
    if len(ks) < 2:
        return []
    curves = {
        entry.name: Curve([(k, 100 * entry.mean(f"R@{k}")) for k in ks], style_of(board, entry)) for entry in entries
    }
    alt = "; ".join(
        f"{name}: {curve.points[0][1]:.1f} at 1, {curve.points[-1][1]:.1f} at {ks[-1]}"
        for name, curve in curves.items()
    )
    svg = line_chart(curves, x_label="k", y_label="R@k, %", alt=f"R@k. {alt}.", ticks=ks, log=True)
    caption = (
        "R@k: share of queries with at least one neighbour of the correct class among the k nearest. Curves that "
        "differ at small k and meet at large k rank the same neighbours differently."
    )
    return [Chapter("Recall at k", (Chart("recall", (Panel(svg, alt),), caption),))]


def dimension_curves(board: Leaderboard) -> list[Chapter]:
    """Plot the score against the embedding dimension, one drawing per backbone."""
    panels = []
    recommended = board.best.record.name
    for backbone in dict.fromkeys(backbone for backbone, _ in board.networks):
        points: dict[str, list[tuple[float, float]]] = {}
        for entry in sorted(board.entries, key=lambda entry: entry.network[1] or 0):
            own, dim = entry.network
            if own == backbone and dim:
                points.setdefault(entry.name, []).append((dim, 100 * entry.mean(board.score)))
        several = {name: line for name, line in points.items() if len(line) > 1}
        if several:
            curves = {name: Curve(line, "accent" if name == recommended else "other") for name, line in several.items()}
            ticks = sorted({x for line in several.values() for x, _ in line})
            alt = f"{board.score} over dimensions with {backbone}: " + "; ".join(
                f"{name} from {line[0][1]:.1f} at {line[0][0]:g} to {line[-1][1]:.1f} at {line[-1][0]:g}"
                for name, line in several.items()
            )
            svg = line_chart(curves, x_label="dimensions", y_label=f"{board.score}, %", alt=alt, ticks=ticks, log=True)
            panels.append(Panel(svg, alt, title=backbone))
    if not panels:
        return []
    caption = (
        f"{board.score} on the test classes by embedding dimension. Where a curve is flat, more dimensions do not "
        "help. Where curves cross, the best loss depends on the dimension."
    )
    return [Chapter("Dimensions", (Chart("dimensions", tuple(panels), caption),))]


def training_curves(board: Leaderboard) -> list[Chapter]:
    """Plot validation score and training loss over images seen, one small panel per loss."""
    charts = []
    scores = {entry.name: _over_runs(entry, "score", 100.0) for entry in board.of_network()}
    scores = {name: curve for name, curve in scores.items() if curve is not None}
    if scores:
        low, high = _range([curve for curve in scores.values() if curve])
        panels = tuple(
            Panel(
                small_lines(
                    [Curve(other.points) for key, other in scores.items() if key != name and other],
                    [curve],
                    alt=_in_words(name, curve, "validation score"),
                    low=low,
                    high=high,
                ),
                _in_words(name, curve, "validation score"),
                title=name,
            )
            for name, curve in scores.items()
            if curve
        )
        caption = (
            f"{board.score} on the validation classes, in %, against the number of training images seen. Blue: mean "
            "over runs, with a band from the lowest to the highest run. Grey: the other losses. A curve that still "
            "rises at its end may improve with a larger budget."
        )
        charts.append(Chart("validation", panels, caption, size="small"))
    panels = tuple(
        Panel(
            small_lines([], [curve], alt=_in_words(entry.name, curve, "training loss"), low=ends[0], high=ends[1]),
            _in_words(entry.name, curve, "training loss"),
            title=entry.name,
        )
        for entry in board.of_network()
        if (curve := _over_runs(entry, "loss", 1.0)) is not None and (ends := _range([curve]))
    )
    if panels:
        caption = (
            "Training loss against the number of training images seen. Scales differ: values of different losses are "
            "not comparable."
        )
        charts.append(Chart("loss", panels, caption, size="small"))
    return [Chapter("Training curves", tuple(charts))] if charts else []


def _over_runs(entry: Entry, name: str, factor: float) -> Curve | None:
    """Return the mean over runs at each step that most of them logged, with a band from minimum to maximum."""
    logged: dict[int, list[tuple[float, float]]] = {}
    for run in entry.runs:
        per_step = _images_per_step(run.record)
        for line in run.log:
            # Lines about a whole proxy instance repeat scores of earlier steps.
            if "instance" not in line and isinstance(line.get(name), int | float):
                seen = float(line.get("images", per_step * line["step"]))
                logged.setdefault(int(line["step"]), []).append((seen, factor * line[name]))
    most = max((len(values) for values in logged.values()), default=0)
    steps = sorted(step for step, values in logged.items() if len(values) > most / 2)
    if len(steps) < 2:
        return None
    steps = [steps[index] for index in np.unique(np.linspace(0, len(steps) - 1, POINTS).round().astype(int))]

    images = [float(np.mean([before for before, _ in logged[step]])) for step in steps]
    runs = [[value for _, value in logged[step]] for step in steps]
    mean, low, high = (
        list(zip(images, [float(of(values)) for values in runs], strict=True)) for of in (np.mean, np.min, np.max)
    )
    return Curve(mean, "accent", low if most > 1 else (), high if most > 1 else ())


def _images_per_step(record: Record) -> float:
    """Return the number of images per step; the batch size for records of earlier versions, which lack the count."""
    if record.images and record.steps:
        return record.images / record.steps
    batch = record.recipe.get("classes_per_batch", 1) * record.recipe.get("samples_per_class", 1)
    return float(batch * record.recipe["training"].get("accumulate", 1))


def _range(curves: list[Curve]) -> tuple[float, float]:
    values = [value for curve in curves for _, value in (*curve.points, *curve.low, *curve.high)]
    pad = 0.05 * (max(values) - min(values)) or 0.05
    return min(values) - pad, max(values) + pad


def _in_words(name: str, curve: Curve, what: str) -> str:
    best = max(curve.points, key=lambda point: point[1])
    ends = f"from {curve.points[0][1]:.3g} to {curve.points[-1][1]:.3g}"
    return f"{what} of {name}: {ends}, highest {best[1]:.3g} at {best[0]:,.0f} images"


# Chance-constrained proxies: changes from one instance to the next.

FIELDS = ("covering radius", "inter-class distance", "proxy radius", "proxy spread", "MAP@R")


def proxy_instances(board: Leaderboard) -> list[Chapter]:
    """Plot the values that runs with alternating proxy problems logged at the end of each problem."""
    panels = []
    for field in FIELDS:
        values = {entry: _by_instance(entry, field) for entry in board.of_network()}
        drawn = {entry: points for entry, points in values.items() if len(points) > 1}
        if drawn:
            alt = f"{field} by instance: " + "; ".join(
                f"{entry.name} from {points[0][1]:.3g} to {points[-1][1]:.3g}" for entry, points in drawn.items()
            )
            curves = {entry.name: Curve(points, style_of(board, entry)) for entry, points in drawn.items()}
            ticks = sorted({x for points in drawn.values() for x, _ in points})
            shown = ticks[:: -(-len(ticks) // 10)]
            svg = line_chart(curves, x_label="instance", y_label=field, alt=alt, ticks=shown, height=220)
            panels.append(Panel(svg, alt))
    if not panels:
        return []
    caption = (
        "Each instance is a proxy problem, trained until its score no longer improved. New proxies were then placed on "
        "items far from the previous ones. A falling covering radius means that fewer items are far from all proxies "
        "of their class. Means over runs."
    )
    return [Chapter("Chance-constrained proxies", (Chart("proxies", tuple(panels), caption),))]


def _by_instance(entry: Entry, field: str) -> list[tuple[float, float]]:
    values: dict[int, list[float]] = {}
    for run in entry.runs:
        for line in run.log:
            if "instance" in line and isinstance(line.get(field), int | float):
                values.setdefault(int(line["instance"]), []).append(float(line[field]))
    return [(float(instance), float(np.mean(values[instance]))) for instance in sorted(values)]


# Spectral decay: how evenly losses use the directions of the space.

NAME = "spectral decay"
FEWEST = 5  # losses needed for a meaningful correlation


def spectral(board: Leaderboard) -> list[Chapter]:
    """Plot spectral decay against R@1."""
    points = []
    for entry in board.of_network():
        decay = _decay(entry)
        name = "R@1" if "R@1" in entry.scores else "P@1"
        if decay is not None and name in entry.scores:
            points.append((entry.name, decay, 100 * entry.mean(name), style_of(board, entry)))
    if len(points) < 3:
        return []
    _, decays, recalls, _ = zip(*points, strict=True)
    alt = "Spectral decay and R@1: " + "; ".join(
        f"{name} {decay:.3f}, {recall:.1f}" for name, decay, recall, _ in points
    )
    svg = scatter(points, x_label="spectral decay", y_label="R@1, %", alt=alt)
    caption = (
        "Spectral decay measures how unevenly the embeddings use the directions of the space: 0 if all directions are "
        "used equally."
    )
    if len(points) >= FEWEST and np.ptp(decays) > 0 and np.ptp(recalls) > 0:
        caption += (
            f" Its correlation with R@1 over these {len(points)} losses is "
            f"{stats.pearsonr(decays, recalls).statistic:.2f}. Roth et al. (2020) found -0.80 on CUB, -0.85 on Cars "
            "and -0.63 on SOP, over 23 methods."
        )
    return [Chapter("Spectral decay", (Chart("spectral-decay", (Panel(svg, alt),), caption),))]


def _decay(entry: Entry) -> float | None:
    if NAME in entry.scores:
        return entry.mean(NAME)
    saved = [run for run in entry.runs if run.has_test_items]
    return float(np.mean([spectral_decay(run.test_items().embeddings) for run in saved])) if saved else None
