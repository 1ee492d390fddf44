"""What neighbours tell about a collection: duplicates, wrong labels, outliers, clusters. Functions of arrays."""

from __future__ import annotations

from vicinal.decisions.clusters import Clusters, propose_clusters
from vicinal.decisions.duplicates import DuplicateGroup, Link, find_duplicates, group_links
from vicinal.decisions.mislabelled import LabelDoubts, Suspect, doubt_labels, find_mislabelled
from vicinal.decisions.outliers import Outlier, find_outliers

__all__ = [
    "Clusters",
    "DuplicateGroup",
    "LabelDoubts",
    "Link",
    "Outlier",
    "Suspect",
    "doubt_labels",
    "find_duplicates",
    "find_mislabelled",
    "find_outliers",
    "group_links",
    "propose_clusters",
]
