"""Classify new pictures by the nearest labelled item of an index, or as none of its classes.

Classes unseen in training need only be in the index.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from vicinal.errors import InputError
from vicinal.index.filters import And, Condition, Not, Null, Value, Where, as_condition
from vicinal.index.hits import Hits
from vicinal.index.item import Id
from vicinal.neighbours.inputs import check_threshold

if TYPE_CHECKING:
    from vicinal.index.index import Index

__all__ = ["Naming", "classify", "naming_rule"]


@dataclass(frozen=True)
class Naming:
    """Class of a picture, taken from the nearest item of the index.

    Attributes:
        label: Class of the nearest item; None if it is below the threshold (none of the known classes).
        similarity: Similarity to the nearest item; None if there was nothing to compare with.
        probability: Probability of belonging to that class, if the embedder is calibrated.
        nearest: Id of the nearest item.
        nearest_label: Class of the nearest item, above the threshold or not.
    """

    label: Value | None
    similarity: float | None
    probability: float | None
    nearest: Id | None
    nearest_label: Value | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, for JSON."""
        return asdict(self)


def classify(
    index: Index,
    query: Any = None,
    *,
    vector: Any = None,
    threshold: float | None = None,
    where: Where | None = None,
) -> list[Naming]:
    """Classify pictures by the nearest labelled item of an index; below the threshold the label is None.

    Args:
        index: Index with labelled items.
        query: An image, a folder or a sequence of images.
        vector: One or more embeddings instead of a query.
        threshold: Lowest similarity that counts as a match; by default that of the calibrated embedder.
        where: Filter on the items of the index.

    Example:
        >>> import tempfile
        >>> from vicinal.index import Index
        >>> index = Index.of_vectors(f"{tempfile.mkdtemp()}/x.index", [[1.0, 0.0], [0.0, 1.0]], labels=["wren", "owl"])
        >>> [naming.label for naming in classify(index, vector=[[0.9, 0.1], [-1.0, -1.0]], threshold=0.8)]
        ['wren', None]
    """
    threshold, labelled = naming_rule(index, threshold, where)
    answers = index.search(query, k=1, where=labelled, vector=vector)
    return [_named(hits, threshold) for hits in ([answers] if isinstance(answers, Hits) else answers)]


def naming_rule(index: Index, threshold: float | None, where: Where | None) -> tuple[float, Condition]:
    """Return the threshold and the condition on items that may provide a label; see `classify`.

    Raises:
        InputError: If there is no threshold, or no item has a label.
    """
    if threshold is None:
        if index.calibration is None:
            raise InputError(
                f"{index.path} has no similarity threshold: calibrate its model (vicinal calibrate) and index again, "
                "or give a threshold."
            )
        threshold = index.calibration.threshold
    else:
        check_threshold(threshold, index.distance)
    labelled: Condition = Not(Null("label"))
    condition = labelled if where is None else And((labelled, as_condition(where)))
    if not index.count(condition):
        raise InputError(f"No item of {index.path} that passes the filter has a label, so images cannot be classified.")
    return threshold, condition


def _named(hits: Hits, threshold: float) -> Naming:
    if not len(hits):
        return Naming(None, None, None, None, None)
    hit = hits[0]
    label = hit.label if hit.similarity >= threshold else None
    return Naming(label, hit.similarity, hit.probability, hit.id, hit.label)
