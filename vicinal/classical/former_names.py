"""Former names of arguments, still accepted with a warning; the current names are those of scikit-learn."""

from __future__ import annotations

import functools
from typing import Any

from vicinal._util.warnings import warn_caller

__all__ = ["take_former_names"]

FORMER = {"dim": "n_components", "start": "init", "neighbours": "n_neighbors"}


def take_former_names(estimator: type[Any]) -> None:
    """Make an estimator class and its `set_params` accept arguments by their former names, with a warning."""
    if "__init__" not in vars(estimator):
        return
    build, change = estimator.__init__, estimator.set_params

    @functools.wraps(build)
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807
        build(self, *arguments, **_todays(options, estimator))

    @functools.wraps(change)
    def set_params(self: Any, **options: Any) -> Any:
        return change(self, **_todays(options, estimator))

    estimator.__init__, estimator.set_params = __init__, set_params  # type: ignore[method-assign]


def _todays(options: dict[str, Any], estimator: type[Any]) -> dict[str, Any]:
    for former in FORMER.keys() & options.keys():
        warn_caller(f"{estimator.__name__}: {former} is now called {FORMER[former]}.", DeprecationWarning)
    return {FORMER.get(name, name): value for name, value in options.items()}
