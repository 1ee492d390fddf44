"""Small pictures of items: only of files that the index lists and that lie inside its root, links resolved."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from io import BytesIO
from typing import final

from PIL import Image

from vicinal.data.cutting import open_image
from vicinal.data.files import IMAGE_ERRORS, archive_of
from vicinal.index.item import Item
from vicinal.index.server.refusal import Refusal

__all__ = ["Thumbnails"]

KEPT = 64 << 20  # bytes
QUALITY = 85


@final
class Thumbnails:
    """Makes small pictures, and keeps the last of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def tag(self, item: Item, size: int) -> str:
        """What changes when the picture does: for the header ETag."""
        content = f"{item.id!r} {item.hash} {item.stamp} {size}".encode()
        return f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    def jpeg(self, item: Item, size: int, root: str | None) -> bytes:
        """The picture of an item, as large as fits a square.

        Args:
            item: Of the index.
            size: Of the square, in pixels.
            root: The folder that pictures are shown from, links resolved.
        """
        key = self.tag(item, size)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = _made(_path_inside(item, root), size)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._bytes += len(made)
            while self._bytes > KEPT:
                self._bytes -= len(self._kept.popitem(last=False)[1])
        return made


def _path_inside(item: Item, root: str | None) -> str:
    nothing = Refusal(404, "This item has no picture that can be shown.")
    if item.path is None or root is None:
        raise nothing
    inside = archive_of(item.path)
    if inside is None:
        real = os.path.realpath(item.path)
    else:
        real = os.path.join(os.path.realpath(inside[0]), os.path.normpath(inside[1]))
    if os.path.commonpath([real, root]) != root:
        raise nothing
    return real


def _made(path: str, size: int) -> bytes:
    try:
        image = open_image(path)
        image.draft("RGB", (size, size))
        image.thumbnail((size, size), Image.Resampling.BICUBIC, reducing_gap=2.0)
        small = _on_white(image)
        content = BytesIO()
        small.save(content, "JPEG", quality=QUALITY)
    except FileNotFoundError:
        raise Refusal(404, "The file of this item is gone.") from None
    except IMAGE_ERRORS:
        raise Refusal(422, "The file of this item is not a picture that can be read.") from None
    return content.getvalue()


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode not in ("RGBA", "LA", "PA") and "transparency" not in image.info:
        return image.convert("RGB")
    opaque = Image.new("RGBA", image.size, "white")
    opaque.alpha_composite(image.convert("RGBA"))
    return opaque.convert("RGB")
