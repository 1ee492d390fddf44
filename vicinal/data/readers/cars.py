"""Stanford Cars (Krause et al. 2013): 16,185 photographs of 196 models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vicinal._util.reading import read_csv, read_mat, reading
from vicinal.data.checks import Listing, dataset_from
from vicinal.data.dataset import Dataset
from vicinal.data.files import Watch
from vicinal.data.readers.layout import by_class, find_root

OFFICIAL = {
    "images": 16_185,
    "classes": 196,
    "images of the first half of the classes": 8_054,
    "images of the second half of the classes": 8_131,
}
LAYOUTS = {
    "": ["cars_annos.mat", "devkit", "train", "images"],
    "cars196": ["cars_annos.mat", "images"],
    "car_data/car_data": ["train"],
    "car_data": ["train"],
}


def cars196(
    root: str | Path,
    *,
    crop: bool = False,
    check: str = "header",
    skip_bad: bool = False,
    strict: bool = True,
    watch: Watch | None = None,
) -> Dataset:
    """Read Cars196 in any of the layouts in which it is distributed.

    The first 98 classes are for training and the others for testing, the same in all layouts.

    Args:
        root: Folder with `cars_annos.mat` and `car_ims/` (combined); with `devkit/`,
            `cars_train/` and `cars_test/`; with `train/CLASS/` and `test/CLASS/`, also below
            `car_data/car_data/`; or with `images/CLASS/`. The first and the last may be in `cars196/`.
        crop: Whether to use only the bounding box of the car (combined and devkit layouts).
        check: Check of every image: "header" (fast) or "decode" (thorough).
        skip_bad: Whether to skip images with a problem, with a warning, instead of raising.
        strict: Whether counts that differ from the official ones are a problem rather than a note.
        watch: Callback, called after every file with the number of files that are done, and of all.

    Reference:
        Krause, Stark, Deng and Fei-Fei, 3D object representations for fine-grained categorization, 2013.
    """
    folder = find_root(root, "Cars196", LAYOUTS)
    if (folder / "cars_annos.mat").is_file():
        listing = _combined(folder)
    elif (folder / "devkit").is_dir():
        listing = _devkit(folder)
    else:
        listing = by_class([folder / part for part in ("images", "train", "test")])
        listing.class_order = _kaggle_order(folder, listing)
        if crop:
            listing.problems.append("crop=True needs cars_annos.mat or devkit/, which are missing")
    if not crop:
        listing.boxes = []
    return dataset_from(
        listing, "cars196", check=check, skip_bad=skip_bad, strict=strict, official=OFFICIAL, watch=watch
    )


def _combined(folder: Path) -> Listing:
    file = folder / "cars_annos.mat"
    content = read_mat(file)
    with reading(file, "the list of Cars196"):
        listing = Listing(class_order=[str(name) for name in content["class_names"]])
        for row in content["annotations"]:
            _add(listing, folder / str(row["relative_im_path"]), row)
    return listing


def _devkit(folder: Path) -> Listing:
    listing = Listing()
    meta = folder / "devkit" / "cars_meta.mat"
    labelled = "cars_test_annos_withlabels.mat"
    test = folder / labelled if (folder / labelled).is_file() else folder / "devkit" / labelled
    parts = {"cars_train": folder / "devkit" / "cars_train_annos.mat", "cars_test": test}
    for file in (meta, *parts.values()):
        if not file.is_file():
            listing.problems.append(f"missing: {file}")
    if listing.problems:
        return listing
    with reading(meta, "the classes of Cars196"):
        listing.class_order = [str(name) for name in read_mat(meta)["class_names"]]
    for images, file in parts.items():
        with reading(file, "a list of Cars196"):
            for row in read_mat(file)["annotations"]:
                _add(listing, folder / images / str(row["fname"]), row)
    return listing


def _add(listing: Listing, path: Path, row: Any) -> None:
    listing.paths.append(str(path))
    listing.classes.append(listing.class_order[int(row["class"]) - 1])
    # MATLAB counts pixels from 1 and includes the last one.
    listing.boxes.append(
        (float(row["bbox_x1"]) - 1, float(row["bbox_y1"]) - 1, float(row["bbox_x2"]), float(row["bbox_y2"]))
    )


def _kaggle_order(folder: Path, listing: Listing) -> list[str]:
    """Return the official order of classes from `names.csv`, if it exists and names the folders; else sorted."""
    classes = set(listing.classes)
    for parent in (folder, folder.parent, folder.parent.parent):
        if (parent / "names.csv").is_file():
            # Folder names cannot contain a slash.
            names = [row[0].replace("/", "-") for row in read_csv(parent / "names.csv") if row]
            if classes <= set(names):
                return names
    return sorted(classes)
