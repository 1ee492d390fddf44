from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from vicinal.data import inshop, split
from vicinal.errors import DataError

ROWS = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/WOMEN/Tees/id_00000004/01_1_front.jpg", "id_00000004", "train"),
    ("img/MEN/Denim/id_00000001/01_1_front.jpg", "id_00000001", "query"),
    ("img/MEN/Denim/id_00000001/01_7_additional.jpg", "id_00000001", "gallery"),
    ("img/MEN/Denim/id_00000003/01_1_front.jpg", "id_00000003", "gallery"),
    ("img/MEN/Denim/id_00000003/01_2_side.jpg", "id_00000003", "query"),
]


@pytest.fixture
def official(tmp_path: Path, paint) -> Path:
    root = tmp_path / "In-shop Clothes Retrieval Benchmark"
    (root / "Eval").mkdir(parents=True)
    lines = [str(len(ROWS)), "image_name item_id evaluation_status", *(f"{a:<70}{b}   {c}" for a, b, c in ROWS)]
    (root / "Eval" / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    for path, _, _ in ROWS:
        paint(root / "Img" / path)
        paint(root / "Img" / path.replace("img/", "img_highres/"), (60, 40))
    return root


def test_official_layout(official: Path) -> None:
    data = inshop(official, strict=False)
    assert data.class_names == ("id_00000001", "id_00000002", "id_00000003", "id_00000004")
    assert data.roles.tolist() == [role for _, _, role in ROWS]
    parts = split(data, "query-gallery", validation=0.5)
    assert (len(parts.query), len(parts.gallery)) == (2, 2)
    assert parts.query.labels.tolist() == parts.gallery.labels.tolist() == [0, 1]
    assert inshop(official.parent, strict=False).hash() == data.hash()


def test_high_resolution(official: Path) -> None:
    assert inshop(official, strict=False).image(0).size == (12, 10)
    assert inshop(official, highres=True, strict=False).image(0).size == (60, 40)


def test_images_beside_the_list_or_in_the_zip(official: Path) -> None:
    content = inshop(official, strict=False).hash()
    with zipfile.ZipFile(official / "Img" / "img.zip", "w") as archive:
        for path, _, _ in ROWS:
            archive.write(official / "Img" / path, path)
    (official / "Img" / "img").rename(official / "Img" / "elsewhere")
    assert inshop(official, strict=False).hash() == content
    assert ".zip/" in inshop(official, strict=False).item(0)
    (official / "Img" / "elsewhere").rename(official / "img")
    assert inshop(official, strict=False).hash() == content


def test_problems(official: Path) -> None:
    with (official / "Eval" / "list_eval_partition.txt").open("a") as file:
        file.write("img/a.jpg id_9 tarin\nimg/b.jpg id_9 train\n")
    with pytest.raises(DataError) as caught:
        inshop(official)
    text = "\n".join(caught.value.problems)
    assert "unknown evaluation_status 'tarin': img/a.jpg" in text
    assert "missing: " in text
    assert "4 train images; the official number is 25,882" in text
