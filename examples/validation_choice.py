"""Chosen on validation classes, or on the test itself: what the choice is worth, and does validation tell what is best?

    VICINAL_DATA=../shared/data python examples/validation_choice.py --out validation-choice.jsonl

The questions of the thesis "Metric learning: a deep dive" (2020, chapter 5): which share of the training classes is to
validate, and whether the folds that do well on their validation classes do well on the test. Every run is scored on the
test classes wherever it is on its validation classes; nothing of that is used in training. A run is a line in the file:
a second call goes on where the first stopped, and prints the tables of what is there.

- The step that validation chooses against the best on test (the leak of papers that report their best test epoch),
  for several shares, each with as many draws of validation classes as there are seeds.
- Over the folds of a k-fold protocol: Pearson's correlation of validation and test, each fold at its chosen step.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import vicinal as vc
from vicinal.cli.options import parse_pairs
from vicinal.comparing.contestants import drafts
from vicinal.data import Dataset
from vicinal.runs.paper_settings import paper_settings_of
from vicinal.runs.recipe import Recipe, read_tables
from vicinal.runs.validation import validation_scores
from vicinal.stats import seed_interval
from vicinal.training.state import Hook, TrainingState

REACH = 1.959964  # of a normal distribution, for 95 %


class TestWatch(Hook):
    """Scores the test classes at every evaluation, and changes nothing."""

    def __init__(self, test: Dataset, recipe: Recipe) -> None:
        self.test, self.recipe = test, recipe
        self.curve: list[tuple[int, float, float]] = []  # step, validation, test

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> None:
        """Remember both scores."""
        found = validation_scores(state.model, self.test, self.recipe).scores  # type: ignore[arg-type]  # what is trained
        name = state.settings.score
        self.curve.append((state.step, float(scores[name]), found[name]))


def run(recipe: Recipe, data: Dataset) -> dict[str, Any]:
    """Train once; return both curves."""
    split = recipe.split(data)
    assert split.test is not None
    watch = TestWatch(split.test, recipe)
    vc.train(recipe, data=data, hooks=[watch], progress=False)
    return {
        "curve": watch.curve,
        "validated": 0 if split.usable_validation is None else len(split.usable_validation.classes),
    }


def chosen(one: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return validation and test at the step that validation chooses, and the best on test.

    Example:
        >>> chosen({"curve": [(1, 0.5, 0.1), (2, 0.6, 0.3), (3, 0.4, 0.4)]})
        (0.6, 0.3, 0.4)
    """
    _, validation, test = max(one["curve"], key=lambda point: point[1])
    return validation, test, max(point[2] for point in one["curve"])


def pearson(first: Sequence[float], second: Sequence[float]) -> str:
    """Return Pearson's correlation with its interval (Fisher's), in words."""
    value = float(np.corrcoef(first, second)[0, 1])
    if len(first) < 5 or abs(value) == 1:
        return f"{value:+.2f}"
    middle, reach = math.atanh(value), REACH / math.sqrt(len(first) - 3)
    return f"{value:+.2f} ({math.tanh(middle - reach):+.2f} to {math.tanh(middle + reach):+.2f})"


def tables(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return Markdown: shares, then folds."""
    shares = [one for one in runs if one["share"] is not None]
    if shares:
        yield "| loss | train/validate | classes | validation | test, chosen on validation | best on test | leak |"
        yield "|---|---|---|---|---|---|---|"
    for loss, share in dict.fromkeys((one["loss"], one["share"]) for one in shares):
        of_cell = [one for one in shares if (one["loss"], one["share"]) == (loss, share)]
        validation, test, best = np.array([chosen(one) for one in of_cell]).T
        parts = f"{100 - 100 * share:.0f}/{100 * share:.0f} | {of_cell[0]['validated']}"
        yield (
            f"| {loss} | {parts} | {_mean(validation)} | {_mean(test)} | {_mean(best)} | "
            f"{(best - test).mean():.4f} (at most {(best - test).max():.4f}) |"
        )
    folds = [one for one in runs if one["fold"] is not None]
    if folds:
        yield "\n| loss | folds | validation | test | Pearson over folds | test of the best on validation | best test |"
        yield "|---|---|---|---|---|---|---|"
    for loss in dict.fromkeys(one["loss"] for one in folds):
        validation, test, _ = np.array([chosen(one) for one in folds if one["loss"] == loss]).T
        told = pearson(validation, test) if len(test) > 2 else ""
        yield (
            f"| {loss} | {len(test)} | {validation.min():.4f} to {validation.max():.4f} | {_mean(test)} | {told} | "
            f"{test[validation.argmax()]:.4f} | {test.max():.4f} |"
        )


def _mean(values: np.ndarray) -> str:
    """Return the mean, with its interval over seeds or folds where there are several."""
    if len(values) < 2:
        return f"{values.mean():.4f}"
    interval = seed_interval(values.tolist())
    return f"{values.mean():.4f} ± {(interval.high - interval.low) / 2:.4f}"


def recipes(given: argparse.Namespace, data: Dataset) -> Iterator[tuple[dict[str, Any], Recipe]]:
    """Yield what names a run, and its recipe: each loss in the batches of its paper, with the rate that is given."""
    base = {**read_tables(given.recipe), "data": given.data or data.name}
    rates = dict(zip(given.losses, given.rates, strict=True)) if given.rates else {}
    for name, entry in zip(given.losses, drafts(given.losses, base, parse_pairs(given.option, "-o")), strict=True):
        rate = {"learning_rate": float(rates[name])} if name in rates else {}
        plain = entry.recipe.changed({**rate, "fold": None, "folds": None, "protocol": "fixed-validation"})
        for seed in range(given.seeds):
            for share in given.shares:
                made = plain.changed(validation=share, seed=seed)
                own = paper_settings_of(made, made.split(data).train, ["validation"]).recipe
                yield {"loss": name, "share": share, "fold": None, "seed": seed}, own
        for fold in range(given.folds):
            made = plain.changed(protocol="k-fold", folds=given.folds, fold=fold)
            own = paper_settings_of(made, made.split(data).train, ["protocol"]).recipe
            yield {"loss": name, "share": None, "fold": fold, "seed": 0}, own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("validation-choice.jsonl"))
    parser.add_argument("--recipe", default="cub-frozen", help="the conditions, by name or as a file")
    parser.add_argument("--data", help="if not the recipe's")
    parser.add_argument("--losses", nargs="+", default=["multi_similarity", "proxy_anchor"])
    parser.add_argument("--rates", nargs="*", default=[], help="learning rates, one for each loss")
    parser.add_argument("--shares", nargs="*", type=float, default=[0.05, 0.1, 0.2, 0.3])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("-o", "--option", action="append", default=[], help="any other setting: name=value")
    given = parser.parse_args()
    data = vc.data.load(given.data or read_tables(given.recipe)["data"])
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    known = {tuple(one[name] for name in ("loss", "share", "fold", "seed")) for one in done}
    for named, recipe in recipes(given, data):
        if tuple(named.values()) not in known:
            done.append({**named, **run(recipe, data)})
            with given.out.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
    print("\n".join(tables(done)))


if __name__ == "__main__":
    main()
