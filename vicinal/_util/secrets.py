"""Mask secrets in addresses that appear in messages, records and pages."""

from __future__ import annotations

import re
from urllib.parse import unquote

__all__ = ["has_secret", "masked", "without_secrets"]

HIDDEN = "***"
# A password may contain "@", ":" and "/": everything from the first ":" to the last "@" counts as the password.
USER = re.compile(r"(?<=://)([^:@/?#]*):([^\s]*)(?=@)")
ALONE = re.compile(r"(?<=://)[^:@/?#\s]+(?=@)")
PARAMETER = re.compile(
    r"([?&;][^=&;\s]*(?:pass|pwd|token|secret|key|sig|credential|auth)[^=&;\s]*=)([^&;#\s]+)", re.IGNORECASE
)


def masked(text: object) -> str:
    """Return a text in which the passwords and tokens of addresses are masked.

    Example:
        >>> masked("postgresql://me:p@ss/w:rd@host/trials?password=x&sslmode=require")
        'postgresql://me:***@host/trials?password=***&sslmode=require'
        >>> masked("runs/search.db")
        'runs/search.db'
    """
    hidden = USER.sub(rf"\1:{HIDDEN}", str(text))
    return PARAMETER.sub(rf"\1{HIDDEN}", hidden)


def without_secrets(text: object, address: object) -> str:
    """Return a library's message about an address, which may quote parts of it, without the address's secrets.

    Example:
        >>> without_secrets("no host named 'cret@db'", "postgresql://me:s@cret@db/x")
        "no host named '***@db'"
    """
    shown = masked(text)
    passwords = [match.group(2) for pattern in (USER, PARAMETER) for match in pattern.finditer(str(address))]
    # A library may split a password differently: at every character that has a meaning in an address.
    pieces = {piece for secret in passwords for piece in (secret, unquote(secret), *re.split(r"[@:/?#]", secret))}
    for piece in sorted(pieces - {""}, key=len, reverse=True):
        shown = re.sub(rf"(?<!\w){re.escape(piece)}(?!\w)", HIDDEN, shown)
    return shown


def has_secret(address: object) -> bool:
    """Return whether an address contains a user name, a password or a token.

    Example:
        >>> has_secret("https://me:secret@host/net.pth"), has_secret("https://host/net-0123abcd.pth")
        (True, False)
    """
    text = str(address)
    return "://" in text and (masked(text) != text or ALONE.search(text) is not None)
