"""Format numbers, lists and times as text, the same in the terminal and in reports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = [
    "NONE",
    "TIMES",
    "capitalised",
    "counted",
    "duration",
    "fraction",
    "in_words",
    "listed",
    "p_number",
    "p_text",
    "percent",
    "short",
]

NONE, TIMES = "\u2013", "\u00d7"  # an en dash and a multiplication sign


def p_text(p_value: float) -> str:
    """Format a p-value with a sensible number of digits.

    Example:
        >>> p_text(0.0432), p_text(0.00002)
        ('p = 0.043', 'p < 0.001')
    """
    return f"p {p_number(p_value)}" if p_value < 0.001 else f"p = {p_number(p_value)}"


def p_number(p_value: float) -> str:
    """Format a p-value without its name, for a column.

    Example:
        >>> p_number(0.0432), p_number(0.00002)
        ('0.043', '< 0.001')
    """
    return "< 0.001" if p_value < 0.001 else f"{p_value:.2g}"


def counted(count: int, singular: str, plural: str = "") -> str:
    """Format a count with its noun, singular or plural.

    Example:
        >>> counted(1, "class"), counted(1200, "class"), counted(3, "seed"), counted(2, "loss")
        ('1 class', '1,200 classes', '3 seeds', '2 losses')
    """
    several = plural or singular + ("es" if singular.endswith("s") else "s")
    return f"{count:,} {singular if count == 1 else several}"


def listed(words: Sequence[str]) -> str:
    """Join words with commas and "and".

    Example:
        >>> listed(["a", "b", "c"]), listed([])
        ('a, b and c', 'none')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def fraction(share: float | None, digits: int = 4, *, sign: bool = False) -> str:
    """Format a fraction for the terminal.

    Example:
        >>> fraction(0.61234), fraction(0.1234, sign=True), fraction(None)
        ('0.6123', '+0.1234', '–')
    """
    return NONE if share is None else f"{share:{'+' if sign else ''}.{digits}f}"


def percent(share: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Format a fraction as a percentage, for reports; shows the same digits as `fraction` with two more of them.

    Example:
        >>> percent(0.61234), percent(0.5, 1), percent(None)
        ('61.23', '50.0', '–')
    """
    # Rounded as a fraction, since 100 times a number may round the other way.
    return NONE if share is None else f"{100 * round(share, digits + 2):{'+' if sign else ''}.{digits}f}"


def duration(seconds: float) -> str:
    """Format a duration.

    Example:
        >>> duration(4.21), duration(75.0), duration(7260.0)
        ('4.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def capitalised(text: str) -> str:
    """Capitalise the first letter of a sentence, and leave the others unchanged.

    Example:
        >>> capitalised("multi similarity beats RAW")
        'Multi similarity beats RAW'
    """
    return text[:1].upper() + text[1:]


def in_words(name: str) -> str:
    """Format a name for use in a sentence.

    Example:
        >>> in_words("multi_similarity+valid_triplets")
        'multi similarity + valid triplets'
    """
    return re.sub(r"(?<=\w)\+(?=[a-z])", " + ", name.replace("_", " "))


def short(value: Any) -> str:
    """Format a setting with few digits, since the result of a search has far more than matter.

    Example:
        >>> short(0.123456789), short({"margin": 0.1}), short("all")
        ('0.1235', 'margin 0.1', 'all')
    """
    if isinstance(value, dict):
        return ", ".join(f"{name} {short(item)}" for name, item in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
