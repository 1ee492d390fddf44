"""The log of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from lightning_fabric import Fabric
from torch import nn

from vicinal.criterion import Criterion
from vicinal.errors import DataError, MissingExtra
from vicinal.runs.run import RunFiles
from vicinal.training import log as module
from vicinal.training.log import Log, TensorBoard, read_log
from vicinal.training.settings import Settings
from vicinal.training.state import TrainingState

pytestmark = pytest.mark.unit


def lines(folder: Path) -> list[dict[str, float | None]]:
    return read_log(folder / "metrics.jsonl")


def test_lines_are_json_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    with Log(RunFiles(tmp_path), step=0, steps=10, progress=False) as log:
        log.write(1, {"loss": 0.5, "hardest_positive": math.nan})
        log.advance(1)
    assert lines(tmp_path) == [{"step": 1, "loss": 0.5, "hardest_positive": None}]


def test_a_resumed_log_drops_later_and_broken_lines(tmp_path: Path) -> None:
    with Log(RunFiles(tmp_path), step=0, steps=10, progress=False) as log:
        for step in (2, 4, 6):
            log.write(step, {"loss": step / 2})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "lo')
    with Log(RunFiles(tmp_path), step=4, steps=10, progress=False) as log:
        log.write(6, {"loss": 0.0})
    assert lines(tmp_path) == [{"step": 2, "loss": 1.0}, {"step": 4, "loss": 2.0}, {"step": 6, "loss": 0.0}]


def test_damage_that_leaves_valid_json_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with Log(RunFiles(tmp_path), step=0, steps=10, progress=False) as log:
        log.write(2, {"loss": 0.25})
        log.write(4, {"loss": 0.125})
    assert all("sha256" in json.loads(line) for line in path.read_text().splitlines())
    path.write_text(path.read_text().replace("0.125", "0.925"))
    with pytest.raises(DataError, match=r"Line 2 of .* is corrupted"):
        lines(tmp_path)


def test_a_line_that_was_left_half_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": 1.0\n')
    assert lines(tmp_path) == []


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Log(None, step=0, steps=1, progress=False) as log:
        log.write(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with Log(RunFiles(tmp_path), step=0, steps=1, progress=False) as log:
        (tmp_path / "metrics.jsonl").unlink()
        (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(DataError, match=r"Could not write the log .*No space left(.|\n)*last checkpoint"):
            log.write(1, {"loss": 1.0})


def test_the_bar_shows_loss_score_and_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    with Log(None, step=3, steps=10) as log:
        log.write(4, {"loss": 0.25, "score": 0.5, "images_per_second": 123.4, "kept_positives": 1.0})
        log.advance(4)
    shown = capsys.readouterr().err
    assert "4/10" in shown
    assert "loss 0.2500" in shown
    assert "score 0.5000" in shown
    assert "123 images/s" in shown
    with Log(None, step=3, steps=None, seconds=60.0) as log:
        log.advance(4, 12.3)
    assert "12/60" in capsys.readouterr().err  # seconds, where time alone ends the run


def small_state(step: int) -> TrainingState:
    fabric = Fabric(accelerator="cpu", devices=1)
    return TrainingState(fabric, nn.Linear(1, 1), Criterion("triplet"), Settings(), scored=False, step=step)


def test_tensorboard_writes_events_or_says_how_to_install_it(tmp_path: Path) -> None:
    hook = TensorBoard(tmp_path)
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtra, match=r"pip install 'vicinal\[tensorboard\]'"):
            hook.start(small_state(0))
    else:
        hook.start(small_state(0))
        hook.on_log(small_state(1), {"loss": 1.0})
        hook.end(small_state(1))
        assert list((tmp_path / "tensorboard").iterdir())


def test_a_resumed_tensorboard_purges_later_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(
        module, "_summary_writer", lambda: lambda folder, purge_step: calls.append((folder, purge_step))
    )
    hook = TensorBoard(tmp_path)
    hook.start(small_state(7))
    hook.end(small_state(7))
    assert calls == [(str(tmp_path / "tensorboard"), 8)]
