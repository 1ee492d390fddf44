"""References: the vectors that anchors are compared with."""

from __future__ import annotations

from vicinal.references.batch import Batch, View
from vicinal.references.cover import Cover, greedy_k_center
from vicinal.references.hierarchy import Hierarchy, hierarchical_proxies
from vicinal.references.memory import Memory
from vicinal.references.one_hot import OneHot
from vicinal.references.proxies import Proxies

__all__ = [
    "Batch",
    "Cover",
    "Hierarchy",
    "Memory",
    "OneHot",
    "Proxies",
    "View",
    "greedy_k_center",
    "hierarchical_proxies",
]
