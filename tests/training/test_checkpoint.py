"""Checkpoints: what goes in comes out, whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from vicinal._util.files import remove_partial_files, replacing, write_atomically
from vicinal.errors import DataError
from vicinal.runs import RunFiles
from vicinal.training import checkpoint
from vicinal.training.checkpoint import (
    load_best,
    load_checkpoint,
    random_state,
    restore_random_state,
    save_best,
    save_checkpoint,
)

pytestmark = pytest.mark.unit

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.lists(st.floats(allow_nan=False, width=32), max_size=3).map(torch.tensor)
)
KEYS = st.text(max_size=5)
NESTED = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.integers(), inner, max_size=3)
)
STATES = st.dictionaries(KEYS, NESTED, max_size=4)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=STATES)
def test_nested_states_come_back(state: dict[Any, Any], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "state.ckpt", state)
    assert same(load_checkpoint(tmp_path / "state.ckpt"), state)


def test_tensors_of_every_kind_and_keys_with_slashes_come_back(tmp_path: Path) -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    state = {
        "a/b": torch.tensor(1),
        "a": {"b": torch.tensor(2)},
        "turned": shared.T,
        "rows": [shared[0], shared],
        "half": torch.ones(2, dtype=torch.bfloat16),
        "truth": torch.tensor([True, False]),
        "none": torch.empty(0, 3),
        "score": -float("inf"),
    }
    save_checkpoint(tmp_path / "state.ckpt", state)
    assert same(load_checkpoint(tmp_path / "state.ckpt"), state)


def test_tuples_come_back_as_lists(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "state.ckpt", {"betas": (0.9, 0.999)})
    assert load_checkpoint(tmp_path / "state.ckpt") == {"betas": [0.9, 0.999]}


def test_optimiser_state_comes_back(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    adam = torch.optim.AdamW([weight])
    weight.sum().backward()
    adam.step()
    save_checkpoint(tmp_path / "adam.ckpt", adam.state_dict())
    other = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))])
    other.load_state_dict(load_checkpoint(tmp_path / "adam.ckpt"))
    assert same(other.state_dict()["state"], adam.state_dict()["state"])


@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "other", "missing", "folder"])
def test_a_damaged_file_is_refused_by_name(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    save_checkpoint(path, {"weights": torch.ones(1000)})
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "other":
        save_file({"weights": torch.ones(3)}, path)
    elif damage in ("missing", "folder"):
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else b"\x00" * 500)
    if damage == "folder":
        path.mkdir()
    with pytest.raises(DataError, match=r"last\.ckpt is not a checkpoint of vicinal, or it is corrupted"):
        load_checkpoint(path)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_noticed(where: float, bit: int, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    save_checkpoint(path, {"weights": torch.ones(40), "step": 17, "scores": {"MAP@R": 0.25}})
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"last\.ckpt"):
        load_checkpoint(path)


def test_best_weights_are_those_that_the_last_checkpoint_names(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    save_best(files, {"model": 1}, step=10, run="a")
    save_best(files, {"model": 2}, step=20, run="a")
    assert load_best(files, step=10, run="a")["model"] == 1  # killed before the last checkpoint named step 20
    assert [path.name for path in tmp_path.iterdir()] == ["best.ckpt"]
    save_best(files, {"model": 2}, step=20, run="a")
    assert load_best(files, step=20, run="a")["model"] == 2
    for step, run in ((30, "a"), (20, "b")):
        with pytest.raises(DataError, match=rf"(?s)step {step} of run {run}.*holds step 20 of run a.*Restore"):
            load_best(files, step=step, run=run)


def test_checkpoints_follow_the_umask(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "last.ckpt", {"step": 1})
    write_atomically(tmp_path / "recipe.toml", "")
    assert (tmp_path / "last.ckpt").stat().st_mode == (tmp_path / "recipe.toml").stat().st_mode


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", 99)
        save_checkpoint(tmp_path / "last.ckpt", {"step": 1})
    with pytest.raises(DataError, match=r"version 99; this vicinal reads version 4(.|\n)*Resume with the vicinal"):
        load_checkpoint(tmp_path / "last.ckpt")


def test_a_full_disk_leaves_the_former_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    save_checkpoint(path, {"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(DataError, match=r"Could not write the checkpoint .*last\.ckpt(.|\n)*Free some space"):
            save_checkpoint(path, {"weights": torch.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert load_checkpoint(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["last.ckpt"]


def test_an_error_of_the_system_is_told_and_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tensors: Any, path: Path, metadata: Any) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(DataError, match="No space left on device"):
        save_checkpoint(tmp_path / "last.ckpt", {"step": 1})
    assert os.listdir(tmp_path) == []


def test_text_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "recipe.toml", "größe = 1\n")
    assert (tmp_path / "recipe.toml").read_bytes() == "größe = 1\n".encode()

    def fail(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DataError, match=r"Could not write .*recipe\.toml: .*Read-only file system"):
        write_atomically(tmp_path / "recipe.toml", "other\n")
    assert (tmp_path / "recipe.toml").read_text(encoding="utf-8") == "größe = 1\n"
    assert os.listdir(tmp_path) == ["recipe.toml"]


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Could not write .*No such file"):
        save_checkpoint(tmp_path / "gone" / "last.ckpt", {"step": 1})
    with pytest.raises(DataError, match="No such file or directory"):
        write_atomically(tmp_path / "gone" / "recipe.toml", "")


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".last.ckpt.123.partial").write_bytes(b"half")
    write_atomically(tmp_path / "record.json", json.dumps({}))
    remove_partial_files(tmp_path)
    assert os.listdir(tmp_path) == ["record.json"]


KILLED = """
import os, signal, sys
from pathlib import Path
from vicinal._util.files import replacing
with replacing(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("name", ["record.json", "\u00e4" * 120])  # and one that is too long to be a part of another
def test_who_writes_a_file_removes_what_killed_processes_left_of_it(tmp_path: Path, name: str) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name)], check=False)
    (left,) = os.listdir(tmp_path)
    elsewhere = left.replace(left.split(".")[-2].split("-")[0], "0123456789ab")  # of a machine that may be at work
    (tmp_path / elsewhere).touch()
    with replacing(tmp_path / name) as file:
        (own,) = set(os.listdir(tmp_path)) - {elsewhere}
        assert own != left
        write_atomically(tmp_path / name, "of a thread that was faster")
        assert set(os.listdir(tmp_path)) == {elsewhere, own, name}
        file.write(b"whole")
    assert set(os.listdir(tmp_path)) == {elsewhere, name}
    assert (tmp_path / name).read_bytes() == b"whole"


def test_generators_go_on_where_they_were() -> None:
    torch.rand(3)
    state = random_state()
    first = torch.rand(5)
    restore_random_state(state)
    assert torch.equal(torch.rand(5), first)
