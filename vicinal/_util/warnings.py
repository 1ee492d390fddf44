"""Warnings: plain notes on the command line; in Python, attributed to the user's line that caused them."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

__all__ = ["warn_caller", "warn_plainly"]

OF_PROGRAMMERS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning)
# Packages between a user's line and the warning: torch calls modules, scikit-learn calls estimators, and the
# last two call functions whose shapes they check.
IN_BETWEEN = ("vicinal", "torch", "sklearn", "joblib", "jaxtyping", "beartype")


def warn_plainly() -> None:
    """Show warnings in this process as one-line notes; hide those that only developers can fix."""
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
    print(f"Note: {text}", file=file or sys.stderr)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning for the user's line that called vicinal, from any depth."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in IN_BETWEEN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
