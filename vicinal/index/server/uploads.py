"""Reading of request bodies, whose size the guard limits; a picture is opened only if its header is within limits."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesHeaderParser
from io import BytesIO
from typing import TypeVar

from fastapi import Request
from PIL import Image
from pydantic import BaseModel, ValidationError

from vicinal.data.files import IMAGE_ERRORS, upright
from vicinal.index.server.models import Refusal
from vicinal.index.server.settings import ServerSettings

__all__ = [
    "DAMAGED",
    "first_sentence",
    "form_fields",
    "media_type",
    "open_picture",
    "read_body",
    "read_form",
    "read_json_body",
]


# Parser for multipart/form-data (RFC 7578) that splits a complete body at its boundaries, in one pass.
#
# A streaming parser looks at every byte in Python: it took 0.8 seconds for a picture of 19 MB, during which no other
# request was answered.

MOST_HEADERS = 4096  # largest size of the headers of a field, in bytes


def form_fields(content_type: str, body: bytes, most: int) -> dict[str, bytes | str]:
    """Return the fields of a form by name, those with a file name as bytes; the last of two with the same name.

    Args:
        content_type: Content-Type header, which names the boundary.
        body: The complete body.
        most: Largest number of fields.

    Raises:
        ValueError: If it is not a valid form; the message says why.

    Example:
        >>> body = b'--x\\r\\nContent-Disposition: form-data; name="id"\\r\\n\\r\\n17\\r\\n--x--\\r\\n'
        >>> form_fields("multipart/form-data; boundary=x", body, 1)
        {'id': '17'}
    """
    claimed = Message()
    claimed["Content-Type"] = content_type
    boundary = claimed.get_boundary()
    if not boundary:
        raise ValueError("the header Content-Type names no boundary.")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode(), most + 1)[1:]
    if not parts or not any(part.startswith(b"--") for part in parts):
        raise ValueError(f"it does not end with its boundary, or has more than {most} fields.")
    fields: dict[str, bytes | str] = {}
    for part in parts:
        if part.startswith(b"--"):
            break
        head, gap, content = part.partition(b"\r\n\r\n")
        if not gap or len(head) > MOST_HEADERS:
            raise ValueError("a field has no end of its headers.")
        headers = BytesHeaderParser().parsebytes(head.lstrip())
        name = headers.get_param("name", header="content-disposition")
        if not name or isinstance(name, tuple):
            raise ValueError("a field has no name.")
        fields[name] = content if headers.get_filename() is not None else content.decode()
    return fields


# Formats of cameras, phones and browsers. Other decoders of Pillow run programs (EPS) or are rarely tested.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
FIELDS = 16  # largest number of fields in a form
MOST_JSON = 4_000_000  # bytes: two vectors of 65,536 numbers
DAMAGED = "This picture is damaged or cut short."

Model = TypeVar("Model", bound=BaseModel)


def media_type(request: Request) -> str:
    """Return the media type of a request, such as "image/jpeg"; empty if it has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, most: int | None = None) -> bytes:
    """Return the whole body; `most` is a limit in bytes that is stricter than that of all requests."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if most is not None and len(body) > most:
            raise Refusal(413, f"This request may have {most:,} bytes; it has more.", {"Connection": "close"})
    return bytes(body)


async def read_form(request: Request) -> dict[str, bytes | str]:
    """Return the fields of a multipart body by name; files are bytes."""
    body = await read_body(request)
    try:
        return form_fields(request.headers.get("content-type", ""), body, FIELDS)
    except ValueError as error:
        raise Refusal(400, f"The body is not multipart/form-data that can be read: {first_sentence(error)}") from None


async def read_json_body(request: Request, model: type[Model], most: int | None = MOST_JSON) -> Model:
    """Parse a JSON body into a model.

    It is parsed directly into the model, which is several times faster than through dictionaries and requires valid
    Unicode. A thread would not help, since parsing holds the interpreter lock; so the size of bodies is limited to what
    they need.
    """
    body = await read_body(request, most)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False, include_context=False)[0]["type"] == "json_invalid":
            raise Refusal(400, f"The body is not JSON that can be read: {first_sentence(error)}") from None
        raise Refusal(422, first_sentence(error)) from None


def open_picture(content: bytes, settings: ServerSettings) -> Image.Image:
    """Open a picture and turn it upright; one that needs no rotation is not decoded yet, to save work later."""
    if not content:
        raise Refusal(400, "The body is empty: send a picture.")
    try:
        picture = Image.open(BytesIO(content), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(settings) from None
    except IMAGE_ERRORS:
        raise Refusal(415, "This is not a picture that can be read: send JPEG, PNG, WebP, GIF, BMP or TIFF.") from None
    if picture.width * picture.height > settings.max_pixels:
        raise _too_many_pixels(settings)
    try:
        return upright(picture)
    except IMAGE_ERRORS:
        raise Refusal(422, DAMAGED) from None


def first_sentence(error: Exception) -> str:
    """Return the message of an error, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        location = ".".join(map(str, first["loc"]))
        return f"{location}: {first['msg']}." if location else f"{first['msg']}."
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _too_many_pixels(settings: ServerSettings) -> Refusal:
    return Refusal(413, f"Pictures may have at most {settings.max_pixels:,} pixels; this one has more.")
