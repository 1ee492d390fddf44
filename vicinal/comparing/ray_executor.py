"""Trials on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from vicinal.comparing.executor import Ended
from vicinal.errors import Interrupted, MissingExtra

__all__ = ["run_on_ray"]

LOSSES = 3  # of workers or machines that a run may suffer

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_on_ray(
    tasks: Sequence[Task],
    work: Callable[[Task], Result],
    started: Callable[[Task], None],
    *,
    address: str,
    threads: int,
) -> Iterator[Ended[Task, Result]]:
    """Do tasks on a Ray cluster, as many at a time as it has room for.

    The data goes into Ray's object store once. All machines must see the folder of the comparison and, where the data
    is a set of files, those files under the same paths.

    Args:
        tasks: To be done.
        work: Does one.
        started: Told of each task as it is handed over.
        address: Of the cluster; "local" starts one in this machine.
        threads: Processors of each task.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "Comparing on Ray") from None
    mine = not ray.is_initialized()
    if mine:
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    # Ray tries again what it lost with a worker or a machine, and the run goes on from its last checkpoint; what
    # raises an error of its own is not tried again.
    do = ray.remote(num_cpus=threads, max_retries=LOSSES)(_do)
    try:
        shared = ray.put(work)
        running = {}
        for task in tasks:
            started(task)
            running[do.remote(shared, task, threads)] = task
        while running:
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            task = running.pop(done)
            try:
                yield Ended(task, ray.get(done))
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, Interrupted):
                    raise Interrupted(str(error.cause)) from None
                yield Ended(task, None, str(error.cause))
            except ray.exceptions.RayError as error:
                yield Ended(task, None, f"Ray lost it: {error}")
    finally:
        if mine:
            ray.shutdown()


def _do(work: Callable[[Any], Any], task: Any, threads: int) -> Any:
    import torch

    torch.set_num_threads(threads)
    return work(task)
