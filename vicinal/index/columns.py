"""What an item's values may be, and what each column of an index holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from vicinal.errors import InputError, UnknownName
from vicinal.index.where import And, Compare, Condition, In, Not, Null, Or, Value

__all__ = ["BUILT_IN", "Kind", "check_condition", "joint_kind", "matches", "plain_value"]

Kind: TypeAlias = Literal["integer", "number", "text", "boolean"]

BUILT_IN = ("id", "path", "label", "source", "stamp", "hash")  # of every item; the rest is metadata
WORDS = {"integer": "whole numbers", "number": "numbers", "text": "texts", "boolean": "true or false"}
KINDS: dict[type, Kind] = {bool: "boolean", int: "integer", float: "number", str: "text"}
LARGEST = 2**63


def plain_value(value: Any, column: str) -> Value | None:
    """A value as stores keep it: a text, a number, a boolean, or None for what is missing.

    Example:
        >>> import numpy as np
        >>> plain_value(np.int64(3), "year"), plain_value(float("nan"), "year")
        (3, None)
    """
    if hasattr(value, "item") and callable(value.item) and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, str) and str(value) in ("NaT", "<NA>"):  # of pandas
        return None
    if isinstance(value, float) and math.isinf(value):
        raise InputError(f"Column {column!r} holds finite numbers; got {value}.")
    if isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        if not -LARGEST <= value < LARGEST:
            raise InputError(f"Column {column!r} holds whole numbers of up to 64 bits; got {value}.")
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"Column {column!r}: {value!r} is not valid Unicode; rename it.") from None
        if "\0" in value:
            raise InputError(f"Column {column!r}: {value!r} holds a zero character, which no store keeps.")
        return value
    raise InputError(
        f"Column {column!r} holds texts, numbers, true or false, or nothing; got {type(value).__name__} {value!r}. "
        "Write dates as texts such as 2024-05-31: they compare as dates do."
    )


def joint_kind(column: str, values: Iterable[Value | None], before: Kind | None = None) -> Kind | None:
    """The one kind of all values of a column, None while all are missing; whole numbers among numbers are numbers.

    Args:
        column: Its name.
        values: To be added.
        before: What it holds so far.

    Example:
        >>> joint_kind("year", [1999, None, 2000.5])
        'number'
    """
    values = list(values)
    kinds = {KINDS[kind]: kind for kind in set(map(type, values)) - {type(None)}}
    joint = before
    for kind, example in kinds.items():
        if joint is None or {joint, kind} == {"integer", "number"}:
            joint = kind if joint is None else "number"
        elif joint != kind:
            value = next(value for value in values if type(value) is example)
            raise InputError(
                f"Column {column!r} holds {WORDS[joint]}; got {value!r}. Give all its values one kind, or leave "
                "them out with None."
            )
    return joint


def check_condition(condition: Condition, kinds: Mapping[str, Kind | None]) -> None:
    """Raise where a filter asks for a column that is not there, or compares it with a value of another kind."""
    if isinstance(condition, And | Or):
        for part in condition.parts:
            check_condition(part, kinds)
    elif isinstance(condition, Not):
        check_condition(condition.part, kinds)
    else:
        if condition.column not in kinds:
            raise UnknownName("column", condition.column, kinds)
        values = () if isinstance(condition, Null) else _values(condition)
        for value in values:
            _check_value(condition.column, value, kinds[condition.column])


def _values(condition: Compare | In) -> tuple[Value, ...]:
    return condition.values if isinstance(condition, In) else (condition.value,)


def _check_value(column: str, value: Value, kind: Kind | None) -> None:
    asked = KINDS[type(value)]
    numbers = ("integer", "number")
    if kind is None or asked == kind or (asked in numbers and kind in numbers):
        if isinstance(value, int) and not -LARGEST <= value < LARGEST:
            raise InputError(f"{value} has more than 64 bits; no item has such a {column}.")
        return
    hint = f" Write {column} = '{value}'." if kind == "text" else ""
    raise InputError(f"Column {column!r} holds {WORDS[kind]}; the filter compares it with {value!r}.{hint}")


def matches(condition: Condition, values: Mapping[str, Value | None]) -> bool:
    """Whether an item with these values passes a filter: what every store must agree with.

    Example:
        >>> from vicinal.index.where import as_condition
        >>> [matches(as_condition("not year = 2020"), {"year": year}) for year in (2020, 2021, None)]
        [False, True, True]
    """
    if isinstance(condition, And):
        return all(matches(part, values) for part in condition.parts)
    if isinstance(condition, Or):
        return any(matches(part, values) for part in condition.parts)
    if isinstance(condition, Not):
        return not matches(condition.part, values)
    mine = values.get(condition.column)
    if isinstance(condition, Null):
        return mine is None
    if mine is None:
        return False
    if isinstance(condition, In):
        return mine in condition.values
    value: Any = condition.value
    tests = {"=": mine == value, "!=": mine != value}
    if condition.operator in tests:
        return tests[condition.operator]
    return {
        "<": lambda: mine < value,
        "<=": lambda: mine <= value,
        ">": lambda: mine > value,
        ">=": lambda: mine >= value,
    }[condition.operator]()
