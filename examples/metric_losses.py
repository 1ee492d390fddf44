"""Cross-entropy, its weak-metric and its metric against two proxy losses, on classes seen in training and on new ones.

    VICINAL_DATA=../shared/data python examples/metric_losses.py --out metric-losses.jsonl

Up to 100 training classes train, on 70 % of their items. "Seen" are the other 30 %; "new" are as many test classes.
Every run takes the same steps and its last weights. A run is a line in the file: a second call goes on where the first
stopped, and prints the tables of what is there. In `--data three-digits` (two minutes on a core) training gets so far
that the certificate holds:

    python examples/metric_losses.py --data three-digits --out three-digits.jsonl

In `--data characters` training goes on until twenty characters of Omniglot are learned; in `--data features` a linear
layer is trained on vectors that `vicinal embed` wrote, such as those of the photographs of CUB, and what starts from
cross-entropy starts when that is sure of nearly every training item:

    python examples/metric_losses.py --data features --features cub.npz --out features.jsonl
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vicinal as vc
from vicinal.spaces import bounds, evaluate_by, label_metric_of, penultimate

METRIC = "metric_cross_entropy"
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "cross-entropy": ("cross_entropy", {}),
    "L1, weak-metric": ("weak_metric_cross_entropy", {}),
    "L2 k=.5 p=.75, metric": (METRIC, {"k": 0.5, "p": 0.75}),
    "L2 k=.9 p=.38, metric": (METRIC, {"k": 0.9, "p": 0.38}),
    "L2 k=.9 p=1, weak-metric": (METRIC, {"k": 0.9, "p": 1.0}),
    "L2 k=.5 p=.75, F=root": (METRIC, {"k": 0.5, "p": 0.75, "transform": "root"}),
    "L2 k=.5 p=.75 after cross-entropy": (METRIC, {"k": 0.5, "p": 0.75}),
    "L2 k=.9 p=.38 after cross-entropy": (METRIC, {"k": 0.9, "p": 0.38}),
    "L2 k=.005 p=.998, metric": (METRIC, {"k": 0.005, "p": 0.998}),
    "cross-entropy after cross-entropy": ("cross_entropy", {}),
    "proxy_anchor": ("proxy_anchor", {}),
    "normalised_softmax": ("normalised_softmax", {}),
}
# The usual smoothing, 1e-3, would leave the metric region at k = .9, p = .38.
SMOOTHING = 1e-4


@dataclass(frozen=True)
class Study:
    """What is trained on, and how long."""

    data: str
    steps: int
    classes: int = 100  # at most
    samples_per_class: int = 4
    learning_rate: float = 1e-3
    widths: tuple[int, ...] | None = (16, 32, 64, 128)  # of the network; None for vectors, which need none
    before: tuple[int, float] | None = None  # steps and rate of cross-entropy to start from; None: half of the steps


STUDIES = {
    "digits": Study("digits", 100),
    "glyphs": Study("glyphs", 150),
    "omniglot": Study("omniglot", 200),
    "three-digits": Study("digits", 150, classes=3, samples_per_class=8, learning_rate=3e-3),
    "characters": Study("omniglot", 1500, classes=20, learning_rate=3e-3),
    "features": Study("features", 3000, widths=None, before=(6000, 1e-2)),
}
PUBLISHED = ("digits", "glyphs", "omniglot")

loaded = functools.cache(vc.data.load)


def divided(study: Study, seed: int, features: str) -> tuple[vc.data.Dataset, vc.data.Dataset, vc.data.Dataset]:
    """Return what trains, the other items of its classes, and items of new classes."""
    sides = vc.split(loaded(features if study.data == "features" else study.data), "default")
    known, new = (side.of_classes(side.classes[: study.classes]) for side in (sides.train, sides.test))
    generator = np.random.default_rng(seed)
    held_out = np.zeros(len(known), dtype=bool)
    for label in known.classes:
        of_class = np.flatnonzero(known.labels == label)
        held_out[generator.permutation(of_class)[: round(0.3 * len(of_class))]] = True
    return known.subset(np.flatnonzero(~held_out)), known.subset(np.flatnonzero(held_out)), new


def run(name: str, row: str, seed: int, features: str, rate: float) -> dict[str, Any]:
    """Train once and score by the loss's own distance and by the cosine of the features before the head."""
    study = STUDIES[name]
    train, seen, new = divided(study, seed, features)
    loss, options = LOSSES[row]
    options = options | ({"smoothing": SMOOTHING} if loss == METRIC else {})
    network = {} if study.widths is None else {"backbone_options": {"widths": list(study.widths)}}
    settings: dict[str, Any] = {
        **network,
        "classes_per_batch": min(8, len(train.classes)),
        "samples_per_class": study.samples_per_class,
        "learning_rate": rate,
        "schedule": "cosine",
        "evaluate_every": 0,
        "seed": seed,
        "progress": False,
    }
    sides, steps = vc.Split(train, None, None, seed=seed), study.steps
    with tempfile.TemporaryDirectory() as folder:
        if row.endswith("after cross-entropy"):
            first, at = study.before or (steps // 2, rate)
            steps = steps if study.before else steps // 2
            vc.fit(sides, loss="cross_entropy", steps=first, **{**settings, "learning_rate": at}).save(folder)
            settings["start"] = folder
        embedder = vc.fit(sides, loss=loss, loss_options=options, steps=steps, **settings)
    before_head = penultimate(embedder)
    found: dict[str, Any] = {"data": name, "row": row, "seed": seed, "rate": rate}
    metric = label_metric_of(loss, options) if "metric_cross" in loss else None
    for side, items in (("seen", seen), ("new", new)):
        embeddings = embedder.encode(items)
        own = (
            vc.evaluate(embeddings, items.labels, also=[], intervals=None)
            if metric is None
            else evaluate_by(metric, embeddings, items.labels, confidence=None)
        )
        other = vc.evaluate(before_head.encode(items), items.labels, also=[], intervals=None)
        found |= {f"{side} own": own["MAP@R"], f"{side} features": other["MAP@R"], f"{side} P@1": own["P@1"]}
    if "cross" in loss:  # embeddings are class probabilities: the nearest label is the largest of them
        found["accuracy"] = float((embedder.encode(seen).argmax(1) == seen.labels).mean())
    if metric is not None:
        known, held_out = (
            bounds(metric, embedder.encode(items), torch.from_numpy(items.labels), compare=500)
            for items in (train, seen)
        )
        found |= {"epsilon": known.epsilon, "F(2M)": metric.between_labels, "metric": bool(metric.is_metric)}
        found |= {"certified": known.certified.double().mean().item(), "left out": known.left_out}
        found |= {"largest intra": known.largest_intra, "smallest inter": known.smallest_inter}
        found |= {"holds": known.holds, "seen epsilon": held_out.epsilon, "seen holds": held_out.holds}
    return found


def table(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Return Markdown: MAP@R in per cent, mean and standard deviation over seeds."""
    for name, study in STUDIES.items():
        of_data = [one for one in runs if one["data"] == name]
        if of_data:
            seeds = len({one["seed"] for one in of_data})
            yield f"\n**{name}**, {study.steps} steps, {seeds} seeds\n"
            yield "| loss | seen: own distance | seen: features | new: own distance | new: features | proved on train |"
            yield "|---|---|---|---|---|---|"
        for row in LOSSES:
            of_row = [one for one in of_data if one["row"] == row]
            if of_row:
                cells = [
                    _mean(one[f"{side} {by}"] for one in of_row)
                    for side in ("seen", "new")
                    for by in ("own", "features")
                ]
                proved = _mean(one["certified"] for one in of_row) if of_row[0].get("metric") else ""
                yield f"| {row} | {' | '.join(cells)} | {proved} |"
        yield from _bounds_table([one for one in of_data if "accuracy" in one])


def _bounds_table(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Return Markdown: accuracy and P@1 on other items of the training classes, and what is proved, seed by seed."""
    if runs:
        yield (
            "\n| loss | accuracy | P@1 | epsilon: train, seen | F(2M) | largest in a class, proved at most | "
            "smallest between classes, proved at least | certificate: train, seen |"
        )
        yield "|---|---|---|---|---|---|---|---|"
    for row in LOSSES:
        of_row = [one for one in runs if one["row"] == row]
        if not of_row:
            continue
        accuracy, first = (_mean(one[name] for one in of_row) for name in ("accuracy", "seen P@1"))
        proved = [""] * 5
        if "largest intra" in of_row[0]:
            worst = {name: max(one[name] for one in of_row) for name in ("epsilon", "seen epsilon", "largest intra")}
            apart, nearest = of_row[0]["F(2M)"], min(one["smallest inter"] for one in of_row)
            is_metric, count = of_row[0]["metric"], len(of_row)
            proved = [
                f"{worst['epsilon']:.4f}, {worst['seen epsilon']:.4f}",
                f"{apart:.4f}",
                f"{worst['largest intra']:.4f}, {2 * worst['epsilon']:.4f}",
                f"{nearest:.4f}, " + (f"{apart - 2 * worst['epsilon']:.4f}" if is_metric else "nothing"),
                ", ".join(f"{sum(one[name] for one in of_row)} of {count}" for name in ("holds", "seen holds"))
                if is_metric
                else "needs a metric",
            ]
        yield f"| {row} | {accuracy} | {first} | {' | '.join(proved)} |"


def _mean(values: Iterator[float]) -> str:
    shares = 100 * np.array(list(values))
    return f"{shares.mean():.1f} ± {shares.std(ddof=1):.1f}" if len(shares) > 1 else f"{shares.mean():.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("metric-losses.jsonl"))
    parser.add_argument("--data", nargs="+", default=list(PUBLISHED), choices=list(STUDIES))
    parser.add_argument("--rows", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    parser.add_argument("--features", default="cub.npz", help="of --data features: what `vicinal embed` wrote")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, help="of all rows, instead of the study's")
    arguments = parser.parse_args()
    done = [json.loads(line) for line in arguments.out.read_text().splitlines()] if arguments.out.exists() else []
    rates = {name: arguments.rate or study.learning_rate for name, study in STUDIES.items()}
    done = [one for one in done if one.get("rate", STUDIES[one["data"]].learning_rate) == rates[one["data"]]]
    known = {(one["data"], one["row"], one["seed"]) for one in done}
    for seed in range(arguments.seeds):
        for name in arguments.data:
            for row in arguments.rows:
                if (name, row, seed) not in known:
                    done.append(run(name, row, seed, arguments.features, rates[name]))
                    with arguments.out.open("a") as file:
                        file.write(json.dumps(done[-1]) + "\n")
    print("\n".join(table(done)))


if __name__ == "__main__":
    main()
