from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from vicinal.data.files import archive_of, digest, file_size, map_files, read_bytes


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
