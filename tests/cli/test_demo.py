"""What `vicinal demo` says, and where; tests/wheel runs the whole of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the comparison was asked for, which is not made."""
    seen: dict[str, Any] = {}
    board = SimpleNamespace(to_dict=lambda: {"best": "triplet"}, print=lambda console: console.print("a ranking"))
    monkeypatch.setattr("vicinal.comparing.compare", lambda *names, **settings: seen.update(settings) or board)
    monkeypatch.setattr("vicinal.report.write_report", lambda board, out, **_: out)
    return seen


def test_it_tells_the_ranking_and_what_to_do_next(asked: dict[str, Any]) -> None:
    told = CliRunner().invoke(app, ["demo", "--out", "there", "--seeds", "1", "--steps", "7"])
    assert told.exit_code == 0, told.output
    for words in ("5 losses with 1 seed and 7 steps each", "a ranking", "there/report.html", "vicinal data photos/"):
        assert words in told.stdout
    assert (asked["steps"], asked["seeds"], asked["out"]) == (7, 1, Path("there"))


def test_json_is_alone_on_standard_output(asked: dict[str, Any]) -> None:
    told = CliRunner().invoke(app, ["demo", "--json"])
    assert json.loads(told.stdout) == {"best": "triplet"}
    assert "Report: " in told.stderr
