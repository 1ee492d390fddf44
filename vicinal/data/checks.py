"""Turn a reader's listing into a Dataset, and report all problems at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import final

import numpy as np
from PIL import Image

from vicinal._util.reading import fault_of_file
from vicinal._util.warnings import warn_caller
from vicinal.data.dataset import Dataset
from vicinal.data.files import (
    IMAGE_ERRORS,
    Watch,
    archive_of,
    digest,
    fault_of_image,
    file_size,
    map_files,
    open_header,
    read_bytes,
)
from vicinal.data.lookalikes import MOST, look_at
from vicinal.errors import DataError, InputError

DIGITS = 18
CHECKS = ("header", "decode", "content", "looks")
Box = tuple[float, float, float, float]


@final
@dataclass
class Listing:
    """Files listed by a reader, before any of them is opened; one entry per image in each list.

    Args:
        paths: Image files.
        classes: Name of each image's class.
        roles: Role of each image; empty if the data has none.
        boxes: Crop box of each image; empty if the whole images are used.
        class_order: All class names in the official order; empty for sorted order.
        problems: Errors in the listing itself (a malformed line, a missing file list).
        notes: Oddities that are not errors (an empty class folder).
    """

    paths: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    class_order: Sequence[str] = ()
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def dataset_from(
    listing: Listing,
    name: str,
    *,
    check: str = "header",
    skip_bad: bool = False,
    strict: bool = True,
    official: Mapping[str, int] | None = None,
    watch: Watch | None = None,
) -> Dataset:
    """Check a listing and return it as a Dataset.

    Args:
        listing: Listing from the reader.
        name: Name of the data.
        check: "header" checks every file's existence, size and image header; "decode" also
            decodes every pixel, which finds truncated files and takes minutes on large datasets. If the data is hashed
            next, "content" reads every file completely and caches its hash, and "looks" also caches its perceptual
            hashes: the file is then read once for all three.
        skip_bad: Whether to leave out images with a problem, with a warning, instead of raising an error. They are
            checked with "decode", so that none of them stops a training later.
        strict: Whether counts that differ from the official ones are a problem or only a note.
            With `skip_bad` they are always a note.
        official: Expected counts, by the names that `counts` uses.
        watch: Callback, called after every file with the number of files done and the total.

    Raises:
        DataError: Lists all problems; not raised with `skip_bad`.
    """
    if check not in CHECKS:
        raise InputError(f"check must be {', '.join(map(repr, CHECKS[:-1]))} or {CHECKS[-1]!r}; got {check!r}.")
    order = list(listing.class_order) or in_order(set(listing.classes))
    problems, bad = _problems_of(listing, check, watch, decode=skip_bad or check == "decode")
    notes = _count_problems(listing, order, official or {})
    if strict and not skip_bad:
        problems = [*notes, *problems]
        notes = []
    if not listing.paths:
        problems.append("no images were found")
    if problems and not (skip_bad and len(bad) < len(listing.paths)):
        raise DataError(
            f"{name}: {len(problems):,} problem{'s' if len(problems) > 1 else ''} with the data.",
            problems,
            "Fix them, or pass skip_bad=True (--skip-bad) to skip the bad images"
            + (", or strict=False to accept other counts." if official else "."),
        )
    if problems:
        skipped = f"skipped {len(bad):,} of {len(listing.paths):,} images"
        warn_caller(f"{name}: {skipped}; the first problem: {problems[0]}")
        notes = [skipped, *problems, *notes]
    keep = [i for i in range(len(listing.paths)) if i not in bad]
    label_of = {name: label for label, name in enumerate(order)}
    return Dataset(
        items=tuple(listing.paths[i] for i in keep),
        labels=np.array([label_of[listing.classes[i]] for i in keep], dtype=np.int64),
        class_names=tuple(order),
        roles=np.array([listing.roles[i] for i in keep]) if listing.roles else None,
        boxes=np.array([listing.boxes[i] for i in keep], dtype=np.float64) if listing.boxes else None,
        name=name,
        notes=(*notes, *listing.notes),
    )


def in_order(names: Iterable[str]) -> list[str]:
    """Return class names sorted, numerically if all of them are numbers.

    Example:
        >>> in_order(["10", "9"]), in_order(["10", "9a"])
        (['9', '10'], ['10', '9a'])
    """
    ordered = sorted(names)
    return sorted(ordered, key=int) if all(map(is_number, ordered)) else ordered


def is_number(name: str) -> bool:
    """Return whether a class name is a whole number; more digits than int64 can hold count as text."""
    return name.isdecimal() and len(name) <= DIGITS


def counts(classes: Sequence[str], order: Sequence[str], roles: Sequence[str]) -> dict[str, int]:
    """Return the numbers of images and classes overall, per half of the classes, and per role.

    Example:
        >>> counts(["a", "a", "b"], ["a", "b"], [])["images of the first half of the classes"]
        2
    """
    first = set(order[: (len(order) + 1) // 2])
    in_first = sum(c in first for c in classes)
    result = {
        "images": len(classes),
        "classes": len(set(classes)),
        "images of the first half of the classes": in_first,
        "images of the second half of the classes": len(classes) - in_first,
    }
    for role in set(roles):
        of_role = [c for c, r in zip(classes, roles, strict=True) if r == role]
        result[f"{role} images"] = len(of_role)
        result[f"{role} classes"] = len(set(of_role))
    return result


def _count_problems(listing: Listing, order: Sequence[str], official: Mapping[str, int]) -> list[str]:
    actual = counts(listing.classes, order, listing.roles)
    return [
        f"{actual.get(what, 0):,} {what}; the official number is {expected:,}"
        for what, expected in official.items()
        if actual.get(what, 0) != expected
    ]


def _problems_of(listing: Listing, check: str, watch: Watch | None, *, decode: bool) -> tuple[list[str], set[int]]:
    """Return a message for every problem, and the positions of the images that have one."""
    problems = list(listing.problems)
    bad: set[int] = set()
    if listing.roles:
        sides: defaultdict[str, set[str]] = defaultdict(set)
        for name, role in zip(listing.classes, listing.roles, strict=True):
            sides[name].add(role if role in ("train", "validation") else "test")
        leaks = {name: on_sides for name, on_sides in sorted(sides.items()) if len(on_sides) > 1}
        problems += [f"class on both sides of the split ({', '.join(sorted(leaks[name]))}): {name}" for name in leaks]
        bad.update(i for i, name in enumerate(listing.classes) if name in leaks)
    listed: defaultdict[str, list[int]] = defaultdict(list)
    for i, path in enumerate(listing.paths):
        listed[path].append(i)
    for path, positions in listed.items():
        if len(positions) > 1:
            labels = sorted({listing.classes[i] for i in positions})
            problems.append(f"listed {len(positions)} times as {', '.join(labels)}: {path}")
            bad.update(positions if len(labels) > 1 else positions[1:])
    for path, fault in zip(listed, find_faults(list(listed), check, watch, decode=decode), strict=True):
        if fault:
            problems.append(f"{fault}: {path}")
            bad.update(listed[path])
    return problems, bad


def find_faults(
    paths: Sequence[str], check: str = "header", watch: Watch | None = None, *, decode: bool = False
) -> list[str | None]:
    """Return the problem of each image file: "missing", "empty", "unreadable (why)" or None.

    Args:
        paths: Image files.
        check: Check to run and content to cache, as in `dataset_from`.
        watch: Callback, called after every file with the number of files done and the total.
        decode: Whether to decode every pixel.
    """
    looks = check == "looks" and len(paths) <= MOST  # more are not compared by perceptual hashes
    whole = check in ("content", "looks")
    return map_files(partial(_fault, decode=decode, whole=whole, looks=looks), paths, watch)


def _fault(path: str, *, decode: bool, whole: bool, looks: bool) -> str | None:
    try:
        archived = archive_of(path) is not None
        if not archived and (fault := fault_of_file(path)) is not None:
            return fault
        if file_size(path) == 0:
            return "empty"
        content = read_bytes(path) if archived or whole else None
        with open_header(path if content is None else content) as image:
            if decode:
                image.load()
            if image.mode == "LAB":
                return "unreadable (colours in LAB, which cannot be turned into RGB)"
        if whole:
            digest(path, content)
        if looks:
            look_at(path, content)
    except FileNotFoundError:
        return "missing"
    except Image.DecompressionBombError as error:
        return f"too large ({error})"
    except IMAGE_ERRORS as error:
        return f"unreadable ({fault_of_image(error)})"
    return None
