"""Chance-constrained proxies on real data: each loss with and without them, four folds, equal steps.

    VICINAL_DATA=../shared/data python examples/ccp_runs.py --out runs/ccp

The data folder holds `CUB_200_2011/`, `omniglot/` and `weights/mobilenet_v2-b0353104.pth`. Every finished run is one
line of `runs.jsonl`; started again, the script does what is missing and prints the tables of what there is.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ccp_trunk import some_of, told
from PIL import Image

import vicinal as vc
from vicinal.evaluation import Scores, class_distances, covering_radius
from vicinal.literature import published
from vicinal.literature.claims import with_and_without
from vicinal.references import greedy_k_center
from vicinal.spaces.cover_bounds import Bound, cover_bound
from vicinal.stats import seed_interval
from vicinal.training.feature_cache import frozen_features

FOLDS = 4
STUDIES = ("main", "warm", "batches", "search", "pools", "presets", "bounds", "steps")
LOSSES: dict[str, dict[str, Any]] = {
    "C1": {"loss": "contrastive_c1", "loss_options": {"threshold": 0.5}},
    "C2": {"loss": "contrastive_c2", "loss_options": {"positive_margin": 0.0, "negative_margin": 0.3841}},
    "MS": {
        "loss": "multi_similarity",
        "loss_options": {"positive_scale": 2.0, "negative_scale": 40.0, "threshold": 0.5},
    },
    "Triplet": {"loss": "triplet", "loss_options": {"margin": 0.0961}},
}
COMMON = {
    "normalisation": "ball",
    "optimiser": "adam",
    "classes_per_batch": 8,
    "samples_per_class": 4,
    "log_every": 100,
}
DATA: dict[str, dict[str, Any]] = {
    "omniglot": {
        "backbone": "convnet",
        "backbone_options": {"widths": [16, 32, 64], "size": 28},
        "dim": 64,
        "steps": 400,
        "evaluate_every": 20,
        "learning_rate": 1e-3,
    },
    "cub": {
        "backbone": "mobilenet_v2",
        "freeze": True,
        "copies": 4,
        "dim": 128,
        "head_start": "random",  # as published in docs/studies/ccp-heads.md; by default it would be PCA
        "steps": 500,
        "evaluate_every": 25,
        "learning_rate": 1e-3,
    },
}
XBM = {"memory": 25 * 32, "memory_start": 200}
# The study drew its pools; the authors' code, and the default since, has a queue.
CODE = {"preset": "code", "pool_order": "drawn"}
# With endless patience the first instance never ends: proxies on a cover of each class, not alternated.
VARIANTS: dict[str, dict[str, Any]] = {
    "alone": {},
    "CCP": {"ccp": CODE},
    "CCP paper": {"ccp": {**CODE, "preset": "paper"}},
    "proxies": {"ccp": {**CODE, "patience": 10**6}},
    "XBM": XBM,
}
# On from the model of the loss alone, slowly: proxies then start on embeddings that mean something.
WARM = ("alone, warm", "CCP, warm")
ON = {
    "omniglot": {"steps": 200, "evaluate_every": 10, "learning_rate": 1e-4},
    "cub": {"steps": 200, "evaluate_every": 10, "learning_rate": 1e-4},
}
PROXIMAL, PER_CLASS = (0.0, 2e-4, 1e-2, 1.0), (1, 4, 8)
POOLS = ((1, 1), (1, 12), (4, 1), (4, 12), (8, 1), (8, 12), (8, 24))  # proxies of each class, pool; (1, 1) is random
BATCHES = (4, 8, 16, 32)
COVER = 8  # items of each class that stand for all of it in the bounds


@dataclass(frozen=True)
class Cell:
    """One run."""

    data: str
    loss: str
    variant: str
    fold: int
    changes: dict[str, Any]

    @property
    def key(self) -> str:
        """What the run is called in the records."""
        return f"{self.data} | {self.loss} | {self.variant} | {self.fold}"


def cells(study: str, data: str) -> Iterator[Cell]:
    """Yield the runs of a study, all of one fold before the next."""
    for fold in range(FOLDS):
        if study == "main":
            for loss in LOSSES:
                for variant in ("alone", "CCP", "XBM") if loss in ("C1", "C2") else ("alone", "CCP"):
                    yield Cell(data, loss, variant, fold, VARIANTS[variant])
        elif study == "presets":
            for loss in LOSSES:
                for variant in ("CCP paper", "proxies"):
                    yield Cell(data, loss, variant, fold, VARIANTS[variant])
        elif study == "warm":
            for loss in LOSSES:
                for variant in WARM:
                    changes = {**VARIANTS[variant.removesuffix(", warm")], **ON[data]}
                    yield Cell(data, loss, variant, fold, changes)
        elif study == "batches":
            for classes in BATCHES:
                for variant in ("alone", "CCP"):
                    changes = {**VARIANTS[variant], **ON[data], "classes_per_batch": classes}
                    yield Cell(data, "C2", f"{variant}, warm, {4 * classes} per batch", fold, changes)
        elif study == "search":
            for weight in PROXIMAL:
                for count in PER_CLASS:
                    ccp = {**CODE, "pool": 16, "proximal_weight": weight, "proxies_per_class": count}
                    yield Cell(data, "C2", f"warm, {weight:g} x {count}", fold, {"ccp": ccp, **ON[data]})

        elif study == "pools":
            for count, pool in POOLS:
                ccp = {**CODE, "proxies_per_class": count, "pool": pool}
                yield Cell(data, "C2", f"warm, {count} of {pool}", fold, {"ccp": ccp, **ON[data]})


@functools.cache
def dataset(name: str) -> vc.data.Dataset:
    """Return CUB, or Omniglot in memory at 28 pixels: the first 240 training and 240 test characters."""
    data = vc.data.load(name)
    if name == "cub":
        return data
    train, test = data.with_role("train").classes, data.with_role("test").classes
    data = data.of_classes(np.concatenate([train[:240], test[:240]]))
    small = [np.asarray(data.open(i).convert("L").resize((28, 28), Image.Resampling.BOX)) for i in range(len(data))]
    return replace(data, items=np.stack(small))


def weights() -> str:
    """Return where the pretrained weights are."""
    return str(Path(os.environ["VICINAL_DATA"]) / "weights" / "mobilenet_v2-b0353104.pth")


@functools.cache
def test_features() -> np.ndarray:
    """Return the features of CUB's test items."""
    network = vc.Embedder("mobilenet_v2", dim=None, weights=weights())
    return frozen_features(network, vc.split(dataset("cub")).test, network.transform)[:, 0]


def place(folder: Path, data: str, loss: str, variant: str, fold: int) -> Path:
    """Return the folder of a run."""
    return folder / "runs" / f"{data}-{loss}-{variant}-{fold}".replace(" ", "_").replace(",", "")


def run(cell: Cell, folder: Path) -> dict[str, Any]:
    """Train one model and score it on the test classes; its embeddings are kept for the ensemble."""
    began = time.perf_counter()
    split = vc.split(dataset(cell.data), "reality-check", fold=cell.fold)
    pretrained = {"weights": weights()} if cell.data == "cub" else {}
    recipe = {**COMMON, **DATA[cell.data], **LOSSES[cell.loss], **pretrained, **cell.changes, "seed": cell.fold}
    if "warm" in cell.variant:
        recipe["start"] = str(place(folder, cell.data, cell.loss, "alone", cell.fold) / "model")
    work = place(folder, cell.data, cell.loss, cell.variant, cell.fold)
    model = vc.fit(split, folder=work, resume=True, progress=False, **recipe)
    if cell.data == "cub":
        with torch.inference_mode():
            embeddings = model.head(torch.from_numpy(test_features())).numpy()
    else:
        embeddings = model.encode(split.test)
    scores = score(embeddings, split.test.labels)
    np.savez(work / "test.npz", embeddings=embeddings, labels=split.test.labels, map_at_r=scores.per_query["MAP@R"])
    record = json.loads((work / "record.json").read_text())
    return {
        "key": cell.key,
        "best_step": record["best_step"],
        "validation": record["validation"]["MAP@R"],
        **{name: scores[name] for name in ("P@1", "P@R", "MAP@R")},
        "covering radius": covering_radius(embeddings, split.test.labels, distance="euclidean"),
        "inter-class distance": class_distances(embeddings, split.test.labels, distance="euclidean")[0],
        "instances": record.get("instances", []),
        "seconds": round(time.perf_counter() - began, 1),
    }


def score(embeddings: np.ndarray, labels: np.ndarray) -> Scores:
    """Score embeddings in the ball, where lengths count."""
    return vc.evaluate(embeddings, labels, distance="euclidean", also=[], intervals=None)


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """Return the runs that are done, by key."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line["key"]: line for line in map(json.loads, lines)}


def folds(found: dict[str, dict[str, Any]], data: str, loss: str, variant: str) -> list[dict[str, Any]]:
    """Return the four runs of a cell, or nothing where one is missing."""
    runs = [found.get(f"{data} | {loss} | {variant} | {fold}") for fold in range(FOLDS)]
    return [line for line in runs if line is not None] if all(runs) else []


def kept(folder: Path, data: str, loss: str, variant: str) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return MAP@R of each query, fold by fold, the joined embeddings, and the labels."""
    files = [np.load(place(folder, data, loss, variant, fold) / "test.npz") for fold in range(FOLDS)]
    joined = np.concatenate([file["embeddings"] for file in files], axis=1)
    lengths = np.linalg.norm(joined, axis=1, keepdims=True)
    return [file["map_at_r"] for file in files], joined / np.maximum(lengths, 1), files[0]["labels"]


def print_main(found: dict[str, dict[str, Any]], folder: Path, data: str, variants: Sequence[str]) -> None:
    """Print each variant beside the first of them."""
    dim = DATA[data]["dim"]
    print(f"\n### {data}: {', '.join(variants)}\n")
    print(
        f"| loss | variant | P@1 | MAP@R, {dim}-D | over the first variant, by class and fold | folds won | "
        f"MAP@R, joined {FOLDS * dim}-D | covering radius | inter-class | radius / inter | instances |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for loss in LOSSES:
        base = folds(found, data, loss, variants[0])
        for variant in variants:
            runs = folds(found, data, loss, variant)
            if not runs or not base:
                continue
            mean = {name: float(np.mean([line[name] for line in runs])) for name in runs[0] if name in NUMBERS}
            mine, joined, labels = kept(folder, data, loss, variant)
            together = score(joined, labels)["MAP@R"]
            gain, won = "", ""
            if variant != variants[0]:
                gain = told(mine, kept(folder, data, loss, variants[0])[0], labels)
                won = str(sum(one["MAP@R"] > two["MAP@R"] for one, two in zip(runs, base, strict=True)))
            solved = np.mean([len(line["instances"]) for line in runs])
            radius, inter = mean["covering radius"], mean["inter-class distance"]
            print(
                f"| {loss} | {variant} | {mean['P@1']:.4f} | {mean['MAP@R']:.4f} | {gain} | {won} | {together:.4f} | "
                f"{radius:.4f} | {inter:.4f} | {radius / inter:.3f} | {f'{solved:.1f}' if solved else ''} |"
            )


NUMBERS = ("P@1", "P@R", "MAP@R", "covering radius", "inter-class distance")


def print_instances(found: dict[str, dict[str, Any]], data: str, variant: str) -> None:
    """Print what happens from one instance to the next, on the validation classes, averaged over folds."""
    print(f"\n### {data}, {variant}: first and last converged instance of each run, validation classes\n")
    print("| loss | covering radius | inter-class | radius / inter | MAP@R | proxy spread at start | when converged |")
    print("|---|---|---|---|---|---|---|")
    for loss in LOSSES:
        runs = [line["instances"] for line in folds(found, data, loss, variant) if len(line["instances"]) > 1]
        if not runs:
            continue
        columns = []
        for name in ("covering radius", "inter-class distance", "ratio", "MAP@R"):
            ends = [[value(run[end], name) for run in runs] for end in (0, -1)]
            columns.append(f"{np.mean(ends[0]):.4f} -> {np.mean(ends[1]):.4f}")
        spreads = [
            np.mean([line[name] for run in runs for line in run]) for name in ("next proxy spread", "proxy spread")
        ]
        print(f"| {loss} ({len(runs)} runs) | {' | '.join(columns)} | {spreads[0]:.3f} | {spreads[1]:.3f} |")


def value(instance: dict[str, float], name: str) -> float:
    """Return a number of an instance, or the ratio of radius to distance."""
    if name == "ratio":
        return instance["covering radius"] / instance["inter-class distance"]
    return instance[name]


def print_batches(found: dict[str, dict[str, Any]], data: str) -> None:
    """Print the study of batch sizes."""
    print(f"\n### {data}: size of the batch (C2, MAP@R on test classes, mean and t interval over folds)\n")
    print("| batch | alone | CCP | difference |")
    print("|---|---|---|---|")
    for classes in BATCHES:
        both = [folds(found, data, "C2", f"{variant}, {4 * classes} per batch") for variant in WARM]
        if not all(both):
            continue
        alone, ccp = ([line["MAP@R"] for line in runs] for runs in both)
        low, high = seed_interval([one - two for one, two in zip(ccp, alone, strict=True)])
        print(
            f"| {4 * classes} | {np.mean(alone):.4f} | {np.mean(ccp):.4f} | "
            f"{np.mean(ccp) - np.mean(alone):+.4f} ({low:+.4f} to {high:+.4f}) |"
        )


def print_search(found: dict[str, dict[str, Any]], data: str) -> None:
    """Print the grid of proximal weights and proxies per class."""
    print(f"\n### {data}: proximal weight x proxies per class (C2-CCP, pool 16, MAP@R, validation / test)\n")
    print(f"| proximal weight | {' | '.join(map(str, PER_CLASS))} |")
    print("|---" * (1 + len(PER_CLASS)) + "|")
    for weight in PROXIMAL:
        entries = []
        for count in PER_CLASS:
            runs = folds(found, data, "C2", f"warm, {weight:g} x {count}")
            validation, test = (np.mean([line[name] for line in runs] or [np.nan]) for name in ("validation", "MAP@R"))
            entries.append(f"{validation:.4f} / {test:.4f}")
        print(f"| {weight:g} | {' | '.join(entries)} |")


def print_pools(found: dict[str, dict[str, Any]], data: str) -> None:
    """Print the ablation of proxies and pool: a pool of one puts proxies on items at random.

    The difference is to the loss alone, which goes on as long in batches of 32: the study of batches has it.
    """
    print(f"\n### {data}: proxies per class x pool (C2-CCP, MAP@R, means and t intervals over folds)\n")
    print("| proxies | pool | validation / test | test, less the loss alone | instances |")
    print("|---|---|---|---|---|")
    alone = [line["MAP@R"] for line in folds(found, data, "C2", "alone, warm, 32 per batch")]
    for count, pool in POOLS:
        if runs := folds(found, data, "C2", f"warm, {count} of {pool}"):
            validation, test = (np.mean([line[name] for line in runs]) for name in ("validation", "MAP@R"))
            instances = np.mean([len(line["instances"]) for line in runs])
            gap = ""
            if len(alone) == len(runs) > 1:
                gaps = [line["MAP@R"] - other for line, other in zip(runs, alone, strict=True)]
                low, high = seed_interval(gaps)
                gap = f"{np.mean(gaps):+.4f} ({low:+.4f} to {high:+.4f})"
            print(f"| {count} | {pool} | {validation:.4f} / {test:.4f} | {gap} | {instances:.1f} |")


def print_steps(found: dict[str, dict[str, Any]], data: str) -> None:
    """Print how many steps it takes to the best model with CCP and without, beside the paper's Table 3."""
    print(f"\n### {data}: steps to the best model, means over folds, beside Gurbuz et al. 2024, Table 3\n")
    print("| loss | alone | CCP | more | the paper: SOP, In-shop |")
    print("|---|---|---|---|---|")
    table = with_and_without(published(score="steps"), "ccp")
    for loss, settings in LOSSES.items():
        both = [folds(found, data, loss, variant) for variant in ("alone", "CCP")]
        if all(both):
            alone, ccp = (float(np.mean([line["best_step"] for line in runs])) for runs in both)
            theirs = [f"{claim.claimed:+.0%}" for claim in table if claim.other.method == settings["loss"]]
            print(f"| {loss} | {alone:.0f} | {ccp:.0f} | {ccp / alone - 1:+.0%} | {', '.join(theirs)} |")


def print_bounds(found: dict[str, dict[str, Any]], folder: Path, data: str) -> None:
    """Print what Proposition 4.2 says of the training items of each model, beside what is measured."""
    margin = LOSSES["C2"]["loss_options"]["negative_margin"]
    print(f"\n### {data}: the loss against {COVER} items of each class and against all (C2's loss, mean over folds)\n")
    print("| loss | variant | measured gap | radius of the cover | 3 radii + gap to the next item | error | sampling |")
    print("|---|---|---|---|---|---|---|")
    for loss in LOSSES:
        for variant in ("alone", "CCP"):
            if folds(found, data, loss, variant):
                known = [bound_of(folder, data, loss, variant, fold, margin) for fold in range(FOLDS)]
                names = ("gap", "radius", "cover", "error", "sampling")
                means = [f"{np.mean([getattr(bound, name) for bound in known]):.4f}" for name in names]
                print(f"| {loss} | {variant} | {' | '.join(means)} |")


def bound_of(folder: Path, data: str, loss: str, variant: str, fold: int, margin: float) -> Bound:
    """Return the bound of one model on its training items, whose cover is chosen by greedy k-Center."""
    train = vc.split(dataset(data), "reality-check", fold=fold).train
    model = vc.Embedder.load(place(folder, data, loss, variant, fold) / "model")
    if data == "cub":
        features = frozen_features(model, train, model.transform)[:, 0]
        with torch.inference_mode():
            embeddings = model.head(torch.from_numpy(features))
    else:
        embeddings = torch.from_numpy(model.encode(train))
    chosen = []
    for label in train.classes:
        members = np.flatnonzero(train.labels == label)
        chosen.append(members[greedy_k_center(embeddings[members].unsqueeze(0), COVER)[0].numpy()])
    return cover_bound(embeddings, train.labels, np.concatenate(chosen), negative_margin=margin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/ccp"))
    parser.add_argument("--data", type=some_of(*DATA), default="omniglot,cub")
    parser.add_argument("--studies", type=some_of(*STUDIES), default="main", help=f"of {', '.join(STUDIES)}")
    parser.add_argument("--losses", type=some_of(*LOSSES), default=",".join(LOSSES), help=f"of {', '.join(LOSSES)}")
    parser.add_argument("--folds", type=int, default=FOLDS, help="do only so many of them now")
    parser.add_argument("--tables", action="store_true", help="print what there is, run nothing")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "runs.jsonl"
    studies, names = given.studies, given.data
    todo = [
        cell
        for study in studies
        for name in names
        for cell in cells(study, name)
        if cell.fold < given.folds and cell.loss in given.losses
    ]
    for cell in todo if not given.tables else ():
        if cell.key not in finished(path):
            line = run(cell, given.out)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(line["key"], f"MAP@R {line['MAP@R']:.4f}", f"{line['seconds']} s", flush=True)
    found = finished(path)
    for name in names:
        if "main" in studies:
            print_main(found, given.out, name, list(VARIANTS))
            print_instances(found, name, "CCP")
        if "bounds" in studies:
            print_bounds(found, given.out, name)
        if "warm" in studies:
            print_main(found, given.out, name, WARM)
            print_instances(found, name, "CCP, warm")
        if "batches" in studies:
            print_batches(found, name)
        if "search" in studies:
            print_search(found, name)
        if "pools" in studies:
            print_pools(found, name)
        if "steps" in studies:  # of the runs of main
            print_steps(found, name)


if __name__ == "__main__":
    main()
