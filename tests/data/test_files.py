from __future__ import annotations

import contextlib
import os
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal.data.files import IMAGE_ERRORS, archive_of, digest, file_size, map_files, open_header, read_bytes, upright


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        file.writestr("inside/one.txt", b"first")
        file.writestr("inside/empty.txt", b"")
    return tmp_path / "set.zip"


def test_a_member_is_read_through_its_path(archive: Path) -> None:
    assert read_bytes(f"{archive}/inside/one.txt") == b"first"
    assert file_size(f"{archive}/inside/one.txt") == 5
    assert file_size(f"{archive}/inside/empty.txt") == 0


def test_a_folder_called_zip_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "odd.zip").mkdir()
    (tmp_path / "odd.zip" / "a.txt").write_bytes(b"plain")
    assert archive_of(f"{tmp_path}/odd.zip/a.txt") is None
    assert read_bytes(f"{tmp_path}/odd.zip/a.txt") == b"plain"


def test_missing_files_and_members(archive: Path, tmp_path: Path) -> None:
    for path in (f"{archive}/inside/two.txt", f"{tmp_path}/two.txt"):
        with pytest.raises(FileNotFoundError, match="two"):
            read_bytes(path)


def test_a_rewritten_archive_is_opened_again(archive: Path) -> None:
    assert read_bytes(f"{archive}/inside/one.txt") == b"first"
    before = digest(f"{archive}/inside/one.txt")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inside/one.txt", b"second")
    assert read_bytes(f"{archive}/inside/one.txt") == b"second"
    assert digest(f"{archive}/inside/one.txt") != before


def test_a_corrupt_member_is_an_os_error(archive: Path) -> None:
    content = archive.read_bytes()
    archive.write_bytes(content.replace(b"first", b"fir5t"))
    with pytest.raises(OSError, match="CRC"):
        read_bytes(f"{archive}/inside/one.txt")


def test_digest_notices_a_changed_file_and_forgets_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    first = digest(str(path))
    assert digest(str(path)) == first
    path.write_bytes(b"54321")
    os.utime(path, ns=(1, 1))
    assert digest(str(path)) != first


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 101])
def test_map_files_keeps_the_order(count: int) -> None:
    names = [str(i) for i in range(count)]
    assert map_files(int, names) == list(range(count))


def test_map_files_tells_how_far_it_is() -> None:
    heard: list[tuple[int, int]] = []
    map_files(len, [str(i) for i in range(300)], lambda done, total: heard.append((done, total)))
    assert sorted(heard) == [(done, 300) for done in range(1, 301)]


FORMATS = {
    "PNG": "RGB", "JPEG": "RGB", "GIF": "P", "WEBP": "RGB", "BMP": "RGB", "TIFF": "RGB", "PPM": "RGB", "ICO": "RGB",
    "TGA": "RGB", "PCX": "RGB", "DDS": "RGB", "ICNS": "RGB", "JPEG2000": "RGB", "SGI": "RGB", "IM": "RGB",
    "SPIDER": "F", "QOI": "RGB", "MSP": "1", "XBM": "1",
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.filterwarnings("ignore")
def test_damaged_pictures_raise_image_errors_alone(kind: str) -> None:
    rng = np.random.default_rng(0)
    sound = BytesIO()
    Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).convert(FORMATS[kind]).save(sound, kind)
    for _ in range(60):
        content = np.frombuffer(sound.getvalue(), dtype=np.uint8).copy()
        near = min(len(content), int(rng.choice([32, 128, 10**6])))
        content[rng.integers(near, size=int(rng.choice([1, 2, 8])))] = rng.choice([0, 128, 255])
        if rng.random() < 0.3:
            content = content[: rng.integers(1, len(content))]
        with contextlib.suppress(*IMAGE_ERRORS):  # every other error fails
            upright(open_header(content.tobytes())).convert("RGB")
