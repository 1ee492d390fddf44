"""Datasets of torch, DataLoaders and Hugging Face datasets as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import vicinal as vc
from vicinal.data import as_dataset
from vicinal.errors import DataError, InputError


class Pictures(torch.utils.data.Dataset):
    """PIL images of several sizes, as torchvision's ImageFolder gives them."""

    classes = ("cat", "dog")

    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", (20 + place, 24), (40 * place, 0, 0)), place % 2


class ClassLabel:
    """As `datasets.ClassLabel`."""

    def int2str(self, label: int) -> str:
        return ["wren", "crow"][label]


class Image_:  # noqa: N801 (its name in `datasets` is that of Pillow's)
    """As `datasets.Image`."""


Image_.__name__ = "Image"


class Hugging:
    """What is used of a Hugging Face dataset."""

    features: ClassVar[dict[str, Any]] = {"picture": Image_(), "species": ClassLabel(), "note": object()}
    column_names = ("picture", "species", "note")

    def __iter__(self) -> Any:
        return iter({"picture": Image.new("L", (8, 8), 9 * n), "species": n % 2, "note": ""} for n in range(4))


def vectors() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12).repeat_interleave(6)
    return TensorDataset(torch.randn(12, 5, generator=generator)[labels] + 0.3 * torch.randn(72, 5), labels + 100)


def test_pairs_of_tensors_are_vectors_with_their_labels() -> None:
    data = as_dataset(vectors(), name="mine")
    assert (data.kind, data.name, data.class_names[0], len(data)) == ("vectors", "mine", "100", 72)
    assert data.labels.tolist() == sorted(data.labels.tolist())


def test_a_loader_is_the_data_of_its_batches() -> None:
    pairs = vectors()
    one, batched = as_dataset(pairs), as_dataset(DataLoader(pairs, batch_size=10))
    np.testing.assert_array_equal(one.items, batched.items)
    np.testing.assert_array_equal(one.labels, batched.labels)


def test_pictures_of_several_sizes_are_scaled_or_refused() -> None:
    data = as_dataset(Pictures(), size=16)
    assert data.items.shape == (6, 16, 16, 3)
    assert data.class_names == ("cat", "dog")
    with pytest.raises(InputError, match=r"Items differ in shape.*size=224"):
        as_dataset(Pictures())


def test_a_hugging_face_dataset_names_its_classes() -> None:
    data = as_dataset(Hugging())
    assert data.items.shape == (4, 8, 8)
    assert data.class_names == ("wren", "crow")


def test_floats_from_0_to_1_are_images_again() -> None:
    images = torch.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4) / 96
    data = as_dataset(TensorDataset(images, torch.tensor([0, 1])))
    assert data.items.shape == (2, 4, 4, 3)
    assert int(data.items[1, 3, 3, 2]) == round(255 * 95 / 96)
    grey = as_dataset(TensorDataset(images[:, :1], torch.tensor([0, 1])))
    assert grey.items.shape == (2, 4, 4)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "something that holds pairs"),
        ([1, 2], "Item 0 must be a pair"),
        ([(np.zeros((2, 2, 2, 2)), 0)], "neither an image nor a vector"),
        ([(torch.full((3, 4, 4), -1.0), 0)], "remove the normalisation"),
        ([(np.zeros(3), 0.5)], "Labels must be integers or names"),
    ],
)
def test_what_is_no_data_is_told(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_dataset(data)
    with pytest.raises(DataError, match="holds no items"):
        as_dataset([])


def test_compare_evaluate_and_encode_take_them(tmp_path: Path) -> None:
    pairs = vectors()
    small = {"dim": 3, "steps": 3, "classes_per_batch": 3, "progress": False, "rates": 1}
    board = vc.compare(pairs, ["triplet"], out=tmp_path, **small)
    embedder = board.entries[0].records[0] and vc.Embedder.load(tmp_path)
    rows = embedder.encode(pairs)
    np.testing.assert_array_equal(rows, embedder.encode(as_dataset(pairs)))
    assert vc.evaluate(embedder, pairs)["P@1"] == vc.evaluate(embedder, as_dataset(pairs))["P@1"]
    assert vc.split(pairs).train.kind == "vectors"


def test_encode_skips_what_cannot_be_read(tmp_path: Path) -> None:
    Image.new("L", (40, 40), 200).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    Image.new("L", (40, 40), 20).save(tmp_path / "c.png")
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    embedder = vc.Embedder("convnet", dim=4).eval()
    with pytest.raises(DataError, match=r"b.png cannot be read"):
        embedder.encode(paths)
    with pytest.warns(UserWarning, match=r"(?s)1 of 3 items.*b\.png"):
        rows = embedder.encode(paths, skip_bad=True)
    assert embedder.skipped == (1,)
    np.testing.assert_allclose(rows, embedder.encode([paths[0], paths[2]]), atol=1e-6)
    embedder.encode(paths[0])
    assert embedder.skipped == ()
