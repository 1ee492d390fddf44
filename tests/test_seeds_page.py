"""docs/seeds.md is true: every path exists, every recipe is found, every command parses."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer

from vicinal.cli.main import app
from vicinal.recipes import find_recipe

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|\n").split("|")]
    for line in (ROOT / "docs" / "seeds.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`" in line
]


def test_there_are_as_many_rows_as_the_papers_have() -> None:
    assert len(ROWS) == 55
    assert len({row[0] for row in ROWS}) == 55


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_page(row: list[str]) -> None:
    _, file, test, recipe, command = row
    assert (ROOT / file).is_file()
    assert (ROOT / test).is_file()
    if recipe:
        find_recipe(recipe)
    program, *words = shlex.split(command) or [""]
    if program == "python":
        assert (ROOT / words[0]).is_file()
    elif program:
        assert program == "vicinal"
        group = typer.main.get_command(app)
        context = group.make_context("vicinal", [], resilient_parsing=True)
        name, verb, rest = group.resolve_command(context, words)
        verb.make_context(name, rest)  # what is not a flag of the verb is refused
