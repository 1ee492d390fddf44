"""Filter language: `label = 'wren' and (year > 2020 or place is null)`, or the same as a dict.

Grammar:
    either     = both ("or" both)*
    both       = unless ("and" unless)*
    unless     = "not" unless | "(" either ")" | test
    test       = column ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
               | column ["not"] "in" "(" value ("," value)* ")"
               | column "is" ["not"] "null"
    column     = a word, or anything in double quotes
    value      = a number, 'text' (a quote inside is doubled), true or false

Every test of a missing value is false, except `is null`; `not` inverts any result. Text is parsed only here: stores
get a tree, and bind its values as parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from vicinal.errors import InputError, UnknownName

__all__ = [
    "BUILT_IN",
    "And",
    "Compare",
    "Condition",
    "In",
    "Kind",
    "Not",
    "Null",
    "Or",
    "Value",
    "Where",
    "as_condition",
    "as_text",
    "check_condition",
    "joint_kind",
    "matches",
    "plain_value",
    "to_sql",
]


Value: TypeAlias = str | int | float | bool
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]

DEEPEST = 50  # nested brackets: far more than a person writes, far below Python's recursion limit
MOST_DIGITS = 400  # digits of an integer: no column holds more, and Python refuses to parse thousands
SAME = {"==": "=", "<>": "!="}
TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\")"
    r"|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<word>[^\W\d]\w*)"
    r"|(?P<sign><=|>=|<>|!=|==|[=<>(),]))"
)


@dataclass(frozen=True)
class Compare:
    """Comparison of a column with a value."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True)
class In:
    """Membership of a column's value in a set of values."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Null:
    """Test for a missing value in a column."""

    column: str


@dataclass(frozen=True)
class Not:
    """Negation of a condition."""

    part: Condition


@dataclass(frozen=True)
class And:
    """Conjunction of conditions; an empty one is always true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Or:
    """Disjunction of conditions; an empty one is always false."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Compare | In | Null | Not | And | Or
Where: TypeAlias = str | Mapping[str, Any] | Condition


def as_condition(where: Any) -> Condition:
    """Parse a filter.

    Args:
        where: Text in the filter language; or a dict from columns to a value, a list of values, None (missing), or
            an operator and a value, all of which must hold; or a condition.

    Example:
        >>> as_condition("label = 'wren' and year > 2020")
        And(parts=(Compare(column='label', operator='=', value='wren'), Compare(column='year', operator='>', value=2020)))
        >>> as_condition({"label": "wren", "year": (">", 2020)}) == as_condition("label = 'wren' and year > 2020")
        True
    """  # noqa: E501
    if isinstance(where, str):
        return _Parser(where).parsed()
    if isinstance(where, Mapping):
        parts = tuple(_of_entry(column, wanted) for column, wanted in where.items())
        return parts[0] if len(parts) == 1 else And(parts)
    if isinstance(where, Compare | In | Null | Not | And | Or):
        return where
    raise InputError(f'A filter is a text such as "year > 2020" or a dict; got {type(where).__name__}.')


def _of_entry(column: Any, wanted: Any) -> Condition:
    if not isinstance(column, str):
        raise InputError(f"The keys of a filter are names of columns; got {column!r}.")
    if wanted is None:
        return Null(column)
    if isinstance(wanted, tuple) and len(wanted) == 2 and wanted[0] in _OPERATORS:
        return Compare(column, _OPERATORS[wanted[0]], _plain(wanted[1], column))
    if isinstance(wanted, Sequence | set | frozenset) and not isinstance(wanted, str):
        return In(column, tuple(_plain(value, column) for value in wanted))
    return Compare(column, "=", _plain(wanted, column))


def _plain(value: Any, column: str) -> Value:
    if hasattr(value, "item") and callable(value.item):  # a numpy or torch number
        value = value.item()
    if not isinstance(value, str | int | float | bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise InputError(f"A filter compares {column} with a text, a number, True or False; got {value!r}.")
    return value


_OPERATORS: dict[str, Operator] = {
    sign: cast(Operator, SAME.get(sign, sign)) for sign in ("=", "==", "!=", "<>", "<", "<=", ">", ">=")
}


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        self.place = 0
        self.depth = 0
        position = 0
        while text[position:].strip():
            match = TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                start = position + len(text[position:]) - len(text[position:].lstrip())
                raise self._error("has an unknown symbol", start)
            self.tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            position = match.end()

    def parsed(self) -> Condition:
        condition = self._either()
        if self.place < len(self.tokens):
            raise self._unexpected("'and', 'or' or the end")
        return condition

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._took("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _both(self) -> Condition:
        parts = [self._unless()]
        while self._took("and"):
            parts.append(self._unless())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _unless(self) -> Condition:
        self.depth += 1
        if self.depth > DEEPEST:
            raise InputError(f"The filter is nested more than {DEEPEST} deep; simplify it.")
        try:
            if self._took("not"):
                return Not(self._unless())
            if self._took("("):
                inside = self._either()
                self._need(")")
                return inside
            return self._test()
        finally:
            self.depth -= 1

    def _test(self) -> Condition:
        column = self._column()
        if self._took("is"):
            negated = self._took("not")
            self._need("null")
            return Not(Null(column)) if negated else Null(column)
        negated = self._took("not")
        if self._took("in"):
            self._need("(")
            values = [self._value()]
            while self._took(","):
                values.append(self._value())
            self._need(")")
            inside = In(column, tuple(values))
            return And((Not(inside), Not(Null(column)))) if negated else inside
        kind, sign, _ = self._next()
        if negated or kind != "sign" or sign not in _OPERATORS:
            self._put_back(kind)
            raise self._unexpected("'in'" if negated else "a comparison such as =, < or in")
        return Compare(column, _OPERATORS[sign], self._value())

    def _put_back(self, kind: str) -> None:
        """Step back to the token that was just read, so that an error names its position; the end was not passed."""
        if kind != "end":
            self.place -= 1

    def _column(self) -> str:
        kind, text, _ = self._next()
        if kind == "quoted":
            return text[1:-1].replace('""', '"')
        if kind != "word" or text.lower() in ("and", "or", "in", "is", "null", "true", "false"):
            self._put_back(kind)
            raise self._unexpected("the name of a column")
        return text

    def _value(self) -> Value:
        kind, text, _ = self._next()
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "number":
            whole = not any(mark in text for mark in ".eE") and len(text) <= MOST_DIGITS
            return _plain(int(text) if whole else float(text), "a column")
        if kind == "word" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        self._put_back(kind)
        if kind == "word" and text.lower() == "null":
            raise self._unexpected("a value; nothing equals null, ask 'is null'")
        raise self._unexpected("a value: a number, true, false, or a text in single quotes")

    def _next(self) -> tuple[str, str, int]:
        if self.place == len(self.tokens):
            return "end", "", len(self.text)
        self.place += 1
        return self.tokens[self.place - 1]

    def _took(self, wanted: str) -> bool:
        """Consume the next token if it is this sign or word."""
        if self.place < len(self.tokens):
            kind, text, _ = self.tokens[self.place]
            if kind in ("word", "sign") and text.lower() == wanted:
                self.place += 1
                return True
        return False

    def _need(self, wanted: str) -> None:
        if not self._took(wanted):
            raise self._unexpected(repr(wanted))

    def _unexpected(self, expected: str) -> InputError:
        position = self.tokens[self.place][2] if self.place < len(self.tokens) else len(self.text)
        return self._error(f"needs {expected}", position)

    def _error(self, what: str, at: int) -> InputError:
        there = f"at {self.text[at : at + 20]!r} (character {at + 1})" if at < len(self.text) else "at its end"
        return InputError(
            f"The filter {self.text!r} {what} {there}. Filters look like: label = 'wren' and year > 2020."
        )


# Filters as text, to send them over HTTP: the inverse of `as_condition`.

ALWAYS = '("id" is null or not "id" is null)'


def as_text(condition: Condition) -> str:
    """Return a condition as text.

    Example:
        >>> from vicinal.index.filters import as_condition
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


# Filters as SQL. Values are bound as parameters and columns come from the store's own table, so no user text is ever
# inserted into a statement.

Member: TypeAlias = Callable[[str, tuple[Value, ...]], tuple[str, list[Any]]]


def to_sql(condition: Condition, columns: Mapping[str, str], member: Member, mark: str = "?") -> tuple[str, list[Any]]:
    """Return an SQL expression and its parameters.

    SQL evaluates tests of missing values to NULL, which `and`, `or` and `where` treat as false. Only `not` needs
    special handling.

    Args:
        condition: Condition that passed `check_condition`.
        columns: SQL expression of each column, by the name that filters use.
        member: Function that returns the SQL for membership in a set of values, of which there may be a million.
        mark: Placeholder of a parameter.

    Example:
        >>> from vicinal.index.filters import Compare
        >>> to_sql(Not(Compare("year", ">", 2020)), {"year": "c0"}, member=lambda column, values: ("", []))
        ('NOT coalesce(c0 > ?, 1 = 0)', [2020])
    """
    if isinstance(condition, And | Or):
        if not condition.parts:
            return ("1 = 1" if isinstance(condition, And) else "1 = 0"), []
        built = [to_sql(part, columns, member, mark) for part in condition.parts]
        word = " AND " if isinstance(condition, And) else " OR "
        return f"({word.join(sql for sql, _ in built)})", [value for _, values in built for value in values]
    if isinstance(condition, Not):
        sql, values = to_sql(condition.part, columns, member, mark)
        return f"NOT coalesce({sql}, 1 = 0)", values
    column = columns[condition.column]
    if isinstance(condition, Null):
        return f"{column} IS NULL", []
    if isinstance(condition, In):
        return member(column, condition.values)
    return f"{column} {condition.operator} {mark}", [condition.value]


# Types of an item's values, and of the columns of an index.

Kind: TypeAlias = Literal["integer", "number", "text", "boolean"]

BUILT_IN = ("id", "path", "label", "source", "stamp", "hash")  # columns of every item; all others are metadata
WORDS = {"integer": "whole numbers", "number": "numbers", "text": "texts", "boolean": "true or false"}
KINDS: dict[type, Kind] = {bool: "boolean", int: "integer", float: "number", str: "text"}
LARGEST = 2**63


def plain_value(value: Any, column: str) -> Value | None:
    """Return a value as stores hold it: a string, a number, a boolean, or None if it is missing.

    Example:
        >>> import numpy as np
        >>> plain_value(np.int64(3), "year"), plain_value(float("nan"), "year")
        (3, None)
    """
    if hasattr(value, "item") and callable(value.item) and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, str) and str(value) in ("NaT", "<NA>"):  # missing values of pandas
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
            raise InputError(f"Column {column!r}: {value!r} contains a NUL character, which stores do not support.")
        return value
    raise InputError(
        f"Column {column!r} holds texts, numbers, true or false, or nothing; got {type(value).__name__} {value!r}. "
        "Write dates as texts such as 2024-05-31: they compare as dates do."
    )


def joint_kind(column: str, values: Iterable[Value | None], before: Kind | None = None) -> Kind | None:
    """Return the common kind of all values of a column; integers and floats together are numbers.

    It is None while all values are missing.

    Args:
        column: Name of the column.
        values: Values to add.
        before: Kind of the values that it holds so far.

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
    """Raise an error if a filter names an unknown column, or compares a column with a value of another kind."""
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
    value_kind = KINDS[type(value)]
    numbers = ("integer", "number")
    if kind is None or value_kind == kind or (value_kind in numbers and kind in numbers):
        if isinstance(value, int) and not -LARGEST <= value < LARGEST:
            raise InputError(f"{value} has more than 64 bits; no item has such a {column}.")
        return
    hint = f" Write {column} = '{value}'." if kind == "text" else ""
    raise InputError(f"Column {column!r} holds {WORDS[kind]}; the filter compares it with {value!r}.{hint}")


def matches(condition: Condition, values: Mapping[str, Value | None]) -> bool:
    """Return whether an item with these values passes a filter: the reference that every store must agree with.

    Example:
        >>> from vicinal.index.filters import as_condition
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
