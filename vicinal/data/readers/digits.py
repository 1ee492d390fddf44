"""The handwritten digits that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from vicinal.data.dataset import Dataset


def digits(*, vectors: bool = False) -> Dataset:
    """Return 1,797 handwritten digits of 8 x 8 pixels in 10 classes; no download needed.

    Args:
        vectors: Whether to return the 64 pixels as feature vectors in 0..1 instead of images.

    Example:
        >>> digits()
        Dataset('digits': 1,797 images, 10 classes)
    """
    from sklearn.datasets import load_digits  # slow to import

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    items = (bunch.data / 16).astype(np.float32) if vectors else images
    return Dataset(items, bunch.target.astype(np.int64), tuple("0123456789"), name="digits")
