"""A filter as text, for those to whom only text can be sent: the reverse of `as_condition`."""

from __future__ import annotations

from vicinal.index.where import And, Compare, Condition, Not, Null, Or, Value

__all__ = ["as_text"]

ALWAYS = '("id" is null or not "id" is null)'


def as_text(condition: Condition) -> str:
    """The text of a condition.

    Example:
        >>> from vicinal.index.where import as_condition
        >>> as_text(as_condition({"label": "it's", "year": (">", 2020)}))
        '("label" = \\'it\\'\\'s\\' and "year" > 2020)'
    """
    if isinstance(condition, And | Or):
        if not condition.parts:
            return ALWAYS if isinstance(condition, And) else f"not {ALWAYS}"
        word = " and " if isinstance(condition, And) else " or "
        return f"({word.join(map(as_text, condition.parts))})"
    if isinstance(condition, Not):
        return f"not {as_text(condition.part)}"
    quoted = condition.column.replace('"', '""')
    if isinstance(condition, Null):
        return f'"{quoted}" is null'
    if isinstance(condition, Compare):
        return f'"{quoted}" {condition.operator} {_value(condition.value)}'
    return f'"{quoted}" in ({", ".join(map(_value, condition.values))})' if condition.values else f"not {ALWAYS}"


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else "'" + value.replace("'", "''") + "'"
