"""What neighbours tell about a collection: duplicates, wrong labels, outliers, clusters; and same or different."""

from __future__ import annotations

from vicinal.decisions.clusters import Clusters, propose_clusters
from vicinal.decisions.duplicates import DuplicateGroup, Link, find_duplicates, group_links
from vicinal.decisions.mislabelled import LabelDoubts, Suspect, doubt_labels, find_mislabelled
from vicinal.decisions.outliers import Outlier, find_outliers
from vicinal.decisions.pair_estimator import SameOrDifferent

__all__ = [
    "Clusters",
    "DuplicateGroup",
    "LabelDoubts",
    "Link",
    "Outlier",
    "SameOrDifferent",
    "Suspect",
    "doubt_labels",
    "find_duplicates",
    "find_mislabelled",
    "find_outliers",
    "group_links",
    "propose_clusters",
]
