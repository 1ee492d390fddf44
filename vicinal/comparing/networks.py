"""Which network to compare losses on: scores of the untrained networks on this machine, on the training classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vicinal._util.text import counted, fraction, listed
from vicinal.backbones import BACKBONES, kept_weights
from vicinal.comparing.baselines import UntrainedNetworks
from vicinal.comparing.plan import Splits
from vicinal.data import Dataset, looks_of
from vicinal.data.splits import CHOOSING_FOLDS, CROSS_VALIDATION
from vicinal.evaluation import evaluate
from vicinal.runs._train import fit
from vicinal.runs.draft import FROM_SCRATCH, ON_FEATURES, PRETRAINED
from vicinal.runs.recipe import Recipe
from vicinal.stats.choice import level_with_best

__all__ = ["NetworkChoice", "choose_network"]

SCORE = "MAP@R"
SMALL = "convnet"
PROBE_STEPS = 300  # of a small network from scratch, enough to overtake pretrained features on drawings


class NetworkChoice(NamedTuple):
    """Settings of the network that scores best on the training classes, and the other networks that were scored.

    Attributes:
        settings: Settings of a recipe.
        others: Names of the other pretrained networks.
        note: Scores in a sentence.
    """

    settings: dict[str, Any]
    others: tuple[str, ...]
    note: str


def choose_network(
    data: Dataset,
    splits: Splits,
    suited: Mapping[str, Any],
    chosen: Mapping[str, Any],
    *,
    cache: Path | None,
    workers: int,
) -> NetworkChoice | None:
    """Choose a network for images by its score on the training classes; None if there is no choice.

    Pretrained networks whose weights are on this machine are scored as they are. If the images may be drawings, a small
    network is trained from scratch for a few hundred steps and scored on other classes of the training half. A network
    replaces the usual one only if it is better by more than a standard error over classes.

    Args:
        data: The whole dataset.
        splits: Its splits.
        suited: Settings that suit the data by the looks of its images.
        chosen: Settings that the user chose.
        cache: Folder of cached features.
        workers: Number of processes that decode images.
    """
    looks = looks_of(data)
    if looks is None or not looks.large or {"backbone", "backbone_options", "weights", "freeze"} & chosen.keys():
        return None
    here = [name for name in PRETRAINED if (source := BACKBONES[name].weights) and kept_weights(source) is not None]
    candidates = {name: Recipe.of({**ON_FEATURES, "backbone": name, "weights": "imagenet"}) for name in here}
    if not here or (len(here) == 1 and looks.photographs):
        return None
    networks = UntrainedNetworks(data, cache, workers)
    usual = Recipe.of({**suited, **chosen}).changed(select_on_test=False, fold=None, folds=None)
    if looks.photographs:
        queries = splits.of(usual.changed(protocol="default")).train
        about = "the training classes"
    else:
        split = splits.of(usual.changed(protocol=CROSS_VALIDATION, fold=0, folds=CHOOSING_FOLDS)).without_test()
        queries = split.validation or split.train
        about = f"{counted(len(queries.classes), 'training class')}, the small one after {PROBE_STEPS} steps"
    scores = {name: _by_class(networks.of(recipe).features(queries), queries) for name, recipe in candidates.items()}
    if not looks.photographs:
        settings = {**FROM_SCRATCH, "steps": PROBE_STEPS, "evaluate_every": 0}
        small = fit(split, Recipe.of({**settings, "backbone": SMALL}), cache=cache, workers=workers, progress=False)
        scores[SMALL] = _by_class(small.encode(queries), queries)
    best = _best(scores, queries)
    note = f"Untrained networks on {about}: {_words(scores)}. Losses are compared on {best}."
    settings = {} if best == SMALL else _features_of(best, chosen)
    return NetworkChoice(settings, () if best == SMALL else tuple(name for name in here if name != best), note)


def _features_of(name: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    settings = {**ON_FEATURES, "backbone": name, "weights": "imagenet"}
    return {setting: value for setting, value in settings.items() if setting not in chosen}


def _by_class(embeddings: npt.NDArray[np.float32], data: Dataset) -> npt.NDArray[np.float64]:
    """Return the score of each class when its items are searched among all items of the data."""
    means = evaluate(embeddings, data.labels, also=[], intervals=None).per_class(SCORE)
    return np.array([means.get(int(label), 0.0) for label in data.classes])


def _best(scores: Mapping[str, npt.NDArray[np.float64]], data: Dataset) -> str:
    names = list(scores)
    counts = np.bincount(data.labels, minlength=len(data.class_names))[data.classes]
    level = level_with_best(np.stack([scores[name] for name in names]), counts)
    return names[min(level)]


def _words(scores: Mapping[str, Sequence[float] | npt.NDArray[np.float64]]) -> str:
    return listed([f"{name} {fraction(float(np.mean(values)))}" for name, values in scores.items()])
