"""Any folder of labelled images."""

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
    """Read `ROOT/CLASS/image`; images may lie deeper, hidden files are passed over.

    If all folders in `root` are called train, validation, test, query or gallery, they hold the
    class folders and give the images their roles.

    Args:
        root: The folder.
        merge: Put such folders together and forget the roles: for data whose every class is both
            in train and in test, as classification has it.
        check: "header" or "decode": how closely every image is looked at.
        skip_bad: Go on without the images that have a problem, with a warning.
        watch: Callback, called after every file with the number of files that are done, and of all.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder.", hint="Give a folder with one subfolder per class.")
    parts = [path for path in folders_in(root) if path.is_dir() and not path.name.startswith(".")]
    if parts and all(part.name in ROLES for part in parts):
        listing = by_class(parts, () if merge else [part.name for part in parts])
    else:
        listing = by_class([root])
        loose = [path.name for path in folders_in(root) if path.is_file() and is_image(path.name)]
        if loose and not listing.paths:
            raise DataError(
                f"{root} holds {counted(len(loose), 'image')} and no sub-folders of images: which of them belong "
                "together?",
                hint=f"Make one sub-folder per class, such as {root}/cat/{loose[0]}. Where no labels are needed, "
                "as in `vicinal embed`, a folder of images is taken as it is.",
            )
        if loose:
            beside = f"{counted(len(loose), 'image')} beside the class folders, not used: {loose[0]}"
            listing.notes.append(f"{beside}, ..." if len(loose) > 1 else beside)
    return dataset_from(listing, printable(root.resolve().name), check=check, skip_bad=skip_bad, watch=watch)
