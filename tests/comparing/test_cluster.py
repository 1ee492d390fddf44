"""Trials on a Ray cluster of this machine."""

import pytest

from vicinal.comparing.executor import run_on_ray
from vicinal.errors import MissingExtra

pytestmark = [pytest.mark.recipe, pytest.mark.slow]


def tenfold(task):
    if task == 2:
        raise RuntimeError("It broke.")
    return task * 10


def test_tasks_run_on_a_local_cluster_and_a_failure_stays_alone():
    pytest.importorskip("ray", reason="the extra 'ray' is not installed: pip install 'vicinal[ray]'")
    started: list[int] = []
    ended = {one.task: one for one in run_on_ray([1, 2, 3], tenfold, started.append, address="local", threads=1)}
    assert started == [1, 2, 3]
    assert {task: one.result for task, one in ended.items()} == {1: 10, 2: None, 3: 30}
    assert "It broke." in ended[2].error


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"vicinal\[ray\]"):
        list(run_on_ray([1], tenfold, lambda _: None, address="local", threads=1))
