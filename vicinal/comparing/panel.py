"""The ways that are compared where none is named: few, and different in kind."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PANEL", "Way", "panel_in_words"]


class Way(NamedTuple):
    """A loss as `compare` takes it, what kind it is of, and what the literature says of it."""

    loss: str
    kind: str
    literature: str


PANEL: tuple[Way, ...] = (
    Way(
        "contrastive",
        "pairs",
        "the oldest and simplest; well tuned it is hardly behind any later loss (Musgrave et al. 2020).",
    ),
    Way(
        "triplet+semi_hard",
        "triplets",
        "the customary choice since FaceNet (Schroff et al. 2015); sensitive to its learning rate.",
    ),
    Way(
        "multi_similarity+valid_triplets",
        "all pairs, weighed",
        "weighs pairs by their neighbours (Wang et al. 2019); among the best of the losses on pairs.",
    ),
    Way(
        "proxy_anchor",
        "proxies",
        "a learned vector for each class (Kim et al. 2020); learns fast, and wants many classes in a batch.",
    ),
    Way(
        "normalised_softmax",
        "classification",
        "a classifier whose weights are class vectors (Zhai and Wu 2019); a strong baseline that needs no mining.",
    ),
)


def panel_in_words() -> list[str]:
    """A line on each way of the panel."""
    return [f"{way.loss} ({way.kind}): {way.literature}" for way in PANEL]
