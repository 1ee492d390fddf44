"""The command line as a whole: what nobody foresaw, interruptions, and outputs that are tried before the work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vicinal._util.files import prepare_output
from vicinal.cli import main as module
from vicinal.errors import DataError, Interrupted

pytestmark = pytest.mark.unit


def run(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail() -> None:
        raise error

    monkeypatch.setattr(module, "app", fail)
    with pytest.raises(SystemExit) as ended:
        module.main()
    return int(ended.value.code or 0)


def test_what_nobody_foresaw_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(RuntimeError("at postgresql://me:hush@host/x\nand more"), monkeypatch) == 70
    said = capfd.readouterr().err
    assert len(said.splitlines()) == 1
    file = Path(re.search(r"and attach (\S+)\.$", said).group(1))  # type: ignore[union-attr]
    kept = file.read_text()
    file.unlink()
    assert "Traceback" in kept
    assert "hush" not in kept + said


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("It is saved.")])
def test_an_interruption_prints_no_traceback(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(error, monkeypatch) == 130
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_names_that_are_no_text_are_printed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(DataError("caf\udce9 is bad"), monkeypatch) == 2
    assert r"caf\udce9 is bad" in capfd.readouterr().err


def test_outputs_are_tried_before_the_work(tmp_path: Path) -> None:
    prepare_output(None)
    prepare_output(tmp_path / "deep" / "below" / "a.json")
    assert list((tmp_path / "deep" / "below").iterdir()) == []
    (tmp_path / "file").touch()
    for path, reason in (
        (tmp_path / "deep", "is a folder"),
        (tmp_path / "file" / "a.json", "Cannot write"),
        (Path("/proc/none/a.json"), "Cannot write"),
        (tmp_path / ("n" * 300) / "a.json", "too long"),
    ):
        with pytest.raises(DataError, match=reason):
            prepare_output(path)
