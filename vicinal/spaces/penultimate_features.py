"""The features that a classifier is made from, as an embedder of their own."""

from __future__ import annotations

from vicinal.embedder import Embedder

__all__ = ["penultimate"]


def penultimate(embedder: Embedder) -> Embedder:
    """Return an embedder without the last linear map, which shares its backbone with the first.

    Args:
        embedder: Whose embeddings are class probabilities, as a rule: of classes that it has not seen they say less
            than the features before.

    Example:
        >>> classifier = Embedder("convnet", dim=10, normalisation="softmax")
        >>> penultimate(classifier).dim
        256
    """
    return Embedder(
        embedder.backbone, dim=None, pooling=embedder.head.pooling, transform=embedder.transform, card=embedder.card
    ).eval()
