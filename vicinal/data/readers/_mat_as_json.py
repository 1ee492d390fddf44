"""Writes a MATLAB file as JSON to standard output, for `reading.read_mat`, which runs this in a separate process.

scipy's reader is compiled code that trusts the file: a damaged one may crash its process.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Convert numpy arrays, fields and scalars to numbers, strings, lists and dictionaries."""
    names = getattr(getattr(value, "dtype", None), "names", None)
    if getattr(value, "ndim", 0):
        return [plain(inner) for inner in value]
    if names:
        return {name: plain(value[name]) for name in names}
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, str | int | float | bool):
        raise TypeError(f"it holds a value of type {type(value).__name__}; only numbers and text are supported")
    return value


if __name__ == "__main__":
    from scipy.io import loadmat

    try:
        content = loadmat(sys.argv[1], squeeze_me=True)
        sys.stdout.write(json.dumps({name: plain(value) for name, value in content.items() if name[:2] != "__"}))
    except Exception as error:  # whatever a damaged file causes, the parent process reports it
        sys.exit(f"{type(error).__name__}: {error}"[:300])
