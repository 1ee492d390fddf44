"""Inspection of a collection by its neighbours: duplicates, wrong labels, outliers, clusters; and same or different."""

from __future__ import annotations

from vicinal.collection._show_neighbours import show_neighbours
from vicinal.collection.clusters import Clusters, propose_clusters
from vicinal.collection.duplicates import DuplicateGroup, Link, find_duplicates, group_links
from vicinal.collection.mislabelled import LabelDoubts, Suspect, doubt_labels, find_mislabelled
from vicinal.collection.outliers import Outlier, find_outliers
from vicinal.collection.same_or_different import SameOrDifferent

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
    "show_neighbours",
]
