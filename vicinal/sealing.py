"""JSON objects whose last field is a checksum of the rest: damage that leaves them valid JSON is seen."""

from __future__ import annotations

import hashlib
from typing import Literal

__all__ = ["sealed", "unsealed"]

DIGITS = 16
SEAL = b',"sha256":"%s"}'
LENGTH = len(SEAL % (b"0" * DIGITS))


def sealed(text: bytes) -> bytes:
    """Return a JSON object with its checksum as the last field.

    Example:
        >>> sealed(b'{"step": 1}')
        b'{"step": 1,"sha256":"66acd07fcea20439"}'
    """
    return text[:-1] + SEAL % hashlib.sha256(text).hexdigest()[:DIGITS].encode()


def unsealed(text: bytes) -> tuple[bytes, Literal["sealed", "never sealed", "damaged"]]:
    """Return what was sealed, and whether it still is what it was.

    What earlier versions wrote has no seal; nor has a line that a killed process left half-written.

    Example:
        >>> unsealed(sealed(b'{"step": 1}'))
        (b'{"step": 1}', 'sealed')
        >>> unsealed(sealed(b'{"step": 1}').replace(b"1,", b"2,"))[1]
        'damaged'
    """
    if not text[-LENGTH:].startswith(b',"sha256":"'):
        return text, "never sealed"
    content = text[:-LENGTH] + b"}"
    return content, "sealed" if sealed(content) == text else "damaged"
