"""Frozen features: computed once, found again only where nothing changed."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vicinal._util.machine import cache_folder
from vicinal.data import Dataset, Fit, RandomAffine, batches, digits
from vicinal.embedder import Embedder
from vicinal.embedder.engines import difference
from vicinal.errors import DataError, UnknownName
from vicinal.training import feature_cache as features_module
from vicinal.training.feature_cache import ArrivingRows, OneOf, frozen_features, read_rows, with_features

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
    """How many items were opened since the last call: each goes through the backbone once, by whatever engine."""
    seen: list[int] = []
    real = Dataset.open

    def counted(self: Dataset, index: int) -> Any:
        seen.append(index)
        return real(self, index)

    monkeypatch.setattr(Dataset, "open", counted)

    def count() -> int:
        total = len(seen)
        seen.clear()
        return total

    return count


def test_they_are_the_embedders_features(
    data: Dataset, embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features_module, "BATCH_SIZE", 7)
    found = frozen_features(embedder, data, embedder.transform, cache=tmp_path, progress=False)
    embedder.eval()
    images = torch.stack([embedder.transform(data.open(i)) for i in range(len(data))])
    with torch.inference_mode():
        expected = embedder.features(images)
    assert found.shape == (30, 1, 8)
    assert found.dtype == np.float32
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
    whole = frozen_features(embedder, data, Fit(16), copies=2, cache=tmp_path / "whole", progress=False)
    passes()
    counted = Dataset.open
    calls = iter(range(1, 100))

    def interrupted(self: Dataset, index: int) -> Any:
        if next(calls) == 40:
            raise KeyboardInterrupt
        return counted(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "open", interrupted)
        patch.setattr(features_module, "BATCH_SIZE", 4)
        with pytest.raises(KeyboardInterrupt):
            frozen_features(embedder, data, Fit(16), copies=2, cache=tmp_path, progress=False)
    assert not embedder.backbone.training or embedder.training
    passes()
    stored = rows_on_disk(tmp_path / "features")
    assert 20 < stored < 40
    found = frozen_features(embedder, data, Fit(16), copies=2, cache=tmp_path, progress=False)
    assert passes() == 60 - stored
    np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-6)


def rows_on_disk(folder: Path) -> int:
    finished = sum(len(np.load(path)) for path in folder.glob("*.npy"))
    return finished + sum(path.stat().st_size // 8 for path in folder.glob("*.rows"))


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np, torch
from vicinal.data import Dataset, Fit, digits
from vicinal.embedder import Embedder
from vicinal.training.feature_cache import frozen_features
from vicinal.training.feature_cache import ArrivingRows

torch.manual_seed(0)
embedder = Embedder("convnet", dim=3, options={"widths": [4, 8], "size": 16})
real, stored = ArrivingRows.put, 0

def killed(self, numbers, rows):
    global stored
    real(self, numbers, rows)
    stored += len(numbers)
    if stored > 20:
        os.kill(os.getpid(), signal.SIGKILL)

ArrivingRows.put = killed
sys.modules[frozen_features.__module__].BATCH_SIZE = 3
data = digits().of_classes([3, 5]).subset(np.arange(0, 300, 10))
frozen_features(embedder, data, Fit(16), cache=Path(sys.argv[1]), progress=False)
"""


def test_a_kill_loses_nothing_that_was_stored(
    data: Dataset, embedder: Embedder, passes: Callable[[], int], tmp_path: Path
) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    stored = rows_on_disk(tmp_path / "features")
    assert 20 < stored <= 23  # the second of two classes was begun, and the last three rows were more than 20
    assert list((tmp_path / "features").glob("*.part"))
    found = frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    assert passes() == 30 - stored
    expected = frozen_features(embedder, data, Fit(16), cache=tmp_path / "other", progress=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not list((tmp_path / "features").glob("*.part"))
    assert not list((tmp_path / "features").glob("*.rows"))


def test_a_kill_between_the_last_row_and_the_name_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = tmp_path / "rows.npy", np.arange(12, dtype=np.float32).reshape(4, 3)
    with monkeypatch.context() as killed:
        killed.setattr(ArrivingRows, "_finish", lambda self: None)
        ArrivingRows(path, (4, 3), np.float32).put([0, 1, 2, 3], rows)
    assert read_rows(path, (4, 3), np.float32) is None
    assert not len(ArrivingRows(path, (4, 3), np.float32).missing)
    np.testing.assert_array_equal(read_rows(path, (4, 3), np.float32), rows)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.npy"]


def test_a_kill_after_the_name_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rows = tmp_path / "rows.npy", np.arange(12, dtype=np.float32).reshape(4, 3)
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda self, missing_ok=False: None)
        ArrivingRows(path, (4, 3), np.float32).put([0, 1, 2, 3], rows)
    assert path.with_suffix(".rows").exists()
    np.testing.assert_array_equal(read_rows(path, (4, 3), np.float32), rows)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.npy"]


def test_a_row_that_did_not_arrive_whole_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    ArrivingRows(path, (4, 3), np.float32).put([0, 2], rows[[0, 2]])
    part, log = path.with_suffix(".part"), path.with_suffix(".rows")
    content = bytearray(part.read_bytes())
    content[-1] ^= 1  # of row 2
    part.write_bytes(content)
    log.write_bytes(log.read_bytes() + b"half")
    again = ArrivingRows(path, (4, 3), np.float32)
    assert again.missing.tolist() == [1, 2, 3]
    again.put([3, 1], rows[[3, 1]])
    assert read_rows(path, (4, 3), np.float32) is None
    last = ArrivingRows(path, (4, 3), np.float32)
    assert last.missing.tolist() == [2]
    last.put([2], rows[[2]])
    np.testing.assert_array_equal(read_rows(path, (4, 3), np.float32), rows)
    np.testing.assert_array_equal(np.load(path), rows)
    assert read_rows(path, (3, 4), np.float32) is None
    assert read_rows(path, (4, 3), np.float16) is None
    assert ArrivingRows(path, (4, 2), np.float32).missing.tolist() == [0, 1, 2, 3]


def test_batches_are_full_across_classes(embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    real = features_module.open_items

    def counted(data: Dataset, transform: Any, items: Any, seeds: Any) -> torch.Tensor:
        sizes.append(len(items))
        return real(data, transform, items, seeds)

    monkeypatch.setattr(features_module, "open_items", counted)
    data = digits().subset(np.arange(0, 1797, 22))  # ten classes of about eight
    monkeypatch.setattr(features_module, "BATCH_SIZE", 16)
    frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    assert sum(sizes) == len(data)
    assert sizes[1:-1] == [16] * (len(sizes) - 2)  # the first is small: the engine is chosen from it


def test_half_precision_takes_half_the_space_and_trains(data: Dataset, embedder: Embedder, tmp_path: Path) -> None:
    full = frozen_features(embedder, data, Fit(16), cache=tmp_path / "a", progress=False)
    half = frozen_features(embedder, data, Fit(16), cache=tmp_path / "a", precision="float16", progress=False)
    assert half.dtype == np.float16
    assert len(list((tmp_path / "a" / "features").glob("*.npy"))) == 4  # another precision is another file
    np.testing.assert_allclose(half, full, rtol=1e-3, atol=1e-3)
    vectors = with_features(data, half)
    assert OneOf(1).rows(vectors.items, np.arange(3), np.random.default_rng(0)).dtype == torch.float32
    (batch,) = batches(vectors, None, [[0, 5]])
    assert batch.images.dtype == torch.float32
    torch.testing.assert_close(batch.images, torch.from_numpy(half[[0, 5], 0].astype(np.float32)))
    with pytest.raises(UnknownName, match="precision"):
        inspect.unwrap(frozen_features)(embedder, data, Fit(16), precision="int8")


def test_a_large_array_is_mapped_from_a_file_that_leaves_no_trace(
    data: Dataset, embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = frozen_features(embedder, data, RandomAffine(16), copies=2, cache=tmp_path, progress=False)
    assert not isinstance(expected, np.memmap)
    monkeypatch.setattr(features_module, "IN_MEMORY", 0)
    before = sorted((tmp_path / "features").iterdir())
    mapped = frozen_features(embedder, data, RandomAffine(16), copies=2, cache=tmp_path, progress=False)
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, expected)
    assert sorted((tmp_path / "features").iterdir()) == before
    vectors = with_features(data, mapped)
    assert vectors.kind == "vectors"
    assert isinstance(vectors.items, np.memmap)
    (batch,) = batches(vectors, None, [[1, 2]])
    np.testing.assert_array_equal(batch.images.numpy(), expected.reshape(30, -1)[[1, 2]])


def test_random_copies_are_the_same_for_any_number_of_threads_and_batches(
    data: Dataset, embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name, workers, size in (("a", 0, 32), ("b", 3, 4)):
        monkeypatch.setattr(features_module, "BATCH_SIZE", size)
        options: dict[str, Any] = {"cache": tmp_path / name, "workers": workers, "progress": False}
        found.append(frozen_features(embedder, data, RandomAffine(16), copies=2, **options))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_a_file_that_cannot_be_read_is_named_and_what_came_before_is_kept(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = digits().subset(np.arange(12))
    paths = []
    for index in range(12):
        paths.append(str(tmp_path / f"{index}.png"))
        images.open(index).save(paths[-1])
    (tmp_path / "11.png").write_bytes(b"no image")
    data = Dataset(tuple(paths), np.zeros(12, np.int64), ("a",))
    monkeypatch.setattr(features_module, "BATCH_SIZE", 2)
    with pytest.raises(DataError, match=r"1 item of a batch cannot be read\.\n  - .*11\.png"):
        frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    assert rows_on_disk(tmp_path / "features") == 10


@pytest.mark.parametrize("engine", ["folded", "onnxruntime"])
def test_features_by_other_engines_are_the_same(engine: Any, data: Dataset, embedder: Embedder, tmp_path: Path) -> None:
    expected = frozen_features(embedder, data, Fit(16), cache=tmp_path / "eager", engine="eager", progress=False)
    found = frozen_features(embedder, data, Fit(16), cache=tmp_path / engine, engine=engine, progress=False)
    assert difference(found[:, 0], expected[:, 0]).max() < 1e-10


@pytest.mark.parametrize("damage", [b"", b"half", None])
def test_a_damaged_file_is_computed_again(
    damage: bytes | None, data: Dataset, embedder: Embedder, passes: Callable[[], int], tmp_path: Path
) -> None:
    first = frozen_features(embedder, data, Fit(16), cache=tmp_path, progress=False)
    passes()
    path = next((tmp_path / "features").glob("*.npy"))
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
