"""The metric-space view: which losses are distances, of what kind, and what follows for neighbours."""

from __future__ import annotations

from vicinal.spaces.axioms import audit_distance
from vicinal.spaces.bounds import Bounds, bounds
from vicinal.spaces.condition import k_max, p_max
from vicinal.spaces.distances import DISTANCES, angular, audit, squared_sine
from vicinal.spaces.domains import DOMAINS, Domain, cube, simplex, space, sphere
from vicinal.spaces.label_metric import LabelMetric, label_metric_of
from vicinal.spaces.nearest import evaluate_by
from vicinal.spaces.triples import Triple
from vicinal.spaces.verdict import Verdict

__all__ = [
    "DISTANCES",
    "DOMAINS",
    "Bounds",
    "Domain",
    "LabelMetric",
    "Triple",
    "Verdict",
    "angular",
    "audit",
    "audit_distance",
    "bounds",
    "cube",
    "evaluate_by",
    "k_max",
    "label_metric_of",
    "p_max",
    "simplex",
    "space",
    "sphere",
    "squared_sine",
]
