"""A call as Python code, so that what was asked can be asked again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vicinal.data import Dataset

__all__ = ["call_in_python"]

WIDTH = 88
# What changes how a comparison runs or is shown, and nothing in its results.
ASIDE = ("jobs", "ray", "workers", "cache", "keep_models", "retry_failed", "progress", "command", "allow_code")


def call_in_python(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Write a call of a function of `vicinal` with the arguments that are not its defaults.

    Args:
        function: As it is called `vc.<its name>`.
        arguments: All of them by name, those of `**` in a table.

    Example:
        >>> def compare(data, losses, *, seeds=1, jobs=None, **changes): ...
        >>> asked = {"data": "digits", "losses": ["triplet"], "seeds": 1, "jobs": 2, "changes": {"steps": 30}}
        >>> print(call_in_python(compare, asked))
        import vicinal as vc
        <BLANKLINE>
        found = vc.compare("digits", ["triplet"], steps=30)
    """
    words = []
    for name, parameter in inspect.signature(function).parameters.items():
        value = arguments[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            words += [f"{key}={_as_code(one)}" for key, one in value.items()]
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if name not in ASIDE and (value or parameter.default) and value != parameter.default:
                words.append(f"{name}={_as_code(value)}")
        else:
            words.append(_as_code(value))
    call = f"found = vc.{function.__name__}({', '.join(words)})"
    if len(call) > WIDTH:
        lines = "".join(f"    {word},\n" for word in words)
        call = f"found = vc.{function.__name__}(\n{lines})"
    return f"import vicinal as vc\n\n{call}"


def _as_code(value: Any) -> str:
    """A value as it is typed; of objects that have no short form, a name to put it in for."""
    if isinstance(value, str | Path):
        text = str(value)
        return repr(text) if '"' in text or "\\" in text else f'"{text}"'
    if isinstance(value, list | tuple):
        ends = "()" if isinstance(value, tuple) and len(value) != 1 else "[]"
        return f"{ends[0]}{', '.join(map(_as_code, value))}{ends[1]}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_as_code(key)}: {_as_code(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Dataset):
        return "data"
    if isinstance(value, int | float | bool | None):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__.lower())
