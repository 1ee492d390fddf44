"""Folders of labelled images."""

from __future__ import annotations

from pathlib import Path

from vicinal._util.reading import printable
from vicinal._util.text import counted
from vicinal.data.checks import dataset_from
from vicinal.data.dataset import ROLES, Dataset
from vicinal.data.files import Watch
from vicinal.data.readers.layout import by_class, folders_in, is_image
from vicinal.errors import DataError


def folder(
    root: str | Path, *, merge: bool = False, check: str = "header", skip_bad: bool = False, watch: Watch | None = None
) -> Dataset:
    """Read `ROOT/CLASS/image`; images may be in deeper folders, hidden files are ignored.

    If all folders in `root` are called train, validation, test, query or gallery, they contain the
    class folders and set the roles of the images.

    Args:
        root: Folder with one subfolder per class.
        merge: Whether to merge such folders and ignore the roles: for data in which every class is
            in both train and test, as in classification.
        check: Check of every image: "header" (fast) or "decode" (thorough).
        skip_bad: Whether to skip images with a problem, with a warning, instead of raising.
        watch: Callback, called after every file with the number of files that are done, and of all.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder.", hint="Pass a folder with one subfolder per class.")
    parts = [path for path in folders_in(root) if path.is_dir() and not path.name.startswith(".")]
    if parts and all(part.name in ROLES for part in parts):
        listing = by_class(parts, () if merge else [part.name for part in parts])
    else:
        listing = by_class([root])
        loose = [path.name for path in folders_in(root) if path.is_file() and is_image(path.name)]
        if loose and not listing.paths:
            raise DataError(
                f"{root} contains {counted(len(loose), 'image')} but no subfolders of images, so the classes are "
                "unknown.",
                hint=f"Make one subfolder per class, such as {root}/cat/{loose[0]}. Commands that need no labels, such "
                "as `vicinal embed`, take a folder of images as it is.",
            )
        if loose:
            unused = f"{counted(len(loose), 'image')} next to the class folders, not used: {loose[0]}"
            listing.notes.append(f"{unused}, ..." if len(loose) > 1 else unused)
    return dataset_from(listing, printable(root.resolve().name), check=check, skip_bad=skip_bad, watch=watch)
