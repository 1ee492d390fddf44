"""The language of filters: what is read, what it means, what is refused, and that nothing reaches SQL as text."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vicinal.errors import InputError, UnknownName
from vicinal.index.filters import (
    And,
    Compare,
    In,
    Not,
    Null,
    Or,
    as_condition,
    check_condition,
    joint_kind,
    matches,
    plain_value,
    to_sql,
)

pytestmark = pytest.mark.unit


ONE = Compare("a", "=", 1)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a = 1", Compare("a", "=", 1)),
        ("a==1", Compare("a", "=", 1)),
        ("a<>-1.5e2", Compare("a", "!=", -150.0)),
        ("label = 'it''s'", Compare("label", "=", "it's")),
        ('"odd ""name" >= \'x\'', Compare('odd "name', ">=", "x")),
        ("a = true OR b = False", Or((Compare("a", "=", True), Compare("b", "=", False)))),
        ("a in (1, 2,3)", In("a", (1, 2, 3))),
        ("a not in ('x')", And((Not(In("a", ("x",))), Not(Null("a"))))),
        ("a is null", Null("a")),
        ("a is not null", Not(Null("a"))),
        (
            "not a = 1 and b = 2 or c = 3",
            Or((And((Not(Compare("a", "=", 1)), Compare("b", "=", 2))), Compare("c", "=", 3))),
        ),
        ("not (a = 1 and b = 2)", Not(And((Compare("a", "=", 1), Compare("b", "=", 2))))),
        ("größe > 2", Compare("größe", ">", 2)),
    ],
)
def test_texts_are_read(text, condition):
    assert as_condition(text) == condition


def test_dicts_are_read():
    assert as_condition({"label": "wren"}) == Compare("label", "=", "wren")
    assert as_condition({"a": ["x", "y"], "b": None}) == And((In("a", ("x", "y")), Null("b")))
    assert as_condition({"a": ("<>", 3)}) == Compare("a", "!=", 3)
    assert as_condition({}) == And(())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs the name of a column at its end"),
        ("a", "needs a comparison such as =, < or in at its end"),
        ("a = ", "needs a value"),
        ("a = b", "needs a value: a number, true, false, or a text in single quotes at 'b'"),
        ("a = null", "ask 'is null'"),
        ("a = 1 b = 2", "needs 'and', 'or' or the end at 'b = 2'"),
        ("(a = 1", r"needs '\)' at its end"),
        ("a in ()", "needs a value"),
        ("a = 'x", 'an unknown symbol at "\'x"'),
        ("a = 1; drop table items", "an unknown symbol at '; drop"),
        ("a = 1e999", "compares a column with"),
        ("1 = 1", "needs the name of a column"),
        ("a not = 1", "needs 'in'"),
        ("(" * 60 + "a = 1" + ")" * 60, "more than 50 deep"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, said):
    with pytest.raises(InputError, match=said):
        as_condition(text)


@pytest.mark.parametrize("where", [3, {1: 2}, {"a": object()}, {"a": float("nan")}, {"a": [None]}])
def test_other_things_are_refused(where):
    with pytest.raises(InputError):
        as_condition(where)


def test_columns_and_kinds_are_checked():
    kinds = {"year": "integer", "label": "text", "wet": "boolean", "empty": None}
    check_condition(as_condition("year > 2.5 and label in ('a') and wet = true and empty = 'x'"), kinds)
    with pytest.raises(UnknownName, match="did you mean 'label'"):
        check_condition(as_condition("not lable = 'a'"), kinds)
    for text in ("year = 'x'", "label = 1", "wet = 1", "year = true", "year in (1, 'x')"):
        with pytest.raises(InputError, match="holds"):
            check_condition(as_condition(text), kinds)
    with pytest.raises(InputError, match="64 bits"):
        check_condition(as_condition(f"year = {2**70}"), kinds)


def test_a_column_has_one_kind():
    assert joint_kind("a", [None, None]) is None
    assert joint_kind("a", [1, 2], "number") == "number"
    assert joint_kind("a", [1.5], "integer") == "number"
    for values, before in (([1, "x"], None), ([True], "integer"), (["x"], "boolean")):
        with pytest.raises(InputError, match="Column 'a' holds"):
            joint_kind("a", values, before)


@pytest.mark.parametrize("value", [b"x", 2**64, float("inf"), "a\0b", "\ud800", [1]])
def test_values_that_no_store_keeps_are_refused(value):
    with pytest.raises(InputError, match="Column 'a'"):
        plain_value(value, "a")


def is_there(value):
    return value is not None


operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
values = st.one_of(st.none(), st.integers(-2, 2), st.sampled_from([0.5, -1.5]))
texts = st.one_of(st.none(), st.sampled_from(["", "x", "X", "é", "'", "x'; DROP TABLE t; --", "%", "_"]))
tests = st.one_of(
    st.builds(
        Compare,
        st.just("n"),
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        values.filter(lambda v: v is not None),
    ),
    st.builds(
        Compare, st.just("t"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), texts.filter(lambda v: v is not None)
    ),
    st.builds(In, st.just("t"), st.lists(texts.filter(lambda v: v is not None), max_size=3).map(tuple)),
    st.builds(Null, st.sampled_from(["n", "t"])),
)
conditions = st.recursive(
    tests,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(And, st.lists(parts, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@pytest.mark.filterwarnings("ignore:Do not use the .random. module")  # the checks of types draw which item to check
@settings(max_examples=100, deadline=None)
@given(conditions, st.lists(st.tuples(values, texts), min_size=1, max_size=8))
def test_sql_means_what_the_definition_says(condition, rows):
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (n, t)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)

    def member(column, wanted):
        marks = ", ".join("?" * len(wanted))
        return f"{column} IN ({marks})", list(wanted)

    sql, bound = to_sql(condition, {"n": "n", "t": "t"}, member)
    assert "DROP" not in sql
    found = [row for (row,) in connection.execute(f"SELECT rowid - 1 FROM t WHERE {sql} ORDER BY rowid", bound)]
    connection.close()
    assert found == [place for place, (n, t) in enumerate(rows) if matches(condition, {"n": n, "t": t})]
