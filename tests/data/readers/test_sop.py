from __future__ import annotations

from pathlib import Path

import pytest

from vicinal.data import sop, split
from vicinal.errors import DataError

ROWS = {
    "train": [(1, 1, 1, "bicycle_final/111_0.JPG"), (2, 1, 1, "bicycle_final/111_1.JPG"),
              (3, 2, 4, "coffee_maker_final/222_0.JPG")],
    "test": [(4, 11, 4, "coffee_maker_final/333_0.JPG"), (5, 10, 1, "bicycle_final/444_0.JPG")],
}  # fmt: skip


def write(lists: Path, images: Path, paint) -> None:
    lists.mkdir(parents=True, exist_ok=True)
    for role, rows in ROWS.items():
        lines = ["image_id class_id super_class_id path", *(" ".join(map(str, row)) for row in rows)]
        (lists / f"Ebay_{role}.txt").write_text("\n".join(lines) + "\n")
        for row in rows:
            paint(images / row[3], mode="L")


@pytest.fixture
def official(tmp_path: Path, paint) -> Path:
    root = tmp_path / "Stanford_Online_Products"
    write(root, root, paint)
    return root


def test_official_layout(official: Path) -> None:
    data = sop(official, strict=False)
    assert data.class_names == ("bicycle/1", "coffee_maker/2", "bicycle/10", "coffee_maker/11")
    assert data.labels.tolist() == [0, 0, 1, 3, 2]
    assert data.roles.tolist() == ["train"] * 3 + ["test"] * 2
    assert data.image(0).mode == "RGB"
    parts = split(data)
    assert (len(parts.train), len(parts.test)) == (3, 2)
    assert sop(official.parent, strict=False).hash() == data.hash()


def test_layout_with_info_files(tmp_path: Path, official: Path, paint) -> None:
    root = tmp_path / "other" / "online_products"
    write(root / "Info_Files", root / "images", paint)
    data = sop(tmp_path / "other", strict=False)
    assert data.class_names == sop(official, strict=False).class_names
    assert len(data) == 5


def test_a_class_on_both_sides(official: Path) -> None:
    with (official / "Ebay_test.txt").open("a") as file:
        file.write("6 1 1 bicycle_final/111_1.JPG\n")
    with pytest.raises(DataError) as caught:
        sop(official, strict=False)
    assert any("class on both sides of the split (test, train): bicycle/1" in p for p in caught.value.problems)
    assert any("listed 2 times as bicycle/1" in p for p in caught.value.problems)
    with pytest.warns(UserWarning, match="skipped 3 of 6"):
        data = sop(official, skip_bad=True)
    assert "bicycle/1" not in {data.class_names[label] for label in data.classes}
    assert split(data).train.class_names == ("coffee_maker/2",)


def test_a_missing_list(official: Path) -> None:
    (official / "Ebay_test.txt").unlink()
    with pytest.raises(DataError, match=r"missing: .*Ebay_test.txt"):
        sop(official, strict=False)


def test_counts(official: Path) -> None:
    with pytest.raises(DataError, match="3 train images; the official number is 59,551"):
        sop(official)
