"""Pictures as they are sent to a server: the bytes of their files, in a body of their own or in a form."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vicinal.data.readers.layout import images_below
from vicinal.errors import DataError, InputError

__all__ = ["file_content", "form_body", "pictures_of"]


def pictures_of(query: Any) -> tuple[list[Any], bool]:
    """What is to be sent, and whether it is one picture alone."""
    if isinstance(query, str | os.PathLike) and Path(query).is_dir():
        files = list(images_below(Path(query)))
        if not files:
            raise InputError("That folder has no images to search for.")
        return files, False
    if isinstance(query, str | os.PathLike | bytes | Image.Image):
        return [query], True
    if isinstance(query, np.ndarray) and (query.ndim == 2 or (query.ndim == 3 and query.shape[2] in (1, 3))):
        return [query], True
    return list(query), False


def file_content(picture: Any) -> bytes:
    """The bytes of a picture's file."""
    if isinstance(picture, bytes):
        return picture
    if isinstance(picture, str | os.PathLike):
        try:
            return Path(picture).read_bytes()
        except OSError as error:
            raise DataError(f"{picture} cannot be read: {error.strerror or error}.") from None
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8:
            raise InputError(f"An image array must be uint8; got {picture.dtype}.")
        picture = Image.fromarray(picture.squeeze(2) if picture.shape[2:] == (1,) else picture)
    if not isinstance(picture, Image.Image):
        raise InputError(f"A picture is a path, bytes, an image or an array; got {type(picture).__name__}.")
    content = BytesIO()
    (picture if picture.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else picture.convert("RGB")).save(
        content, "PNG"
    )
    return content.getvalue()


def form_body(fields: Mapping[str, str], files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """A multipart body, and what it is called."""
    edge = secrets.token_hex(16)
    parts = [(f'name="{name}"', value.encode()) for name, value in fields.items()]
    parts += [(f'name="{name}"; filename="picture"', content) for name, content in files.items()]
    written = [
        f"--{edge}\r\nContent-Disposition: form-data; {name}\r\n\r\n".encode() + content + b"\r\n"
        for name, content in parts
    ]
    return f"multipart/form-data; boundary={edge}", b"".join([*written, f"--{edge}--\r\n".encode()])
