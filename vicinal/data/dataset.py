"""The class `Dataset`: items, labels or sets of labels, class names and roles, with a hash of the content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
from PIL import Image

from vicinal._util.html import html_page, html_picture
from vicinal._util.reading import printable
from vicinal._util.text import counted
from vicinal.data.files import IMAGE_ERRORS, digest, map_files, open_header, read_bytes, upright
from vicinal.errors import DataError, InputError

__all__ = ["first_of_each_label", "need_one_label"]


ROLES = ("train", "validation", "test", "query", "gallery")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Labelled items of one kind: image files, images in memory, or feature vectors.

    Args:
        items: Paths (a file inside a zip is `archive.zip/inner/path`), uint8 images [n, h, w] or
            [n, h, w, 3], or float vectors [n, d].
        labels: int64 [n], indices into `class_names`. Or sets of labels: booleans [n, classes], a row for each item,
            which may be empty.
        class_names: Original name of every class, all different.
        roles: Role of each item, "train", "validation", "test", "query" or "gallery", if the data has
            an official split; None otherwise.
        boxes: float [n, 4]; left, top, right, bottom of the part of each image file that is used.
            A row of NaN means the whole image.
        name: Name of the data in records and tables.
        notes: Notes from the reader, such as which items it skipped.

    Example:
        >>> data = Dataset(np.eye(3, dtype=np.float32), np.array([0, 1, 1]), ("cat", "dog"))
        >>> len(data), data.kind, data.of_classes([1]).class_names
        (3, 'vectors', ('dog',))
    """

    items: tuple[str, ...] | npt.NDArray[Any]
    labels: npt.NDArray[Any]
    class_names: tuple[str, ...]
    roles: npt.NDArray[Any] | None = None
    boxes: npt.NDArray[np.floating[Any]] | None = None
    name: str = "data"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.items)
        if self.has_sets:
            if self.labels.dtype != np.bool_ or self.labels.shape != (n, len(self.class_names)):
                raise InputError(
                    f"Sets of labels are booleans, a row for each of {n} items and a column for each of "
                    f"{len(self.class_names)} class names; got {self.labels.dtype} {self.labels.shape}."
                )
        elif self.labels.shape != (n,):
            raise InputError(f"labels must have one entry per item: {n} items, labels {self.labels.shape}.")
        elif n and not 0 <= self.labels.min() <= self.labels.max() < len(self.class_names):
            raise InputError(
                f"labels must lie in 0..{len(self.class_names) - 1} (there are {len(self.class_names)} class "
                f"names); got {self.labels.min()}..{self.labels.max()}."
            )
        if len(set(self.class_names)) < len(self.class_names):
            repeated = sorted({name for name in self.class_names if self.class_names.count(name) > 1})
            raise InputError(f"class names must all be different; repeated: {', '.join(repeated[:5])}.")
        if self.roles is not None:
            if self.roles.shape != (n,):
                raise InputError(f"roles must have one entry per item: {n} items, roles {self.roles.shape}.")
            if unknown := sorted(set(self.roles.tolist()) - set(ROLES)):
                raise InputError(f"roles must be among {', '.join(ROLES)}; got {', '.join(unknown)}.")
        if self.boxes is not None and (self.boxes.shape != (n, 4) or self.kind != "paths"):
            raise InputError(
                f"boxes must be [n, 4] and belong to image files; got {self.boxes.shape} for {n} {self.kind}."
            )
        if self.kind == "images" and not (self.items.ndim == 3 or self.items.shape[3] == 3):  # type: ignore[union-attr]
            raise InputError(
                f"images must be [n, h, w] or [n, h, w, 3]; got {list(np.shape(self.items))}. Channels come last."
            )

    def __len__(self) -> int:
        return len(self.items)

    def _repr_html_(self) -> str:
        """Return a few items of a few classes as HTML, for notebooks."""
        from vicinal.data.sheets import contact_sheet

        if self.kind == "vectors" or not len(self):
            return html_page(repr(self))
        try:
            sheet = contact_sheet(self, rows=4, columns=10, size=64)
        except IMAGE_ERRORS:  # show the summary without images
            return html_page(repr(self), "<p>Not every image can be read.</p>")
        return html_page(repr(self), html_picture(sheet, repr(self)))

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {len(self):,} {self.kind}, {counted(len(self.classes), 'class')})"

    @property
    def kind(self) -> Literal["paths", "images", "vectors"]:
        """Kind of the items."""
        if isinstance(self.items, tuple):
            return "paths"
        if self.items.dtype == np.uint8 and self.items.ndim in (3, 4):
            return "images"
        if self.items.dtype.kind == "f" and self.items.ndim == 2:
            return "vectors"
        raise InputError(
            "items must be a tuple of paths, uint8 images [n, h, w(, 3)] or float vectors [n, d]; "
            f"got {self.items.dtype} {list(self.items.shape)}."
        )

    @property
    def has_sets(self) -> bool:
        """Whether items have sets of labels instead of one label each."""
        return self.labels.ndim == 2

    @property
    def classes(self) -> npt.NDArray[np.int64]:
        """Labels that occur, in ascending order."""
        return np.flatnonzero(self.labels.any(axis=0)) if self.has_sets else np.unique(self.labels)

    def members(self, label: int) -> npt.NDArray[np.int64]:
        """Return the positions of the items of a class."""
        return np.flatnonzero(self.labels[:, label] if self.has_sets else self.labels == label)

    def item(self, index: int) -> Any:
        """Return the raw item: a path, an image array or a vector."""
        return self.items[index]

    def open(self, index: int) -> Image.Image:
        """Return the image in its own mode, rotated by its EXIF orientation unless a box is cropped from it.

        A file is not decoded until its pixels are used, or it has to be rotated.
        """
        if self.kind == "vectors":
            raise InputError(f"{self.name} holds feature vectors; they cannot be opened as images.")
        if not isinstance(self.items, tuple):
            return Image.fromarray(self.items[index])
        image = open_header(read_bytes(self.items[index]))
        if self.boxes is not None and np.isfinite(self.boxes[index]).all():
            return image.crop(tuple(int(edge) for edge in self.boxes[index].round()))  # type: ignore[arg-type]
        return upright(image)

    def image(self, index: int) -> Image.Image:
        """Return the image in RGB."""
        return self.open(index).convert("RGB")

    def subset(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> Dataset:
        """Return the items at the given indices, in that order, with the same labels and class names."""
        chosen = np.asarray(indices, dtype=np.int64)
        taken = tuple(self.items[i] for i in chosen) if isinstance(self.items, tuple) else self.items[chosen]
        return replace(
            self,
            items=taken,
            labels=self.labels[chosen],
            roles=None if self.roles is None else self.roles[chosen],
            boxes=None if self.boxes is None else self.boxes[chosen],
        )

    def of_classes(self, class_ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> Dataset:
        """Return the items of the chosen classes, relabelled from 0 in the order of `class_ids`.

        Sets of labels are never cut: either all labels of an item are chosen, or none.
        """
        chosen = np.asarray(class_ids, dtype=np.int64)
        if outside := [int(c) for c in chosen if not 0 <= c < len(self.class_names)]:
            raise InputError(f"no such classes: {outside}; there are classes 0..{len(self.class_names) - 1}.")
        names = tuple(self.class_names[c] for c in chosen)
        if self.has_sets:
            inside = self.labels[:, chosen]
            have, torn = inside.any(axis=1), inside.sum(axis=1) < self.labels.sum(axis=1)
            if cut := int((have & torn).sum()):
                raise InputError(
                    f"Labels among {', '.join(names[:5])}{', ...' if len(names) > 5 else ''} and others: "
                    f"{counted(cut, 'item')}. Choose the others too, or choose items by `subset`."
                )
            return replace(self.subset(np.flatnonzero(have)), labels=inside[have], class_names=names)
        new_label = np.full(len(self.class_names), -1, dtype=np.int64)
        new_label[chosen] = np.arange(len(chosen))
        part = self.subset(np.flatnonzero(new_label[self.labels] >= 0))
        return replace(part, labels=new_label[part.labels], class_names=names)

    @property
    def has_gallery(self) -> bool:
        """Whether some items are queries and others are the gallery to search."""
        return self.roles is not None and {"query", "gallery"} <= set(self.roles.tolist())

    def with_role(self, *roles: str) -> Dataset:
        """Return the items that have one of the roles, with the same labels and class names."""
        if self.roles is None:
            raise InputError(f"{self.name} has no roles; requested: {', '.join(roles)}.")
        return self.subset(np.flatnonzero(np.isin(self.roles, roles)))

    def hash(self) -> str:
        """Return the SHA-256 of the content: items (the bytes of files, not their paths), labels, names, roles, boxes.

        Moving or renaming files does not change it; changing one byte, label or the order does.
        """
        total = hashlib.sha256()
        if isinstance(self.items, tuple):
            try:
                _add(total, "paths", map_files(digest, self.items))
            except OSError as error:
                raise DataError(f"{self.name}: a file was removed or changed: {printable(error)}.") from None
        else:
            _add(total, "items", _array_bytes(self.items))
        _add(total, "labels", _array_bytes(self.labels))
        _add(total, "class_names", (name.encode() for name in self.class_names))
        _add(total, "roles", (role.encode() for role in (() if self.roles is None else self.roles.tolist())))
        _add(total, "boxes", () if self.boxes is None else _array_bytes(self.boxes.astype(np.float64)))
        return total.hexdigest()


def _array_bytes(array: npt.NDArray[Any]) -> Iterable[bytes]:
    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return (f"{little_endian.dtype.str}{array.shape}".encode(), np.ascontiguousarray(little_endian).tobytes())


def _add(total: Any, field: str, parts: Iterable[bytes]) -> None:
    """Hash a field with its name and the length of every part, so that different contents cannot collide."""
    total.update(f"[{field}]".encode())
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)


# Sets of labels: connected labels, and a check for functions that need one label per item.


def first_of_each_label(data: Dataset) -> npt.NDArray[np.int64]:
    """Return for each class the first class it is connected with: by an item with both labels, or by a chain of items.

    Classes that are not connected share no item, and may be on different sides of a split.

    Example:
        >>> sets = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]], dtype=bool)
        >>> first_of_each_label(Dataset(np.eye(3), sets, ("a", "b", "c", "d"))).tolist()
        [0, 0, 2, 0]
    """
    if not data.has_sets:
        return np.arange(len(data.class_names))
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    sets = csr_matrix(data.labels.astype(np.int64))
    component = connected_components(sets.T @ sets, directed=False)[1]
    first: npt.NDArray[np.int64] = np.unique(component, return_index=True)[1][component].astype(np.int64)
    return first


def need_one_label(data: Dataset, what: str) -> None:
    """Raise an error if items have sets of labels; the message says which functions accept them.

    Args:
        data: Dataset to check.
        what: Name of the function or feature that needs one label per item, for the message.
    """
    if data.has_sets:
        raise InputError(
            f"{what} needs one label per item, and {data.name} has sets of labels: vicinal.fit trains on them and "
            "vicinal.evaluate scores them."
        )
