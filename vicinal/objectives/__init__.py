"""Objectives: pure functions of (matrix, positive, negative), one file each, and the table of their names."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from vicinal._util.code import NO_TRUST, Trust, find
from vicinal.objectives.arcface import arcface
from vicinal.objectives.binomial_deviance import binomial_deviance
from vicinal.objectives.circle import circle
from vicinal.objectives.contrastive import contrastive
from vicinal.objectives.contrastive_c1 import contrastive_c1
from vicinal.objectives.contrastive_c2 import contrastive_c2
from vicinal.objectives.cosface import cosface
from vicinal.objectives.cross_entropy import cross_entropy
from vicinal.objectives.fast_ap import fast_ap
from vicinal.objectives.lifted_structure import lifted_structure
from vicinal.objectives.lmnn import lmnn
from vicinal.objectives.margin import margin
from vicinal.objectives.mcml import mcml
from vicinal.objectives.metric_cross_entropy import metric_cross_entropy
from vicinal.objectives.multi_similarity import multi_similarity, raw
from vicinal.objectives.n_pair import n_pair
from vicinal.objectives.nca import nca
from vicinal.objectives.normalised_softmax import normalised_softmax
from vicinal.objectives.nt_xent import nt_xent
from vicinal.objectives.proxy_anchor import proxy_anchor
from vicinal.objectives.proxy_gram import proxy_gram
from vicinal.objectives.proxy_nca import proxy_nca
from vicinal.objectives.proxy_nca_pp import proxy_nca_pp
from vicinal.objectives.proxy_repulsion import proxy_repulsion
from vicinal.objectives.regularisers import centre_merging, embedding_norm
from vicinal.objectives.smooth_ap import smooth_ap
from vicinal.objectives.soft_triple import soft_triple
from vicinal.objectives.soft_triplet import soft_triplet
from vicinal.objectives.supervised_contrastive import supervised_contrastive
from vicinal.objectives.traits import Traits, objective, options_of, traits_of, traits_or_default
from vicinal.objectives.triplet import triplet
from vicinal.objectives.weak_metric_cross_entropy import weak_metric_cross_entropy

OBJECTIVES: dict[str, Callable[..., Tensor]] = {
    "arcface": arcface,
    "binomial_deviance": binomial_deviance,
    "circle": circle,
    "contrastive": contrastive,
    "contrastive_c1": contrastive_c1,
    "contrastive_c2": contrastive_c2,
    "cosface": cosface,
    "cross_entropy": cross_entropy,
    "fast_ap": fast_ap,
    "lifted_structure": lifted_structure,
    "lmnn": lmnn,
    "margin": margin,
    "metric_cross_entropy": metric_cross_entropy,
    "mcml": mcml,
    "multi_similarity": multi_similarity,
    "n_pair": n_pair,
    "nca": nca,
    "normalised_softmax": normalised_softmax,
    "nt_xent": nt_xent,
    "proxy_anchor": proxy_anchor,
    "proxy_gram": proxy_gram,
    "proxy_nca": proxy_nca,
    "proxy_nca_pp": proxy_nca_pp,
    "proxy_repulsion": proxy_repulsion,
    "smooth_ap": smooth_ap,
    "soft_triple": soft_triple,
    "soft_triplet": soft_triplet,
    "supervised_contrastive": supervised_contrastive,
    "triplet": triplet,
    "weak_metric_cross_entropy": weak_metric_cross_entropy,
}

ALIASES: dict[str, str] = {
    "raw": "multi_similarity",
    "info_nce": "nt_xent",
    "supcon": "supervised_contrastive",
}


def without_alias(name: str) -> str:
    """Return the name of a loss in `OBJECTIVES`; a name that is not an alias is returned unchanged.

    Example:
        >>> without_alias("supcon"), without_alias("triplet")
        ('supervised_contrastive', 'triplet')
    """
    return ALIASES.get(name, name)


def find_objective(name: str, trust: Trust = NO_TRUST) -> Callable[..., Tensor]:
    """Return a loss by name: one of `OBJECTIVES`, one of an installed package, or a trusted `module:name`.

    Example:
        >>> find_objective("supcon").__name__
        'supervised_contrastive'
    """
    function: Callable[..., Tensor] = find("loss", without_alias(name), OBJECTIVES, trust)
    return function


__all__ = [
    "ALIASES",
    "OBJECTIVES",
    "Traits",
    "centre_merging",
    "embedding_norm",
    "find_objective",
    "objective",
    "options_of",
    "raw",
    "traits_of",
    "traits_or_default",
    "without_alias",
    *OBJECTIVES,
]
