"""How long each trial may train, in steps or in time."""

from __future__ import annotations

import re
from typing import Any

from vicinal.errors import InputError

__all__ = ["budget_settings"]

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def budget_settings(text: str) -> dict[str, Any]:
    """Return the settings of a budget: a number of steps, or a time with its unit.

    Example:
        >>> budget_settings("500"), budget_settings("1.5m")
        ({'steps': 500}, {'seconds': 90.0})
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|steps)?", text.strip())
    if found is None or float(found[1]) <= 0 or (found[2] in (None, "steps") and "." in found[1]):
        raise InputError(f"A budget is a number of steps or a time, such as 500, 90s, 5m or 1h; got {text!r}.")
    if found[2] in (None, "steps"):
        return {"steps": int(found[1])}
    return {"seconds": float(found[1]) * SECONDS[found[2]]}
