"""A MATLAB file as JSON on standard output, for `reading.read_mat`, which runs this in a process of its own.

scipy's reader is fast compiled code that believes what a file says: of a damaged one it may end its process.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Return numbers, texts, lists and dictionaries in place of numpy's arrays, fields and scalars."""
    names = getattr(getattr(value, "dtype", None), "names", None)
    if getattr(value, "ndim", 0):
        return [plain(inner) for inner in value]
    if names:
        return {name: plain(value[name]) for name in names}
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, str | int | float | bool):
        raise TypeError(f"it holds a value of the kind {type(value).__name__}, and only numbers and text are read")
    return value


if __name__ == "__main__":
    from scipy.io import loadmat

    try:
        content = loadmat(sys.argv[1], squeeze_me=True)
        sys.stdout.write(json.dumps({name: plain(value) for name, value in content.items() if name[:2] != "__"}))
    except Exception as error:  # whatever a damaged file makes of the reader is told by the parent
        sys.exit(f"{type(error).__name__}: {error}"[:300])
