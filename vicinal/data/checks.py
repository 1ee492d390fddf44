"""Turn what a reader listed into a Dataset, reporting everything that is wrong at once."""

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
    """What a reader found, before any file was looked at; one entry per image in each list.

    Args:
        paths: Image files.
        classes: Name of each image's class.
        roles: Role of each image; empty if the data has none.
        boxes: Crop box of each image; empty if the whole images are used.
        class_order: All class names in the official order; empty for sorted order.
        problems: What is wrong with the listing itself (a malformed line, a missing file list).
        notes: What is odd and stops nobody (an empty class folder).
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
    """Check a listing and make it a Dataset.

    Args:
        listing: What the reader found.
        name: Name of the data.
        check: "header" looks at every file's existence, size and image header; "decode" also
            decodes every pixel, which finds truncated files and takes minutes on large sets. For who goes on to hash
            the data, "content" reads every file whole and remembers its hash, and "looks" remembers what it looks like,
            too: the file is then read once for all three.
        skip_bad: Leave out the images that have a problem, with a warning, instead of raising. They are
            looked for with "decode", so that none is left to stop a training later.
        strict: Whether counts that differ from the official ones are a problem or only a note.
            With `skip_bad` they are always a note.
        official: Expected counts, by the names that `counts` gives.
        watch: Callback, called after every file with the number of files that are done, and of all.

    Raises:
        DataError: With every problem, unless `skip_bad`.
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
            "Mend them, or pass skip_bad=True (--skip-bad) to go on without the bad images"
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
    """Class names sorted, as numbers if all of them are.

    Example:
        >>> in_order(["10", "9"]), in_order(["10", "9a"])
        (['9', '10'], ['10', '9a'])
    """
    ordered = sorted(names)
    return sorted(ordered, key=int) if all(map(is_number, ordered)) else ordered


def is_number(name: str) -> bool:
    """Return whether a class's name is a whole number; one of more digits than integers have is a name."""
    return name.isdecimal() and len(name) <= DIGITS


def counts(classes: Sequence[str], order: Sequence[str], roles: Sequence[str]) -> dict[str, int]:
    """Images and classes overall, per half of the classes, and per role.

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
    found = counts(listing.classes, order, listing.roles)
    return [
        f"{found.get(what, 0):,} {what}; the official number is {expected:,}"
        for what, expected in official.items()
        if found.get(what, 0) != expected
    ]


def _problems_of(listing: Listing, check: str, watch: Watch | None, *, decode: bool) -> tuple[list[str], set[int]]:
    """Every problem in words, and the positions of the images that have one."""
    problems = list(listing.problems)
    bad: set[int] = set()
    if listing.roles:
        sides: defaultdict[str, set[str]] = defaultdict(set)
        for name, role in zip(listing.classes, listing.roles, strict=True):
            sides[name].add(role if role in ("train", "validation") else "test")
        leaks = {name: found for name, found in sorted(sides.items()) if len(found) > 1}
        problems += [f"class on both sides of the split ({', '.join(sorted(leaks[name]))}): {name}" for name in leaks]
        bad.update(i for i, name in enumerate(listing.classes) if name in leaks)
    listed: defaultdict[str, list[int]] = defaultdict(list)
    for i, path in enumerate(listing.paths):
        listed[path].append(i)
    for path, places in listed.items():
        if len(places) > 1:
            labels = sorted({listing.classes[i] for i in places})
            problems.append(f"listed {len(places)} times as {', '.join(labels)}: {path}")
            bad.update(places if len(labels) > 1 else places[1:])
    for path, fault in zip(listed, find_faults(list(listed), check, watch, decode=decode), strict=True):
        if fault:
            problems.append(f"{fault}: {path}")
            bad.update(listed[path])
    return problems, bad


def find_faults(
    paths: Sequence[str], check: str = "header", watch: Watch | None = None, *, decode: bool = False
) -> list[str | None]:
    """What is wrong with each image file: "missing", "empty", "unreadable (why)" or None.

    Args:
        paths: Image files.
        check: What is remembered of each, as in `dataset_from`.
        watch: Callback, called after every file with the number of files that are done, and of all.
        decode: Whether to decode every pixel.
    """
    looks = check == "looks" and len(paths) <= MOST  # more are not compared by their looks
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
