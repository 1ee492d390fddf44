"""Warnings as notes for people: what is said, and not the line of source that said it."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

__all__ = ["warn_plainly"]

OF_PROGRAMMERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning)


def warn_plainly() -> None:
    """Show warnings in this process as one-line notes; what only programmers can mend is not shown."""
    for kind in OF_PROGRAMMERS:
        warnings.simplefilter("ignore", kind)
    warnings.showwarning = _show


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    text = " ".join(str(message).split())
    print(f"note: {text}", file=file or sys.stderr)
