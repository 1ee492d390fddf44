"""n-way k-shot accuracy: new classes, told by a few examples each."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from vicinal.errors import InputError
from vicinal.evaluation.scored_items import as_scored_items
from vicinal.neighbours.checked_inputs import ArrayLike, Labels
from vicinal.statistics.intervals import Interval

__all__ = ["FewShot", "few_shot_accuracy"]


class FewShot(NamedTuple):
    """The mean accuracy over episodes, its interval over episodes, and how many there were."""

    accuracy: float
    interval: Interval
    episodes: int


def few_shot_accuracy(
    embeddings: ArrayLike,
    labels: Labels,
    *,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    episodes: int = 600,
    distance: str = "cosine",
    confidence: float = 0.95,
    seed: int = 0,
) -> FewShot:
    """Draw episodes of a few classes with a few examples each, and name other items of them by the nearest class mean.

    Args:
        embeddings: One row per item.
        labels: One per row.
        ways: Classes of an episode.
        shots: Examples of each class.
        queries: Other items of each class that are named, at most.
        episodes: How many.
        distance: "cosine" (means of unit vectors) or "euclidean".
        confidence: Of the interval.
        seed: Of the draws.

    Example:
        >>> points = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]
        >>> few_shot_accuracy(points, ["a", "a", "b", "b"], ways=2, episodes=10).accuracy
        1.0
    """
    if min(ways - 1, shots, queries, episodes) < 1:
        raise InputError(
            f"There must be 2 ways and 1 shot, query and episode at least; got {ways}, {shots}, {queries}, {episodes}."
        )
    items = as_scored_items(embeddings, labels, distance=distance)
    points, codes = items.queries.scaled(slice(None)).numpy(), items.codes.numpy()
    members = [np.flatnonzero(codes == code) for code in range(len(items.classes))]
    members = [places for places in members if len(places) > shots]
    if len(members) < ways:
        raise InputError(
            f"{ways} ways of {shots} shots need {ways} classes of at least {shots + 1} items; there are {len(members)}."
        )
    rng = np.random.default_rng(seed)
    shares = np.empty(episodes)
    for episode in range(episodes):
        drawn = [rng.permutation(members[code]) for code in rng.choice(len(members), ways, replace=False)]
        means = np.stack([points[places[:shots]].mean(axis=0) for places in drawn])
        asked = [places[shots : shots + queries] for places in drawn]
        rows = points[np.concatenate(asked)]
        if distance == "cosine":
            lengths = np.linalg.norm(means, axis=1, keepdims=True)
            near = rows @ np.divide(means, lengths, out=np.zeros_like(means), where=lengths > 0).T
        else:
            near = -np.square(rows[:, None] - means).sum(axis=2)
        truth = np.repeat(np.arange(ways), [len(places) for places in asked])
        shares[episode] = np.mean(near.argmax(axis=1) == truth)
    mean, error = float(shares.mean()), float(shares.std(ddof=1) / math.sqrt(episodes)) if episodes > 1 else math.nan
    half = NormalDist().inv_cdf((1 + confidence) / 2) * error
    return FewShot(mean, Interval(mean - half, mean + half), episodes)
