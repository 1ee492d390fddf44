"""Evaluation of embeddings: exact neighbours, retrieval, clustering, geometry, and how sure it all is.

`evaluate(embeddings, labels)` does everything and returns `Scores`; the functions it is made of can be used by
themselves. Nothing here knows of models or training.
"""

from __future__ import annotations

from vicinal.evaluation.chance import chance_scores
from vicinal.evaluation.clustering import cluster_scores, k_means, pairwise_f1
from vicinal.evaluation.covering import covering_radius
from vicinal.evaluation.ensemble import concatenate
from vicinal.evaluation.evaluator import evaluate
from vicinal.evaluation.geometry import (
    alignment,
    class_distances,
    collapse_warning,
    effective_rank,
    geometry_scores,
    hubness,
    spectral_decay,
    uniformity,
)
from vicinal.evaluation.scores import Scores

__all__ = [
    "Scores",
    "alignment",
    "chance_scores",
    "class_distances",
    "cluster_scores",
    "collapse_warning",
    "concatenate",
    "covering_radius",
    "effective_rank",
    "evaluate",
    "geometry_scores",
    "hubness",
    "k_means",
    "pairwise_f1",
    "spectral_decay",
    "uniformity",
]
