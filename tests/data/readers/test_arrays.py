from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vicinal.data import arrays
from vicinal.errors import DataError, InputError


def test_vectors_of_any_numbers_and_labels_of_any_kind() -> None:
    data = arrays(np.array([[1, 2], [3, 4], [5, 6]]), ["b", "a", "b"], roles=["train", "test", "train"])
    assert data.kind == "vectors"
    assert data.items.dtype == np.float32
    assert data.class_names == ("a", "b")
    assert data.labels.tolist() == [1, 0, 1]
    assert data.roles.tolist() == ["train", "test", "train"]
    assert arrays([[1.0], [2.0]], [30, 4]).class_names == ("4", "30")


def test_images() -> None:
    assert arrays(np.zeros((2, 5, 4), np.uint8), [0, 1]).image(0).size == (4, 5)
    assert arrays(np.zeros((2, 5, 4, 3), np.uint8), [0, 1]).kind == "images"


def test_what_cannot_be_used() -> None:
    with pytest.raises(InputError, match=r"labels must be one per item; got items \(2, 1\) and labels \(1,\)"):
        arrays([[1.0], [2.0]], [0])
    with pytest.raises(InputError, match=r"one per item.*labels \(\)"):
        arrays([[1.0]])
    with pytest.raises(InputError, match=r"got float64 \[1, 2, 2, 3\].*astype\('uint8'\)"):
        arrays(np.zeros((1, 2, 2, 3)), [0])
    with pytest.raises(InputError, match="Channels come last"):
        arrays(np.zeros((1, 3, 2, 2), np.uint8), [0])


def test_vectors_that_are_not_finite() -> None:
    rows = [[1.0], [np.nan], [np.inf], [2.0]]
    with pytest.raises(DataError) as caught:
        arrays(rows, [0, 0, 1, 1])
    assert caught.value.problems == ("row 1 is not finite", "row 2 is not finite")
    with pytest.warns(UserWarning, match="skipped 2 of 4"):
        data = arrays(rows, [0, 0, 1, 1], skip_bad=True)
    assert data.items.tolist() == [[1], [2]]
    assert data.notes[0] == "skipped 2 of 4 vectors"


def test_npz(tmp_path: Path) -> None:
    X, y = np.eye(3, dtype=np.float32), np.array(["c", "a", "b"])
    np.savez(tmp_path / "features.npz", X=X, y=y)
    data = arrays(tmp_path / "features.npz")
    assert data.name == "features"
    assert data.hash() == arrays(X, y).hash()
    np.savez(tmp_path / "roles.npz", X=X, y=y, roles=np.array(["train", "train", "test"]))
    assert arrays(str(tmp_path / "roles.npz")).roles.tolist() == ["train", "train", "test"]


def test_embeddings_are_data_too(tmp_path: Path) -> None:
    rows, names = np.eye(3, dtype=np.float32), np.array(["wren", "jay"])
    np.savez(tmp_path / "embedded.npz", embeddings=rows, labels=np.array([1, 0, 1]), class_names=names)
    data = arrays(tmp_path / "embedded.npz")
    assert data.hash() == arrays(rows, ["jay", "wren", "jay"]).hash()
    np.savez(tmp_path / "short.npz", embeddings=rows.astype(np.int8), labels=np.zeros(3), numbers=np.array("int8"))
    with pytest.raises(DataError, match="stores its embeddings as int8"):
        arrays(tmp_path / "short.npz")
    np.savez(tmp_path / "beyond.npz", embeddings=rows, labels=np.array([1, 0, 2]), class_names=names)
    with pytest.raises(DataError, match="positions among the 2 class_names"):
        arrays(tmp_path / "beyond.npz")


def test_npz_that_cannot_be_used(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", features=np.eye(2))
    with pytest.raises(DataError, match=r"must hold arrays 'X' and 'y'(.|\n)*it holds: features"):
        arrays(tmp_path / "other.npz")
    with pytest.raises(DataError, match=r"does not exist"):
        arrays(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DataError, match=r"not a file of arrays"):
        arrays(tmp_path / "text.npz")


def test_npz_is_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", X=np.array([{"a": 1}], dtype=object), y=np.array([0]))
    with pytest.raises(DataError, match="only numbers and text"):
        arrays(tmp_path / "objects.npz")
