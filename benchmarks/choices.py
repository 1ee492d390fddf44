"""Regret of the model that a comparison recommends: which rule chooses best among five losses and untrained networks?

    python benchmarks/choices.py features.npz --classes 40 --draws 10 --out choices.csv

A draw takes some classes of a dataset of feature vectors (arrays `X` and `y`), half of them for training. Every loss is
trained at three learning rates: on the folds of a cross-validation, on a split with few validation classes, and on all
training classes. The model that a rule chooses is scored on all other classes of the dataset, in groups as large as the
test half, so that the regret is not that of one small test. Every draw is a row for each rule.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from vicinal.comparing.plan import PANEL
from vicinal.data import Dataset, Split
from vicinal.evaluation import GroundTruth, evaluate
from vicinal.leaderboard.choice import RECORD
from vicinal.runs._train import fit
from vicinal.runs.build import with_fitting_batches
from vicinal.runs.draft import ON_FEATURES, budgeted
from vicinal.runs.paper_settings import paper_settings_of
from vicinal.runs.recipe import Recipe
from vicinal.stats.choice import choose_setting, level_with_best
from vicinal.training.state import Hook
from vicinal.tuning.ladder import at_rate, ladder

FOLDS, PER_CLASS, MOST_GROUPS = 4, 16, 7
LOSSES = [method.loss for method in PANEL]
UNTRAINED = ("untrained", "PCA")
Rows = np.ndarray
Embed = Callable[[Rows], np.ndarray]


class Watch(Hook):
    """Calls a function with the model at every evaluation."""

    only_watches = True

    def __init__(self, look: Callable[[Embed], Any], features: np.ndarray) -> None:
        self._look, self._features, self.seen = look, features, list[Any]()

    def after_evaluation(self, state: Any, scores: Mapping[str, float]) -> None:
        """Look at the model."""
        state.model.eval()
        with torch.no_grad():
            self.seen.append(self._look(lambda rows: state.model(torch.from_numpy(self._features[rows])).numpy()))


class Draw:
    """Some classes of a dataset, half of them for training, and groups of others to score models on."""

    def __init__(self, features: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> None:
        rng = np.random.default_rng([seed, classes])
        order = rng.permutation(np.unique(labels))
        half = (classes + 1) // 2
        self.features, self.labels, self.seed = features, labels, seed
        self.training, rest = order[:half], order[half:]
        size = classes - half
        starts = range(0, len(rest) - size + 1, size)
        self._some = {name: rng.permutation(np.flatnonzero(labels == name))[:PER_CLASS] for name in order}
        self.groups = [self.rows(rest[start : start + size]) for start in starts][: MOST_GROUPS + 1]
        self.folds = np.array_split(rng.permutation(self.training), FOLDS)
        self.few = rng.permutation(self.training)[: max(3, round(0.1 * half))]

    def rows(self, classes: np.ndarray) -> Rows:
        """Return the rows of some classes."""
        return np.sort(np.concatenate([self._some[name] for name in classes]))

    def population(self, embed: Embed) -> float:
        """Return the mean MAP@R over groups of classes that were not trained on."""
        return float(np.mean([self._score(embed(rows), rows, rows).mean() for rows in self.groups]))

    def validation(self, embed: Embed, held_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the MAP@R of held-out classes among themselves, and among all training classes."""
        queries, every = self.rows(held_out), self.rows(self.training)
        return self._score(embed(queries), queries, queries), self._score(embed(every), queries, every)

    def _score(self, embeddings: np.ndarray, queries: Rows, searched: Rows) -> np.ndarray:
        own = np.searchsorted(searched, queries)
        truth = GroundTruth(self.labels[queries], sequences=queries)
        gallery = (embeddings, GroundTruth(self.labels[searched], sequences=searched))
        means = evaluate(embeddings[own], truth, gallery=gallery, also=[], intervals=None).per_class("MAP@R")
        return np.array([means[int(name)] for name in np.unique(self.labels[queries])])

    def train(self, loss: str, rate: int, classes: np.ndarray, look: Callable[[Embed], Any]) -> list[Any]:
        """Train a head at one of three learning rates, as a comparison does, and look at it ten times."""
        data = self._dataset(self.rows(classes))
        name, _, miner = loss.partition("+")
        settings = {
            setting: value for setting, value in ON_FEATURES.items() if setting not in ("freeze", "images", "copies")
        }
        settings |= {"loss": name, "backbone": "linear", "head_start": "pca", "seed": self.seed}
        recipe = Recipe.of(settings | ({"mining": miner} if miner else {}))
        recipe = budgeted(with_fitting_batches(recipe, data), data, {})
        recipe = paper_settings_of(recipe, data, {"loss", "mining"}).recipe
        recipe = at_rate(recipe, ladder(recipe.training.learning_rate)[rate])
        watch = Watch(look, self.features)
        few = self.rows(np.setdiff1d(np.unique(self.labels), classes)[:3])  # so that there are evaluations
        fit(Split(data, self._dataset(few), None), recipe, hooks=[watch], progress=False)
        return watch.seen

    def untrained(self, kind: str, classes: np.ndarray) -> Embed:
        """Return the features as they are, or their principal components on some classes."""
        if kind == "untrained":
            return lambda rows: self.features[rows]
        known = self.features[self.rows(classes)]
        mean = known.mean(axis=0)
        axes = np.linalg.svd(known - mean, full_matrices=False)[2]
        return lambda rows: (self.features[rows] - mean) @ axes.T

    def _dataset(self, rows: Rows) -> Dataset:
        names, codes = np.unique(self.labels[rows], return_inverse=True)
        return Dataset(items=self.features[rows], labels=codes, class_names=tuple(map(str, names)), name="draw")


def rules(draw: Draw) -> dict[str, tuple[float, float, float]]:
    """Return for each rule the score of its choice, its regret, and the correlation of validation with test scores."""
    held = [(np.setdiff1d(draw.training, fold), fold) for fold in draw.folds]
    few = (np.setdiff1d(draw.training, draw.few), draw.few)
    old, old_test = dict[str, float](), dict[str, float]()
    alone, among, test = dict[str, np.ndarray](), dict[str, np.ndarray](), dict[str, float]()
    for kind in UNTRAINED:
        old[kind] = float(draw.validation(draw.untrained(kind, few[0]), few[1])[0].mean())
        by_fold = [draw.validation(draw.untrained(kind, train), fold) for train, fold in held]
        alone[kind], among[kind] = (np.concatenate(parts) for parts in zip(*by_fold, strict=True))
        test[kind] = old_test[kind] = draw.population(draw.untrained(kind, draw.training))
    for loss in LOSSES:
        seen = {
            rate: draw.train(
                loss, rate, few[0], lambda embed: (draw.validation(embed, few[1])[0].mean(), draw.population(embed))
            )
            for rate in range(3)
        }
        old[loss], old_test[loss] = max(point for curve in seen.values() for point in curve)
        tried = {
            rate: [
                draw.train(loss, rate, train, lambda embed, fold=fold: draw.validation(embed, fold))
                for train, fold in held
            ]
            for rate in (1, 0, 2)
        }
        final = {rate: draw.train(loss, rate, draw.training, draw.population)[-1] for rate in range(3)}
        for scores, which in ((alone, 0), (among, 1)):
            last = {rate: np.concatenate([fold[-1][which] for fold in folds])[None] for rate, folds in tried.items()}
            chosen = choose_setting(last, np.full(len(draw.training), PER_CLASS))
            scores[loss] = chosen.by_class
            if which:
                test[loss] = final[chosen.setting]
    found = {"few validation classes, best step": _outcome(old, old_test, max(old, key=lambda name: old[name]))}
    for rule, scores in (("folds alone", alone), ("folds among training items", among)):
        means = {name: float(values.mean()) for name, values in scores.items()}
        found[rule] = _outcome(means, test, max(means, key=lambda name: means[name]))
    names = list(among)
    level = level_with_best(np.stack([among[name] for name in names]), np.full(len(draw.training), PER_CLASS))
    simplest = min((names[index] for index in level), key=lambda name: (name not in UNTRAINED, RECORD.get(name, 1.0)))
    found["folds among training items, simplest of level ones"] = _outcome(means, test, simplest)
    for name in ("multi_similarity+valid_triplets", *UNTRAINED):
        found[f"always {name}"] = (test[name], max(test.values()) - test[name], float("nan"))
    return found


def _outcome(validation: Mapping[str, float], test: Mapping[str, float], choice: str) -> tuple[float, float, float]:
    correlation = spearmanr([validation[loss] for loss in LOSSES], [test[loss] for loss in LOSSES])[0]
    return test[choice], max(test.values()) - test[choice], float(correlation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path, help="file of arrays X (features) and y (labels)")
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--out", type=Path, default=None, help="CSV file that rows are appended to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    arrays = np.load(options.features)
    features, labels = arrays["X"].astype(np.float32), arrays["y"].astype(np.int64)
    file = sys.stdout if options.out is None else options.out.open("a", newline="")
    rows = csv.writer(file)
    for seed in range(options.first, options.first + options.draws):
        for rule, outcome in rules(Draw(features, labels, options.classes, seed)).items():
            values = [f"{value:.4f}" for value in outcome]
            rows.writerow([options.features.stem, options.classes, seed, rule, *values])
        file.flush()


if __name__ == "__main__":
    main()
