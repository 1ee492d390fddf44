"""Omniglot (Lake et al. 2015): 1,623 characters of 50 alphabets, drawn by 20 people each."""

from __future__ import annotations

import os
from pathlib import Path

from vicinal.data.checks import Listing, dataset_from
from vicinal.data.dataset import Dataset
from vicinal.data.files import Watch, open_archive
from vicinal.data.readers.layout import find_root, images_below

OFFICIAL = {
    "images": 32_460,
    "classes": 1_623,
    "train images": 19_280,
    "train classes": 964,
    "test images": 13_180,
    "test classes": 659,
}
MARKS = ["images_background", "images_background.zip"]


def omniglot(
    root: str | Path, *, check: str = "header", skip_bad: bool = False, strict: bool = True, watch: Watch | None = None
) -> Dataset:
    """Read Omniglot from its two zips or from the folders inside them.

    The background set has the role "train" and the evaluation set "test"; class names are
    `Alphabet/characterNN`.

    Args:
        root: Folder with `images_background` and `images_evaluation`, each a folder or a zip, which
            is read in place.
        check: Check of every image: "header" (fast) or "decode" (thorough).
        skip_bad: Whether to skip images with a problem, with a warning, instead of raising.
        strict: Whether counts that differ from the official ones are a problem rather than a note.
        watch: Callback, called after every file with the number of files that are done, and of all.

    Reference:
        Lake, Salakhutdinov and Tenenbaum, Human-level concept learning through probabilistic
        program induction, Science 2015.
    """
    folder = find_root(root, "Omniglot", {"": MARKS, "omniglot": MARKS, "python": MARKS, "omniglot/python": MARKS})
    listing = Listing()
    order: list[str] = []
    for role, part in (("train", "images_background"), ("test", "images_evaluation")):
        paths = _images(folder, part)
        if not paths:
            listing.problems.append(f"no images in {folder / part} or {part}.zip")
        classes = ["/".join(path.replace(os.sep, "/").split("/")[-3:-1]) for path in paths]
        listing.paths += paths
        listing.classes += classes
        listing.roles += [role] * len(paths)
        order += sorted(set(classes) - set(order))
    listing.class_order = order
    return dataset_from(
        listing, "omniglot", check=check, skip_bad=skip_bad, strict=strict, official=OFFICIAL, watch=watch
    )


def _images(folder: Path, part: str) -> list[str]:
    if (folder / part).is_dir():
        return list(images_below(folder / part))
    archive = folder / f"{part}.zip"
    if not archive.is_file():
        return []
    members = sorted(open_archive(str(archive)).namelist())
    return [f"{archive}/{name}" for name in members if name.startswith(f"{part}/") and name.endswith(".png")]
