"""MNIST and CIFAR: idx and binary files, written here byte by byte; pickles are refused unopened."""

from __future__ import annotations

import gzip
import pickle
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.data import cifar, load, mnist, recognise, split
from vicinal.errors import DataError

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[3] / "docs" / "gallery.md"


def write_mnist(
    root: Path, pack: bool = False, digits: Sequence[int] = (3, 1, 0, 2, 1, 3, 0)
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (len(digits), 28, 28), dtype=np.uint8), np.array(digits, dtype=np.uint8)
    for part, rows in (("train", slice(0, -2)), ("t10k", slice(-2, None))):
        count = len(labels[rows]).to_bytes(4, "big")
        side = (28).to_bytes(4, "big")
        contents = {
            f"{part}-images-idx3-ubyte": bytes((0, 0, 8, 3)) + count + side + side + images[rows].tobytes(),
            f"{part}-labels-idx1-ubyte": bytes((0, 0, 8, 1)) + count + labels[rows].tobytes(),
        }
        for name, content in contents.items():
            (root / (f"{name}.gz" if pack else name)).write_bytes(gzip.compress(content) if pack else content)
    return images, labels


@pytest.mark.parametrize("pack", [False, True])
def test_mnist_from_idx_files(pack: bool, tmp_path: Path) -> None:
    images, labels = write_mnist(tmp_path, pack)
    data = mnist(tmp_path)
    assert np.array_equal(data.items, images)
    assert data.labels.tolist() == labels.tolist()
    assert data.roles is None
    assert mnist(tmp_path, merge=False).roles.tolist() == ["train"] * 5 + ["test"] * 2
    assert (data.class_names, data.kind, recognise(tmp_path)) == (("0", "1", "2", "3"), "images", "mnist")
    assert len(load(tmp_path)) == 7


def test_mnist_that_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no train-images-idx3-ubyte or .*\.gz"):
        mnist(tmp_path)
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"x", b"\0\0\x08\x02" + whole[4:], whole[:9], b""):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="is not a complete idx file of bytes with 3 axes"):
            mnist(tmp_path)
    path.unlink()
    path.with_suffix(".gz").write_bytes(b"no archive")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="not a packed idx file"):
        mnist(tmp_path)
    write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1, 0, 0, 0, 1, 5)))
    with pytest.raises(DataError, match="2 test images but 1 labels"):
        mnist(tmp_path)


def write_cifar_10(root: Path) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8), [5, 0, 9, 3, 1, 2]
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    for name, image, label in zip(names, images, labels, strict=True):
        (root / name).write_bytes(bytes([label]) + image.transpose(2, 0, 1).tobytes())
    return images, labels


def test_cifar_10(tmp_path: Path) -> None:
    images, labels = write_cifar_10(tmp_path)
    (tmp_path / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    data = cifar(tmp_path)
    assert np.array_equal(data.items, images)
    assert (data.labels.tolist(), data.class_names) == (labels, tuple("abcdefghij"))
    assert (data.name, data.roles, recognise(tmp_path)) == ("cifar10", None, "cifar")
    assert cifar(tmp_path, merge=False).roles.tolist() == ["train"] * 5 + ["test"]
    (tmp_path / "test_batch.bin").write_bytes(b"\x0a" + bytes(3072))
    with pytest.raises(DataError, match="has a label 10, but only 10 classes"):
        cifar(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(bytes(3000))
    with pytest.raises(DataError, match="is incomplete: its size of 3000 bytes"):
        cifar(tmp_path)


def test_cifar_100_has_fine_labels(tmp_path: Path) -> None:
    for name, label in (("train.bin", 99), ("test.bin", 7)):
        (tmp_path / name).write_bytes(bytes([3, label]) + bytes(3072))
    data = cifar(tmp_path)
    assert (data.labels.tolist(), data.name, len(data.class_names)) == ([99, 7], "cifar100", 100)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was opened",))


@pytest.mark.parametrize("names", [["data_batch_1"], ["train", "test"]])
def test_pickles_are_refused_unopened(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    for opened in (cifar, load):
        with pytest.raises(
            DataError, match=r"pickles of the Python version, which are never opened.\nDownload the binary"
        ):
            opened(tmp_path)
    with pytest.raises(DataError, match="neither test_batch"):
        cifar(tmp_path / "elsewhere")


def test_folders_called_as_the_pickles_are_folders_of_images(tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
    assert recognise(tmp_path) == "folder"


@pytest.mark.recipe
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(PAGE.parents[1] / "examples")
    for name in ("mnist", "cifar-10-batches-bin"):
        Path(name).mkdir()
    write_mnist(Path("mnist"), digits=[*range(10)] * 3)
    write_cifar_10(Path("cifar-10-batches-bin"))
    commands = re.findall(r"^vicinal (.*(?:mnist|cifar).*)$", PAGE.read_text(), re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["train", "data"]
    for command in commands:
        shorter = ["--steps", "2"] if command.startswith("train") else []
        done = CliRunner().invoke(app, [*shlex.split(command), *shorter])
        assert done.exit_code == 0, (done.output, done.exception)
    assert "Next: vicinal compare cifar-10-batches-bin/" in done.output
    halves = split(load("mnist/"))
    assert (halves.train.class_names, len(halves.test)) == (("0", "1", "2", "3", "4"), 15)
