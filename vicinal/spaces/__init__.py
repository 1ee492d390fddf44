"""Losses as distances: which losses are metrics, of what kind, and what this implies for nearest neighbours."""

from __future__ import annotations

from vicinal.objectives.label_gap import max_classes
from vicinal.spaces.any_distance import evaluate_by
from vicinal.spaces.axioms import MetricVerdict, Triple, audit_distance
from vicinal.spaces.condition import k_max, options_for, p_max
from vicinal.spaces.distances import DISTANCES, angular, audit, squared_sine
from vicinal.spaces.domains import DOMAINS, Domain, cube, simplex, space, sphere
from vicinal.spaces.figures import audit_figures, pair_distances, slack_surface, worst_triple
from vicinal.spaces.label_metric import Bounds, LabelMetric, bounds, label_metric_of
from vicinal.spaces.run_audit import RunAudit, audit_run, penultimate

__all__ = [
    "DISTANCES",
    "DOMAINS",
    "Bounds",
    "Domain",
    "LabelMetric",
    "MetricVerdict",
    "RunAudit",
    "Triple",
    "angular",
    "audit",
    "audit_distance",
    "audit_figures",
    "audit_run",
    "bounds",
    "cube",
    "evaluate_by",
    "k_max",
    "label_metric_of",
    "max_classes",
    "options_for",
    "p_max",
    "pair_distances",
    "penultimate",
    "simplex",
    "slack_surface",
    "space",
    "sphere",
    "squared_sine",
    "worst_triple",
]
