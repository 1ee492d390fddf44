"""The language of filters: `label = 'wren' and (year > 2020 or place is null)`, or the same as a dict.

Grammar:
    either     = both ("or" both)*
    both       = unless ("and" unless)*
    unless     = "not" unless | "(" either ")" | test
    test       = column ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
               | column ["not"] "in" "(" value ("," value)* ")"
               | column "is" ["not"] "null"
    column     = a word, or anything in double quotes
    value      = a number, 'text' (a quote inside is doubled), true or false

A test of a missing value is false, whatever it asks, except `is null`; `not` turns any answer around. A text is
parsed here and nowhere else: stores get a tree, whose values they bind as parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from vicinal.errors import InputError

__all__ = ["And", "Compare", "Condition", "In", "Not", "Null", "Operator", "Or", "Value", "Where", "as_condition"]

Value: TypeAlias = str | int | float | bool
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]

DEEPEST = 50  # brackets in brackets: far more than a person writes, far fewer than stop Python
MOST_DIGITS = 400  # of a whole number: more are no number that a column holds, and Python refuses thousands
SAME = {"==": "=", "<>": "!="}
TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\")"
    r"|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<word>[^\W\d]\w*)"
    r"|(?P<sign><=|>=|<>|!=|==|[=<>(),]))"
)


@dataclass(frozen=True)
class Compare:
    """A column against a value."""

    column: str
    operator: Operator
    value: Value


@dataclass(frozen=True)
class In:
    """A column that has one of some values."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Null:
    """A column whose value is missing."""

    column: str


@dataclass(frozen=True)
class Not:
    """The opposite of a condition."""

    part: Condition


@dataclass(frozen=True)
class And:
    """All of some conditions; none of them is always true."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Or:
    """Any of some conditions."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Compare | In | Null | Not | And | Or
Where: TypeAlias = str | Mapping[str, Any] | Condition


def as_condition(where: Any) -> Condition:
    """Read a filter.

    Args:
        where: A text in the language above; a dict from columns to a value, a list of values, None for a missing one,
            or an operator and a value, all of which must hold; or a condition.

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
    if hasattr(value, "item") and callable(value.item):  # a number of numpy or torch
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
        at = 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                raise self._error("has something that it does not know", start)
            self.tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
            at = match.end()

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
            raise InputError(f"The filter is nested more than {DEEPEST} deep; write it flatter.")
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
            self.place -= kind != "end"
            raise self._unexpected("'in'" if negated else "a comparison such as =, < or in")
        return Compare(column, _OPERATORS[sign], self._value())

    def _column(self) -> str:
        kind, text, _ = self._next()
        if kind == "quoted":
            return text[1:-1].replace('""', '"')
        if kind != "word" or text.lower() in ("and", "or", "in", "is", "null", "true", "false"):
            self.place -= kind != "end"
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
        self.place -= kind != "end"
        if kind == "word" and text.lower() == "null":
            raise self._unexpected("a value; nothing equals null, ask 'is null'")
        raise self._unexpected("a value: a number, true, false, or a text in single quotes")

    def _next(self) -> tuple[str, str, int]:
        if self.place == len(self.tokens):
            return "end", "", len(self.text)
        self.place += 1
        return self.tokens[self.place - 1]

    def _took(self, wanted: str) -> bool:
        """Take the next token if it is this sign or word."""
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
        at = self.tokens[self.place][2] if self.place < len(self.tokens) else len(self.text)
        return self._error(f"needs {expected}", at)

    def _error(self, what: str, at: int) -> InputError:
        there = f"at {self.text[at : at + 20]!r} (character {at + 1})" if at < len(self.text) else "at its end"
        return InputError(
            f"The filter {self.text!r} {what} {there}. Filters look like: label = 'wren' and year > 2020."
        )
