"""Ids that do not tell what they are: those of files are paths, which are nobody's business where these are private.

A sealed id is the id, encrypted by a key of the server: the same id gives the same text (so that addresses can be
shared), nobody without the key can read or guess it, and none but the server can make one. Built as RFC 5297 does it
(a synthetic initial value): the first 16 bytes are a keyed hash of the id, from which the key stream for the rest is
derived; after opening, the hash is compared. Nothing is looked up, so that a million items cost nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

__all__ = ["SealedIds"]

MARK = 16  # bytes of the keyed hash
STEP = 32  # lengths are rounded up to this, as they would tell something
FIRST = "i"  # character of every sealed id


class SealedIds:
    """Seals and opens ids.

    Args:
        secret: From which the key is derived; with another one all ids look different. Empty for a random one.

    Example:
        >>> ids = SealedIds("a token")
        >>> ids.opened(ids.sealed("/photos/a.jpg"))
        '/photos/a.jpg'
        >>> ids.opened("invented") is None
        True
    """

    def __init__(self, secret: str = "") -> None:
        source = secret.encode() or secrets.token_bytes(32)
        self._key = hashlib.blake2b(source, digest_size=32, person=b"vicinal ids").digest()

    def sealed(self, text: str) -> str:
        """The form that is shown: letters, digits, - and _, with a letter first.

        What begins with - is a formula in a table, and an option in a terminal.
        """
        plain = text.encode()
        plain += b"\0" * (-len(plain) % STEP)  # no id holds a zero character
        mark = self._mark(plain)
        return FIRST + base64.urlsafe_b64encode(mark + self._with_stream(plain, mark)).decode().rstrip("=")

    def opened(self, shown: str) -> str | None:
        """The id; None for what this server has not sealed."""
        if not shown.startswith(FIRST):
            return None
        coded = shown.removeprefix(FIRST)
        try:
            content = base64.urlsafe_b64decode(coded.encode("ascii") + b"=" * (-len(coded) % 4))
        except (ValueError, binascii.Error):
            return None
        mark, hidden = content[:MARK], content[MARK:]
        plain = self._with_stream(hidden, mark)
        if not hmac.compare_digest(mark, self._mark(plain)):
            return None
        return plain.rstrip(b"\0").decode()

    def _mark(self, plain: bytes) -> bytes:
        return hashlib.blake2b(plain, digest_size=MARK, key=self._key, person=b"mark").digest()

    def _with_stream(self, content: bytes, mark: bytes) -> bytes:
        stream = b"".join(
            hashlib.blake2b(mark + place.to_bytes(8, "big"), key=self._key, person=b"stream").digest()
            for place in range(-(-len(content) // 64))
        )
        return bytes(a ^ b for a, b in zip(content, stream, strict=False))
