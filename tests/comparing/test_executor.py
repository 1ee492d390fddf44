"""Processes of a comparison."""

import os

import pytest

from vicinal.comparing.executor import Processes

pytestmark = pytest.mark.unit


def blas_threads(task):
    from threadpoolctl import threadpool_info

    return {pool["num_threads"] for pool in threadpool_info()}


def test_processes_limit_the_threads_of_numpy_as_well_as_of_torch(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with Processes(1, threads=1) as processes:
        (ended,) = processes.run(["task"], blas_threads, lambda task: None)
    assert ended.result == {1}
    assert os.environ["OMP_NUM_THREADS"] == "2"
