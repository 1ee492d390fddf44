"""docs/papers.md is true: every path exists, every recipe is found, every command could be carried out.

The commands in the table of docs/studies/claims.md are held to the same.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from vicinal.cli.main import app
from vicinal.cli.options import given, words
from vicinal.comparing.contestants import drafts
from vicinal.comparing.plan import as_names
from vicinal.data import PROTOCOLS, load
from vicinal.recipes import find_recipe, losses_beside
from vicinal.runs.recipe import Recipe, read_tables
from vicinal.training.settings import Settings

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
SETTINGS = {*Recipe.model_fields, *Settings.model_fields} - {"sampler"}  # which is that of a search


def table_rows(page: str) -> list[list[str]]:
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip().strip("`") for cell in line.strip("|\n").split("|")]
        for line in lines
        if line.startswith("| ") and "`" in line
    ]


ROWS = table_rows("papers.md")
CLAIMS = [row for row in table_rows("studies/claims.md") if len(row) == 6 and row[1] in ("000", "001", "002", "003")]
CLAIMED = {found: None for row in CLAIMS for found in re.findall(r"(?:vicinal|python) [^`]*", row[5])}


def test_there_are_as_many_rows_as_the_papers_have() -> None:
    assert len(ROWS) == 55
    assert len({row[0] for row in ROWS}) == 55
    assert len(CLAIMED) > 10


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_page(row: list[str]) -> None:
    _, file, test, recipe, command = row
    assert (ROOT / file).is_file()
    assert (ROOT / test).is_file()
    if recipe:
        find_recipe(recipe)
    could_be_carried_out(command)


@pytest.mark.parametrize("command", CLAIMED)
def test_a_command_of_the_claims(command: str) -> None:
    could_be_carried_out(command)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("vicinal train --recipe ccp/cub-trunk --recipe ccp/losses/c2-ccp", "fold"),
        ("vicinal train --recipe ccp/cub-trunk --fold 4", "fold"),
        ("vicinal tune --recipe ccp/cub --trials 4", "fold"),
        ("vicinal train --recipe ccp/cub-trunk --fold 0 -o weights=none", "weights"),
        ("python examples/xor.py --nothing", "--nothing"),
        ("python examples/xor.py --out", "--out: expected one argument"),
        ("python examples/ccp_runs.py --data cub --studies main,pool", "'pool' is none of main, warm"),
        ("python examples/ccp_trunk.py --losses c3", "'c3' is none of c2, ms"),
    ],
)
def test_a_command_that_could_not_is_found(command: str, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        could_be_carried_out(command)


def could_be_carried_out(command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "python" and arguments[0] == "-c":
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(arguments[1], "<docs/papers.md>", "exec"), {})
        assert printed.getvalue()
    elif program == "python":
        parsed_by_the_script(*arguments)
    else:
        assert program == "vicinal"
        group = typer.main.get_command(app)
        context = group.make_context("vicinal", [], resilient_parsing=True)
        name, verb, rest = group.resolve_command(context, arguments)
        parsed = verb.make_context(name, rest).params  # what is not a flag of the verb is refused
        for recipe in named_recipes(str(name), parsed):
            fits_together(recipe, one_fold=name != "compare")


class Parsed(Exception):
    """A script has read its arguments, and would now begin."""


def parsed_by_the_script(script: str, *arguments: str) -> None:
    """Run a script until its own parser has read the arguments; what it refuses is an AssertionError."""
    read = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *_: Any) -> None:
        read(parser, list(arguments))
        raise Parsed

    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stderr(io.StringIO()) as said:
        patched.setattr(argparse.ArgumentParser, "parse_args", stop)
        patched.syspath_prepend(str((ROOT / script).parent))
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        except Parsed:
            return
        except SystemExit:
            raise AssertionError(said.getvalue()) from None
    raise AssertionError(f"{script} reads no arguments")


def named_recipes(verb: str, parsed: dict[str, Any]) -> list[Recipe]:
    """Return what a command trains."""
    if verb not in ("train", "tune", "compare"):
        return []
    flags = {name: value for name, value in parsed.items() if name in SETTINGS}
    files, changes = parsed["recipe"] or [], given(flags, parsed["option"])
    if verb != "compare":
        return [Recipe.read(*files, **changes)]
    losses = words(parsed["losses"]) or [loss for name in files for loss in losses_beside(name)] or as_names(None)
    changes = {name: value for name, value in changes.items() if name not in ("loss", "ccp", "seed")}
    return [draft.recipe for draft in drafts(losses, read_tables(*files), changes)]


def fits_together(recipe: Recipe, *, one_fold: bool) -> None:
    folds = recipe.folds or PROTOCOLS[recipe.protocol]
    assert recipe.data is not None, "no data"
    assert not recipe.select_on_test or recipe.protocol == "default", "chosen on test classes"
    if one_fold and folds is not None:
        assert recipe.fold in range(folds), f"fold is {recipe.fold}"
    assert not recipe.freeze or recipe.pretrained, "frozen without weights"
    if recipe.data in ("digits", "glyphs"):  # which everybody has
        recipe.changed(fold=None if folds is None else recipe.fold or 0).split(load(recipe.data))
