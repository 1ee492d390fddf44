"""Warnings: on the command line notes without a line of source, in Python with the line of the user that led there."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

__all__ = ["warn_caller", "warn_plainly"]

OF_PROGRAMMERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning)
# Between a user's line and the place that warns: torch calls modules, scikit-learn estimators, and the
# last two functions whose shapes they check.
IN_BETWEEN = ("vicinal", "torch", "sklearn", "joblib", "jaxtyping", "beartype")


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


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the line that called vicinal, however deep inside it this is."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in IN_BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
