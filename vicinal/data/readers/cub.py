"""Caltech-UCSD Birds 200-2011 (Wah et al. 2011): 11,788 photographs of 200 species."""

from __future__ import annotations

from pathlib import Path

from vicinal.data.checks import Listing, dataset_from, in_order
from vicinal.data.dataset import Dataset
from vicinal.data.files import Watch
from vicinal.data.readers.layout import by_class, find_root, read_rows

OFFICIAL = {
    "images": 11_788,
    "classes": 200,
    "images of the first half of the classes": 5_864,
    "images of the second half of the classes": 5_924,
}


def cub(
    root: str | Path,
    *,
    crop: bool = False,
    check: str = "header",
    skip_bad: bool = False,
    strict: bool = True,
    watch: Watch | None = None,
) -> Dataset:
    """Read CUB-200-2011, as it was published or as folders by class.

    In metric learning classes 1-100 are for training and 101-200 for testing, so the data has no
    roles: the file `train_test_split.txt` divides every class and is for classification.

    Args:
        root: Folder `CUB_200_2011` (with `images.txt`), or a folder with `images/CLASS/`, or with
            `train/CLASS/` and `test/CLASS/`, which are merged.
        crop: Whether to use only the bounding box of the bird (needs `bounding_boxes.txt`).
        check: Check of every image: "header" (fast) or "decode" (thorough).
        skip_bad: Whether to skip images with a problem, with a warning, instead of raising.
        strict: Whether counts that differ from the official ones are a problem rather than a note.
        watch: Callback, called after every file with the number of files that are done, and of all.

    Reference:
        Wah, Branson, Welinder, Perona and Belongie, The Caltech-UCSD Birds-200-2011 dataset, 2011.
    """
    folder = find_root(root, "CUB-200-2011", {"": ["images.txt", "images", "train"], "CUB_200_2011": ["images"]})
    if (folder / "images.txt").is_file():
        listing = _official(folder, crop)
    else:
        listing = by_class([folder / part for part in ("images", "train", "test")])
        if crop:
            listing.problems.append("crop=True needs images.txt and bounding_boxes.txt, which are missing")
    return dataset_from(listing, "cub", check=check, skip_bad=skip_bad, strict=strict, official=OFFICIAL, watch=watch)


def _official(folder: Path, crop: bool) -> Listing:
    listing = Listing()
    names = {row[0]: row[1] for row in read_rows(folder / "classes.txt", 2, listing.problems)}
    class_of = {row[0]: row[1] for row in read_rows(folder / "image_class_labels.txt", 2, listing.problems)}
    box_of = {}
    if crop:
        for image, *corner in read_rows(folder / "bounding_boxes.txt", 5, listing.problems):
            try:
                x, y, width, height = map(float, corner)
            except ValueError:
                listing.problems.append(f"image {image} has a box that is not four numbers: {' '.join(corner)}")
                continue
            box_of[image] = (x, y, x + width, y + height)
    for image, path in read_rows(folder / "images.txt", 2, listing.problems):
        label = class_of.get(image)
        if label not in names or (crop and image not in box_of):
            listing.problems.append(f"image {image} has no class or no box: {path}")
            continue
        listing.paths.append(str(folder / "images" / path))
        listing.classes.append(names[label])
        if crop:
            listing.boxes.append(box_of[image])
    listing.class_order = [names[label] for label in in_order(names)]
    return listing
