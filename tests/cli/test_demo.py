from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vicinal.cli import demo
from vicinal.cli.main import app


@pytest.mark.recipe
def test_json_is_alone_on_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "LOSSES", ("contrastive",))
    out = tmp_path / "demo"
    arguments = ["demo", "--out", str(out), "--seeds", "1", "--steps", "1", "--no-progress"]
    told = CliRunner().invoke(app, [*arguments, "--json"])
    assert told.exit_code == 0, told.output
    assert "contrastive" in json.dumps(json.loads(told.stdout))
    assert "The report is" in told.stderr
    again = CliRunner().invoke(app, arguments).stdout  # which goes on where it was
    assert "vicinal data photos/" in again
