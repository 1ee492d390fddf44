from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from vicinal.cli.main import app
from vicinal.errors import UnknownName
from vicinal.objectives import OBJECTIVES

run = CliRunner().invoke


def test_every_loss_is_listed_with_its_geometry_needs_references_and_paper() -> None:
    rows = json.loads(run(app, ["losses", "--json"]).stdout)
    assert [row["loss"] for row in rows] == sorted(OBJECTIVES)
    assert all(row["geometry"] and row["needs"] and row["references"] and row["paper"] for row in rows)


def test_the_table_names_every_loss() -> None:
    shown = run(app, ["losses"]).stdout
    assert all(loss in shown for loss in OBJECTIVES)


def test_a_data_sheet_has_every_section() -> None:
    for loss in OBJECTIVES:
        sheet = run(app, ["losses", loss]).stdout
        for section in ("Formula:", "Weights:", "Args:", "Needs:", "Relations:", "Reference:", "Example:"):
            assert section in sheet, (loss, section)


def test_a_data_sheet_as_json() -> None:
    sheet = json.loads(run(app, ["losses", "raw", "--json"]).stdout)
    assert "RAW" in sheet["data sheet"]
    assert {"geometry", "options", "paper"} <= set(sheet)


def test_an_alias_shows_the_sheet_of_what_it_stands_for() -> None:
    assert "RAW" in run(app, ["losses", "raw"]).stdout


def test_a_misspelt_loss_is_answered_with_the_nearest() -> None:
    result = run(app, ["losses", "tripplet"])
    assert isinstance(result.exception, UnknownName)
    assert "did you mean 'triplet'?" in str(result.exception)


def test_an_error_on_the_command_line_is_one_message_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from vicinal.cli.main import main

    monkeypatch.setattr("sys.argv", ["vicinal", "losses", "tripplet"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: Unknown loss 'tripplet'")
    assert "Traceback" not in shown
