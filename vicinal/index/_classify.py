"""Names for new pictures by the items of an index, or none: classes that no training has seen need only be in it."""

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
    """What a picture is, by the item of the index that is nearest to it.

    Attributes:
        label: The class of that item; None if it is not near enough: none of these.
        similarity: To that item; None if there was nothing to compare with.
        probability: Of being of its class, where the embedder is calibrated.
        nearest: The id of that item.
        nearest_label: Its class, near enough or not.
    """

    label: Value | None
    similarity: float | None
    probability: float | None
    nearest: Id | None
    nearest_label: Value | None

    def as_dict(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return asdict(self)


def classify(
    index: Index,
    query: Any = None,
    *,
    vector: Any = None,
    threshold: float | None = None,
    where: Where | None = None,
) -> list[Naming]:
    """Name pictures by the nearest labelled item of an index; below the threshold the answer is none of these.

    Args:
        index: What is known: items with labels.
        query: An image, a folder or a sequence of images.
        vector: An embedding, or several, in place of a query.
        threshold: The similarity that is near enough; by default that of the calibrated embedder.
        where: A filter on the items of the index.

    Example:
        >>> import tempfile
        >>> from vicinal.index import Index
        >>> index = Index.of_vectors(f"{tempfile.mkdtemp()}/x.index", [[1.0, 0.0], [0.0, 1.0]], labels=["wren", "owl"])
        >>> [naming.label for naming in classify(index, vector=[[0.9, 0.1], [-1.0, -1.0]], threshold=0.8)]
        ['wren', None]
    """
    threshold, known = naming_rule(index, threshold, where)
    answers = index.search(query, k=1, where=known, vector=vector)
    return [_named(hits, threshold) for hits in ([answers] if isinstance(answers, Hits) else answers)]


def naming_rule(index: Index, threshold: float | None, where: Where | None) -> tuple[float, Condition]:
    """The similarity that is near enough, and which items may give a name; see `classify`.

    Raises:
        InputError: If nothing could be named by them.
    """
    if threshold is None:
        if index.calibration is None:
            raise InputError(
                f"{index.path} does not know how near is near enough: calibrate its embedder (vicinal calibrate) and "
                "index again, or give a threshold."
            )
        threshold = index.calibration.threshold
    else:
        check_threshold(threshold, index.distance)
    labelled: Condition = Not(Null("label"))
    known = labelled if where is None else And((labelled, as_condition(where)))
    if not index.count(known):
        raise InputError(f"No item of {index.path} that passes the filter has a label: there is nothing to name by.")
    return threshold, known


def _named(hits: Hits, threshold: float) -> Naming:
    if not len(hits):
        return Naming(None, None, None, None, None)
    hit = hits[0]
    label = hit.label if hit.similarity >= threshold else None
    return Naming(label, hit.similarity, hit.probability, hit.id, hit.label)
