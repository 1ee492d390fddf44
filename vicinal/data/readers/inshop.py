"""DeepFashion In-shop Clothes Retrieval (Liu et al. 2016): 52,712 photographs of 7,982 garments."""

from __future__ import annotations

from pathlib import Path

from vicinal.data.checks import Listing, dataset_from
from vicinal.data.dataset import Dataset
from vicinal.data.files import Watch
from vicinal.data.readers.layout import find_root, read_rows

OFFICIAL = {
    "images": 52_712,
    "classes": 7_982,
    "train images": 25_882,
    "train classes": 3_997,
    "query images": 14_218,
    "query classes": 3_985,
    "gallery images": 12_612,
    "gallery classes": 3_985,
}
LIST = "list_eval_partition.txt"


def inshop(
    root: str | Path,
    *,
    highres: bool = False,
    check: str = "header",
    skip_bad: bool = False,
    strict: bool = True,
    watch: Watch | None = None,
) -> Dataset:
    """Read the In-shop benchmark; the roles are "train", "query" and "gallery".

    Args:
        root: Folder of the benchmark, with `Eval/list_eval_partition.txt` and the images in
            `Img/img/`, `img/` or `Img/img.zip`.
        highres: Whether to read `img_highres` instead of `img` (256 x 256).
        check: Check of every image: "header" (fast) or "decode" (thorough).
        skip_bad: Whether to skip images with a problem, with a warning, instead of raising.
        strict: Whether counts that differ from the official ones are a problem rather than a note.
        watch: Callback, called after every file with the number of files that are done, and of all.

    Reference:
        Liu, Luo, Qiu, Wang and Tang, DeepFashion: powering robust clothes recognition and
        retrieval with rich annotations, CVPR 2016.
    """
    layouts = {"": [f"Eval/{LIST}", LIST], "In-shop Clothes Retrieval Benchmark": [f"Eval/{LIST}"]}
    folder = find_root(root, "the In-shop benchmark", layouts)
    partition = next(f for f in (folder / "Eval" / LIST, folder / LIST) if f.is_file())
    images = "img_highres" if highres else "img"
    candidates = (folder / "Img", folder, folder / "Img" / f"{images}.zip")
    parent = next((p for p in candidates if (p / images).is_dir() or p.is_file()), folder / "Img")
    listing = Listing()
    for path, item, role in read_rows(partition, 3, listing.problems, skip=2):
        if role not in ("train", "query", "gallery"):
            listing.problems.append(f"unknown evaluation_status {role!r}: {path}")
            continue
        listing.paths.append(f"{parent}/{images}/{path.removeprefix('img/')}")
        listing.classes.append(item)
        listing.roles.append(role)
    return dataset_from(
        listing, "inshop", check=check, skip_bad=skip_bad, strict=strict, official=OFFICIAL, watch=watch
    )
