"""The README leads to everything: every verb, every package, every page."""

from __future__ import annotations

import re
from pathlib import Path

from vicinal.cli.main import VERBS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_has_every_verb() -> None:
    table = [line for line in README.splitlines() if line.startswith("| ")]
    assert set(VERBS) == set(re.findall(r"`vicinal ([a-z-]+)", "\n".join(table)))


def test_the_tree_has_every_package() -> None:
    packages = {path.parent.name for path in (ROOT / "vicinal").glob("*/__init__.py")}
    tree = README.partition("## Where things are")[2].partition("## ")[0]
    assert packages == set(re.findall(r"(\w+)/", tree)) - {"vicinal", "docs"}
    named = set(re.findall(r"(\w+\.py)", tree))
    assert named <= {path.name for path in (ROOT / "vicinal").glob("*.py")}


def test_every_page_is_one_click_away() -> None:
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages - {"docs/index.md"} <= set(re.findall(r"\]\(([^)#]+)", README))
