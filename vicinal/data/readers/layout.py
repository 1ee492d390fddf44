"""Functions that several readers share: find the right folder, walk folders by class, read text rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vicinal._util.reading import fault_of_file, printable, read_content
from vicinal.data.checks import Listing
from vicinal.errors import DataError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}


def find_root(root: str | Path, what: str, layouts: Mapping[str, Sequence[str]]) -> Path:
    """Return the first folder below `root` that contains one of the files that identify its layout.

    Args:
        root: Folder that the user passed.
        what: Name of the data, for the error message.
        layouts: Files or folders of which one must exist, for each folder below `root` ("" is `root` itself).

    Raises:
        DataError: If there is none, with a list of the files that were looked for.
    """
    root = Path(root)
    for below, marks in layouts.items():
        if any((root / below / mark).exists() for mark in marks):
            return root / below
    looked = [f"no {Path(below, mark)}" for below, marks in layouts.items() for mark in marks]
    if not root.is_dir():
        looked = ["it is not a folder"]
    raise DataError(f"{what} was not found in {root}:", looked, "Pass the folder that contains it.")


def by_class(folders: Iterable[Path], roles: Iterable[str] = ()) -> Listing:
    """List `FOLDER/CLASS/**/image` for every folder that exists; hidden files (`._*`) are ignored.

    Args:
        folders: Folders of class folders; the same class in two of them is one class.
        roles: Role of the images in each folder, if any.
    """
    listing = Listing()
    role_of = dict(zip(folders := list(folders), roles, strict=False))
    for folder in folders:
        for class_folder in folders_in(folder) if folder.is_dir() else ():
            if not class_folder.is_dir() or class_folder.name.startswith("."):
                continue
            images = list(images_below(class_folder))
            if not images:
                listing.notes.append(f"class folder without images: {class_folder}")
            listing.paths += images
            listing.classes += [printable(class_folder.name)] * len(images)
            listing.roles += [role_of[folder]] * len(images) if folder in role_of else []
    return listing


def folders_in(folder: Path) -> list[Path]:
    """Return the entries of a folder, sorted.

    Raises:
        DataError: If the folder cannot be read.
    """
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"{printable(folder)} cannot be read: {error.strerror}.") from None


def is_image(name: str) -> bool:
    """Return whether a file name is that of an image, and not hidden.

    Example:
        >>> is_image("bird.JPG"), is_image("._bird.jpg"), is_image("bird.txt")
        (True, False, False)
    """
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def images_below(folder: Path) -> Iterable[str]:
    """Yield the paths of all images in a folder and its subfolders, sorted, without hidden files."""
    for parent, subfolders, files in os.walk(folder):
        subfolders.sort()
        for name in sorted(files):
            if is_image(name):
                yield os.path.join(parent, name)


def read_rows(path: Path, columns: int, problems: list[str], skip: int = 0) -> list[list[str]]:
    """Return the rows of a text file, split at white space; the last column keeps its inner spaces.

    A missing file or a row with too few columns is added to `problems`.
    """
    if (fault := fault_of_file(path)) is not None:
        problems.append(f"{fault}: {path}")
        return []
    rows = []
    lines = read_content(path).decode("utf-8", "replace").splitlines()
    for number, line in enumerate(lines[skip:], start=skip + 1):
        row = line.split(maxsplit=columns - 1)
        if len(row) == columns:
            rows.append([cell.strip() for cell in row])
        elif line.strip():
            problems.append(f"line {number} of {path.name} has {len(row)} columns, not {columns}: {line.strip()!r}")
    return rows
