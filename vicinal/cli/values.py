"""name=value on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from vicinal.errors import InputError

__all__ = ["parse_pairs"]


def parse_pairs(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """Read name=value pairs; a value that is a number, true, false or null in JSON is one, the rest are strings.

    Example:
        >>> parse_pairs(["margin=0.1", "which=hard"], "--option")
        {'margin': 0.1, 'which': 'hard'}
    """
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{flag} must be name=value, such as margin=0.2; got {text!r}.")
        try:
            pairs[name] = json.loads(value)
        except json.JSONDecodeError:
            pairs[name] = value
    return pairs
