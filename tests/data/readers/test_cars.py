from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from vicinal.data import cars196, split
from vicinal.errors import DataError

MODELS = ["AM General Hummer 2000", "Eagle Talon 1998", "FIAT 500 2012", "Ram C/V Van 2012"]
FOLDERS = [model.replace("/", "-") for model in MODELS]
FIELDS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class")


def structs(rows: list[dict[str, object]]) -> np.ndarray:
    """A struct array as MATLAB writes it: 1 x n, every field an array of its own."""
    array = np.empty((1, len(rows)), dtype=[(name, object) for name in rows[0]])
    for i, row in enumerate(rows):
        array[0, i] = tuple(row.values())
    return array


def annotation(label: int) -> dict[str, object]:
    return dict(zip(FIELDS, (3, 2, 12, 9, label), strict=True))


@pytest.fixture
def combined(tmp_path: Path, paint) -> Path:
    root = tmp_path / "cars196"
    rows = []
    for i in range(8):
        name = f"car_ims/{i + 1:06}.jpg"
        paint(root / name, (16, 12))
        rows.append({"relative_im_path": name, **annotation(i // 2 + 1), "test": i % 2})
    savemat(root / "cars_annos.mat", {"annotations": structs(rows), "class_names": np.array([MODELS], dtype=object)})
    return root


@pytest.fixture
def devkit(tmp_path: Path, paint) -> Path:
    root = tmp_path / "stanford"
    (root / "devkit").mkdir(parents=True)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": np.array([MODELS], dtype=object)})
    for part, place in (("train", root / "devkit" / "cars_train_annos.mat"),
                        ("test", root / "cars_test_annos_withlabels.mat")):  # fmt: skip
        rows = []
        for i in range(4):
            paint(root / f"cars_{part}" / f"{i + 1:05}.jpg", (16, 12))
            rows.append({**annotation(i + 1), "fname": f"{i + 1:05}.jpg"})
        savemat(place, {"annotations": structs(rows)})
    return root


def test_combined_layout(combined: Path) -> None:
    data = cars196(combined, strict=False)
    assert data.class_names == tuple(MODELS)
    assert data.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.roles is None
    assert data.image(0).size == (16, 12)
    assert cars196(combined.parent, strict=False).hash() == data.hash()


def test_crop_counts_from_one_as_matlab_does(combined: Path, devkit: Path) -> None:
    for root in (combined, devkit):
        data = cars196(root, crop=True, strict=False)
        assert data.boxes[0].tolist() == [2, 1, 12, 9]
        assert data.image(0).size == (10, 8)


def test_devkit_layout_with_repeated_file_names(devkit: Path) -> None:
    data = cars196(devkit, strict=False)
    assert data.class_names == tuple(MODELS)
    assert data.labels.tolist() == [0, 1, 2, 3] * 2
    (devkit / "cars_test_annos_withlabels.mat").rename(devkit / "devkit" / "cars_test_annos_withlabels.mat")
    assert cars196(devkit, strict=False).hash() == data.hash()


def test_devkit_without_test_labels(devkit: Path) -> None:
    (devkit / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(DataError, match=r"missing: .*cars_test_annos_withlabels\.mat"):
        cars196(devkit, strict=False)


def by_class(root: Path, parts: list[str], paint) -> None:
    for part in parts:
        for i, model in enumerate(FOLDERS):
            paint(root / part / model / f"{i:06}{part}.jpg")


def test_kaggle_layout_takes_the_order_of_its_names(tmp_path: Path, paint) -> None:
    by_class(tmp_path / "car_data" / "car_data", ["train", "test"], paint)
    data = cars196(tmp_path, strict=False)
    assert data.class_names == tuple(FOLDERS)
    order = [MODELS[1], MODELS[0], MODELS[3], MODELS[2]]
    (tmp_path / "names.csv").write_text("".join(f"{model}\n" for model in order))
    named = cars196(tmp_path, strict=False)
    assert named.class_names == tuple(model.replace("/", "-") for model in order)
    assert len(named) == len(data) == 8


@pytest.mark.parametrize(("below", "parts"), [("", ["train", "test"]), ("cars196", ["images"])])
def test_folders_by_class(tmp_path: Path, paint, below: str, parts: list[str]) -> None:
    by_class(tmp_path / below, parts, paint)
    data = cars196(tmp_path, strict=False)
    assert data.class_names == tuple(FOLDERS)
    assert len(data) == 4 * len(parts)
    assert split(data).train.class_names == ("AM General Hummer 2000", "Eagle Talon 1998")
    with pytest.raises(DataError, match="crop=True needs cars_annos"):
        cars196(tmp_path, crop=True, strict=False)


def test_counts_and_missing_files(combined: Path) -> None:
    (combined / "car_ims" / "000003.jpg").unlink()
    with pytest.raises(DataError) as caught:
        cars196(combined)
    assert "8 images; the official number is 16,185" in caught.value.problems
    assert any(problem.startswith("missing: ") for problem in caught.value.problems)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no cars_annos\.mat"):
        cars196(tmp_path)
