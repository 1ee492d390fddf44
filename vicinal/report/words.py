"""Numbers and names as a reader wants them."""

from __future__ import annotations

from vicinal.statistics import Interval

__all__ = ["NONE", "TIMES", "counted", "duration", "listed", "network", "p_value", "percent", "span"]

NONE, TIMES = "\u2013", "\u00d7"  # an en dash and a multiplication sign


def percent(share: float | None) -> str:
    """A share in per cent.

    Example:
        >>> percent(0.61234), percent(None)
        ('61.23', '–')
    """
    return NONE if share is None else f"{100 * share:.2f}"


def span(interval: Interval | None) -> str:
    """The ends of an interval of shares, in per cent.

    Example:
        >>> span(Interval(0.5, 0.75))
        '50.0 – 75.0'
    """
    return NONE if interval is None else f"{100 * interval.low:.1f} {NONE} {100 * interval.high:.1f}"


def p_value(p: float) -> str:
    """A p-value with as many digits as mean something.

    Example:
        >>> p_value(0.0312), p_value(0.00004), p_value(0.64)
        ('0.031', '< 0.001', '0.64')
    """
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


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


def counted(count: int, one: str, many: str = "") -> str:
    """A number and what it counts.

    Example:
        >>> counted(1, "seed"), counted(1200, "class", "classes")
        ('1 seed', '1,200 classes')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(words: list[str]) -> str:
    """Words in a row.

    Example:
        >>> listed(["a", "b", "c"])
        'a, b and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def network(backbone: str, dim: int | None) -> str:
    """A backbone and a dimension.

    Example:
        >>> network("resnet50", 128)
        'resnet50, 128 dimensions'
    """
    return f"{backbone}, {'its own features' if dim is None else f'{dim} dimensions'}"
