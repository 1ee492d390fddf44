"""Frozen features: computed once, found again only where nothing changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vicinal.data import Dataset, Fit, RandomAffine, digits
from vicinal.embedder import Embedder
from vicinal.machine import cache_folder
from vicinal.training.frozen_features import OneOf, frozen_features, with_features

pytestmark = pytest.mark.recipe


@pytest.fixture
def data() -> Dataset:
    return digits().of_classes([3, 5]).subset(np.arange(0, 300, 10))


@pytest.fixture
def embedder() -> Embedder:
    return make()


def make(seed: int = 0, **options: Any) -> Embedder:
    torch.manual_seed(seed)
    return Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16}, **options)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many items went through a backbone since the last call."""
    seen: list[int] = []
    real = Embedder.features

    def counted(self: Embedder, images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return real(self, images)

    monkeypatch.setattr(Embedder, "features", counted)

    def count() -> int:
        total = sum(seen)
        seen.clear()
        return total

    return count


def test_they_are_the_embedders_features(data: Dataset, embedder: Embedder, tmp_path: Path) -> None:
    found = frozen_features(embedder, data, embedder.transform, cache=tmp_path, batch_size=7, progress=False)
    embedder.eval()
    images = torch.stack([embedder.transform(data.open(i)) for i in range(len(data))])
    with torch.inference_mode():
        expected = embedder.features(images)
    assert found.shape == (30, 1, 8)
    torch.testing.assert_close(torch.from_numpy(found[:, 0]), expected)


def test_a_second_call_computes_nothing(
    data: Dataset, embedder: Embedder, passes: Callable[[], int], tmp_path: Path
) -> None:
    transform = RandomAffine(16)
    first = frozen_features(embedder, data, transform, copies=3, cache=tmp_path, progress=False)
    assert passes() == 90
    again = frozen_features(make(), data, transform, copies=3, cache=tmp_path, workers=1, progress=False)
    assert passes() == 0
    np.testing.assert_array_equal(again, first)
    assert not np.array_equal(first[:, 0], first[:, 1])
    frozen_features(embedder, data, transform, copies=4, cache=tmp_path, progress=False)
    assert passes() == 30
    frozen_features(embedder, data.of_classes([1]), transform, copies=3, cache=tmp_path, progress=False)
    assert passes() == 0  # another split of the same data


def test_the_head_does_not_count(data: Dataset, embedder: Embedder, passes: Callable[[], int], tmp_path: Path) -> None:
    frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    passes()
    torch.nn.init.zeros_(embedder.head.linear.weight)
    frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    assert passes() == 0


def changed_pixel(data: Dataset) -> Dataset:
    items = data.items.copy()
    items[0, 0, 0] ^= 1
    return replace(data, items=items)


@pytest.mark.parametrize(
    ("embedder", "transform", "edit", "computed"),
    [
        (make(seed=1), Fit(16), lambda data: data, 30),
        (make(pooling="max"), Fit(16), lambda data: data, 30),
        (make(), Fit(17), lambda data: data, 30),
        (make(), RandomAffine(16), lambda data: data, 30),
        (make(), Fit(16), changed_pixel, None),
        (make(), Fit(16), lambda data: data.subset(np.arange(29, -1, -1)), 30),
    ],
    ids=["weights", "pooling", "size", "transform", "pixel", "order"],
)
def test_a_change_is_a_miss(
    embedder: Embedder,
    transform: Any,
    edit: Callable[[Dataset], Dataset],
    computed: int | None,
    data: Dataset,
    passes: Callable[[], int],
    tmp_path: Path,
) -> None:
    frozen_features(make(), data, Fit(16), cache=tmp_path, progress=False)
    passes()
    frozen_features(embedder, edit(data), transform, cache=tmp_path, progress=False)
    of_the_class = int((data.labels == data.labels[0]).sum())
    assert passes() == (of_the_class if computed is None else computed)


def test_an_interrupted_computation_goes_on_where_it_was(
    data: Dataset, embedder: Embedder, passes: Callable[[], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Embedder.features
    calls = iter(range(1, 100))

    def interrupted(self: Embedder, images: torch.Tensor) -> torch.Tensor:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return counted(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "features", interrupted)
        with pytest.raises(KeyboardInterrupt):
            frozen_features(embedder, data, Fit(16), copies=2, cache=tmp_path, progress=False)
    before = passes()
    assert 0 < before < 60
    found = frozen_features(embedder, data, Fit(16), copies=2, cache=tmp_path, progress=False)
    assert passes() == 60 - before
    assert np.isfinite(found).all()


@pytest.mark.parametrize("damage", [b"", b"half", None])
def test_a_damaged_file_is_computed_again(
    damage: bytes | None, data: Dataset, embedder: Embedder, passes: Callable[[], int], tmp_path: Path
) -> None:
    first = frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    passes()
    path = next((tmp_path / "features").iterdir())
    path.write_bytes(path.read_bytes()[:-5] if damage is None else damage)
    again = frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    assert 0 < passes() < 30
    np.testing.assert_array_equal(again, first)
    frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    assert passes() == 0


def test_training_mode_is_given_back_and_batch_norm_does_not_move(
    data: Dataset, embedder: Embedder, tmp_path: Path
) -> None:
    embedder.train()
    before = {name: tensor.clone() for name, tensor in embedder.state_dict().items()}
    frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    assert embedder.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in embedder.state_dict().items())


def test_a_dataset_of_copies_gives_each_of_them(data: Dataset) -> None:
    features = np.arange(30 * 3 * 2, dtype=np.float32).reshape(30, 3, 2)
    vectors = with_features(data, features)
    rng = np.random.default_rng(0)
    drawn = {tuple(OneOf(3)(vectors.item(4), rng).tolist()) for _ in range(50)}
    assert drawn == {(24.0, 25.0), (26.0, 27.0), (28.0, 29.0)}
    assert vectors.kind == "vectors"
    np.testing.assert_array_equal(vectors.labels, data.labels)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VICINAL_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("VICINAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vicinal"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "vicinal"
