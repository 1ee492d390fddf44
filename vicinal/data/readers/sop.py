"""Stanford Online Products (Oh Song et al. 2016): 120,053 photographs of 22,634 products."""

from __future__ import annotations

from pathlib import Path

from vicinal.data.checks import Listing, dataset_from, is_number
from vicinal.data.dataset import Dataset
from vicinal.data.files import Watch
from vicinal.data.readers.layout import find_root, read_rows

OFFICIAL = {
    "images": 120_053,
    "classes": 22_634,
    "train images": 59_551,
    "train classes": 11_318,
    "test images": 60_502,
    "test classes": 11_316,
}
LAYOUTS = {
    "": ["Ebay_train.txt", "Info_Files"],
    "Stanford_Online_Products": ["Ebay_train.txt"],
    "online_products": ["Info_Files"],
}


def sop(
    root: str | Path, *, check: str = "header", skip_bad: bool = False, strict: bool = True, watch: Watch | None = None
) -> Dataset:
    """Read Stanford Online Products; its two lists are the roles "train" and "test".

    Args:
        root: Folder with `Ebay_train.txt` and `Ebay_test.txt`, or `online_products/` with
            `Info_Files/` and `images/`.
        check: Check of every image: "header" (fast) or "decode" (thorough).
        skip_bad: Whether to skip images with a problem, with a warning, instead of raising.
        strict: Whether counts that differ from the official ones are a problem rather than a note.
        watch: Callback, called after every file with the number of files that are done, and of all.

    Reference:
        Oh Song, Xiang, Jegelka and Savarese, Deep metric learning via lifted structured feature
        embedding, CVPR 2016.
    """
    folder = find_root(root, "Stanford Online Products", LAYOUTS)
    lists, images = folder, folder
    if not (folder / "Ebay_train.txt").is_file():
        lists, images = folder / "Info_Files", folder / "images"
    listing = Listing()
    ids: dict[str, int] = {}
    for role in ("train", "test"):
        rows = read_rows(lists / f"Ebay_{role}.txt", 4, listing.problems, skip=1)
        for _, class_id, _, path in rows:
            name = f"{path.split('_final')[0]}/{class_id}"
            if not is_number(class_id):
                listing.problems.append(f"the class of {path} is not a number: {class_id}")
                continue
            ids[name] = int(class_id)
            listing.paths.append(str(images / path))
            listing.classes.append(name)
            listing.roles.append(role)
    listing.class_order = sorted(ids, key=ids.__getitem__)
    return dataset_from(listing, "sop", check=check, skip_bad=skip_bad, strict=strict, official=OFFICIAL, watch=watch)
