from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from vicinal.data import digits, glyphs, split
from vicinal.data.readers.glyphs import LOOK_ALIKE, UPRIGHT, _font, _shape, distinct_characters
from vicinal.errors import InputError


def test_digits() -> None:
    data = digits()
    assert data.items.shape == (1797, 8, 8)
    assert (data.items.min(), data.items.max()) == (0, 255)
    flat = digits(vectors=True)
    assert flat.items.shape == (1797, 64)
    assert (flat.items.min(), flat.items.max()) == (0, 1)
    assert flat.labels.tolist() == data.labels.tolist()


def test_some_hundreds_of_characters_and_unseen_alphabets() -> None:
    data = glyphs(samples=2)
    assert data.items.shape == (len(data), 32, 32)
    assert 300 < len(data.class_names) < 1000
    assert np.bincount(data.labels).tolist() == [2] * len(data.class_names)
    parts = split(data)
    alphabets = [{name.split("/")[0] for name in view.class_names} for view in (parts.train, parts.test)]
    assert alphabets[0] == {"Latin", "Greek", "Cyrillic", "Arrows", "Mathematics"}
    assert not alphabets[0] & alphabets[1]
    assert len(alphabets[1]) >= 5
    assert min(len(parts.train.classes), len(parts.test.classes)) > 150


def test_one_picture_is_one_class() -> None:
    characters = [character for _, _, character in distinct_characters()]
    assert len(set(characters)) == len(characters)
    assert "A" in characters
    for twin in (
        "GREEK CAPITAL LETTER ALPHA",
        "CYRILLIC CAPITAL LETTER A",
        "CYRILLIC SMALL LETTER VE",
        "GREEK SMALL LETTER OMICRON",
        "N-ARY SUMMATION",
        "ARMENIAN SMALL LETTER OH",
    ):
        assert unicodedata.lookup(twin) not in characters
    for face in UPRIGHT:
        shapes = np.stack([_shape(_font(face), character) for character in characters])
        alike = shapes @ shapes.T
        np.fill_diagonal(alike, 0)
        assert alike.max() <= LOOK_ALIKE


def test_every_sample_has_ink_and_samples_differ() -> None:
    data = glyphs(samples=2)
    assert (data.items.reshape(len(data), -1).max(axis=1) > 120).all()
    assert (np.median(data.items.reshape(len(data), -1), axis=1) < 100).all()
    pairs = data.items.reshape(-1, 2, 32 * 32).astype(float)
    assert (np.abs(pairs[:, 0] - pairs[:, 1]).mean(axis=1) > 1).all()


def test_glyphs_are_decided_by_the_seed() -> None:
    first = glyphs(samples=1, size=16, seed=5)
    assert glyphs(samples=1, size=16, seed=5) is first
    glyphs.cache_clear()
    assert glyphs(samples=1, size=16, seed=5).hash() == first.hash()
    assert glyphs(samples=1, size=16, seed=6).hash() != first.hash()
    with pytest.raises(ValueError, match="read-only"):
        first.items[0] = 0


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="samples must be at least 1"):
        glyphs(samples=0)
