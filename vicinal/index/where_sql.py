"""Filters as SQL: values are bound as parameters, columns come from the store's own table, nothing is pasted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from vicinal.index.where import And, Condition, In, Not, Null, Or, Value

__all__ = ["to_sql"]

Member: TypeAlias = Callable[[str, tuple[Value, ...]], tuple[str, list[Any]]]


def to_sql(condition: Condition, columns: Mapping[str, str], member: Member, mark: str = "?") -> tuple[str, list[Any]]:
    """Return an SQL expression and its parameters.

    SQL knows a third answer for missing values, which its `and`, `or` and `where` treat as false; only `not` has to
    be told.

    Args:
        condition: Checked by `check_condition`.
        columns: The SQL of each column, by the name that filters use.
        member: The SQL for a column that has one of some values, which may be a million.
        mark: Of a parameter.

    Example:
        >>> from vicinal.index.where import Compare
        >>> to_sql(Not(Compare("year", ">", 2020)), {"year": "c0"}, member=lambda column, values: ("", []))
        ('NOT coalesce(c0 > ?, 1 = 0)', [2020])
    """
    if isinstance(condition, And | Or):
        if not condition.parts:
            return ("1 = 1" if isinstance(condition, And) else "1 = 0"), []
        made = [to_sql(part, columns, member, mark) for part in condition.parts]
        word = " AND " if isinstance(condition, And) else " OR "
        return f"({word.join(sql for sql, _ in made)})", [value for _, values in made for value in values]
    if isinstance(condition, Not):
        sql, values = to_sql(condition.part, columns, member, mark)
        return f"NOT coalesce({sql}, 1 = 0)", values
    column = columns[condition.column]
    if isinstance(condition, Null):
        return f"{column} IS NULL", []
    if isinstance(condition, In):
        return member(column, condition.values)
    return f"{column} {condition.operator} {mark}", [condition.value]
