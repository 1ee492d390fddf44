"""Numbers, lists and times as a person would write them; the same words in the terminal and in reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["NONE", "TIMES", "capitalised", "counted", "duration", "listed", "p_text", "percent", "short"]

NONE, TIMES = "\u2013", "\u00d7"  # an en dash and a multiplication sign


def p_text(p_value: float) -> str:
    """A p-value to as many digits as it deserves.

    Example:
        >>> p_text(0.0432), p_text(0.00002)
        ('p = 0.043', 'p < 0.001')
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def counted(count: int, one: str, many: str = "") -> str:
    """A number and what it counts.

    Example:
        >>> counted(1, "class"), counted(1200, "class"), counted(3, "seed"), counted(2, "loss")
        ('1 class', '1,200 classes', '3 seeds', '2 losses')
    """
    plural = many or one + ("es" if one.endswith("s") else "s")
    return f"{count:,} {one if count == 1 else plural}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and an "and".

    Example:
        >>> listed(["a", "b", "c"]), listed([])
        ('a, b and c', 'none')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def percent(share: float | None) -> str:
    """A share in per cent.

    Example:
        >>> percent(0.61234), percent(None)
        ('61.23', '–')
    """
    return NONE if share is None else f"{100 * share:.2f}"


def duration(seconds: float) -> str:
    """A time as people say it.

    Example:
        >>> duration(4.21), duration(75.0), duration(7260.0)
        ('4.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def capitalised(text: str) -> str:
    """A sentence with its first letter large, and the others as they are.

    Example:
        >>> capitalised("multi similarity beats RAW")
        'Multi similarity beats RAW'
    """
    return text[:1].upper() + text[1:]


def short(value: Any) -> str:
    """A setting in few digits: what a search found has far more than matter.

    Example:
        >>> short(0.123456789), short({"margin": 0.1}), short("all")
        ('0.1235', 'margin 0.1', 'all')
    """
    if isinstance(value, dict):
        return ", ".join(f"{name} {short(one)}" for name, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
