"""Numbers and lists as a person would write them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "listed", "p_text"]


def p_text(p_value: float) -> str:
    """A p-value to as many digits as it deserves.

    Example:
        >>> p_text(0.0432), p_text(0.00002)
        ('p = 0.043', 'p < 0.001')
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def counted(count: int, one: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "class"), counted(3, "class"), counted(3, "seed")
        ('1 class', '3 classes', '3 seeds')
    """
    return f"{count} {one if count == 1 else one + ('es' if one.endswith('s') else 's')}"


def listed(names: Sequence[str]) -> str:
    """Names with commas and an "and".

    Example:
        >>> listed(["a", "b", "c"])
        'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
