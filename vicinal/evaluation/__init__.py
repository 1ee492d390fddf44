"""Evaluation of embeddings: exact neighbours, retrieval, clustering and geometry scores, with intervals.

`evaluate(embeddings, labels)` does everything and returns `Scores`; the functions it is built from can be used on
their own. Nothing here depends on models or training.
"""

from __future__ import annotations

from vicinal.evaluation._evaluate import Neighbourhood, evaluate
from vicinal.evaluation.clustering import cluster_scores, k_means, pairwise_f1
from vicinal.evaluation.geometry import (
    alignment,
    class_distances,
    collapse_warning,
    covering_radius,
    effective_rank,
    geometry_scores,
    hubness,
    spectral_decay,
    uniformity,
)
from vicinal.evaluation.identification import FewShot, Identification, few_shot_accuracy, identify
from vicinal.evaluation.items import GroundTruth
from vicinal.evaluation.scores import Scores, chance_scores
from vicinal.evaluation.shift import Shift, check_shift
from vicinal.evaluation.sizes import SizeScores, concatenate, score_sizes
from vicinal.evaluation.verification import Verification, verify
from vicinal.stats.intervals import Bootstrap

__all__ = [
    "Bootstrap",
    "FewShot",
    "GroundTruth",
    "Identification",
    "Neighbourhood",
    "Scores",
    "Shift",
    "SizeScores",
    "Verification",
    "alignment",
    "chance_scores",
    "check_shift",
    "class_distances",
    "cluster_scores",
    "collapse_warning",
    "concatenate",
    "covering_radius",
    "effective_rank",
    "evaluate",
    "few_shot_accuracy",
    "geometry_scores",
    "hubness",
    "identify",
    "k_means",
    "pairwise_f1",
    "score_sizes",
    "spectral_decay",
    "uniformity",
    "verify",
]
