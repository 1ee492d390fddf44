"""Trials side by side: processes that keep their data, outlive failures, and die with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar, final

from vicinal._util.warnings import warn_plainly
from vicinal.errors import Interrupted, MissingExtra

__all__ = ["Ended", "Processes", "run_here", "run_on_ray"]


Task = TypeVar("Task")
Result = TypeVar("Result")
STOPPING = 60.0  # seconds that a trial has to save itself


@dataclass(frozen=True)
class Ended(Generic[Task, Result]):
    """A task that came to an end: with a result, or with the reason why there is none."""

    task: Task
    result: Result | None
    error: str = ""


def run_here(
    tasks: Sequence[Task], work: Callable[[Task], Result], started: Callable[[Task], None]
) -> Iterator[Ended[Task, Result]]:
    """Do one task after the other in this process."""
    for task in tasks:
        started(task)
        yield Ended(task, work(task))


@final
class Processes:
    """Processes that do tasks side by side, and wait in between: to start one takes seconds, most of them for imports.

    A process that dies takes only its task with it: the task ends with an error, and a new process does the rest. Who
    was killed from outside is given a second chance, since a run goes on from its last checkpoint.

    Args:
        jobs: How many at most; they are started when there is something to do, or by `start`.
        threads: Of each.
    """

    def __init__(self, jobs: int, threads: int) -> None:
        self._jobs, self._threads = jobs, threads
        self._pool: list[_Process] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._pool:
            process.end()
        self._pool = []

    def start(self, work: Callable[[Any], Any], tasks: int) -> None:
        """Start processes for tasks that are to come; they get ready while this one does something else.

        Args:
            work: What will be done; its `get_ready`, if it has one, is called in each of them.
            tasks: How many there will be.
        """
        self._fill(tasks)
        for process in self._pool:
            process.gets_ready(work)

    def _fill(self, tasks: int) -> None:
        self._pool += [_Process(self._threads) for _ in range(min(self._jobs, tasks) - len(self._pool))]

    def run(
        self, tasks: Sequence[Task], work: Callable[[Task], Result], started: Callable[[Task], None]
    ) -> Iterator[Ended[Task, Result]]:
        """Do tasks; each process receives `work`, with all its data, once."""
        waiting = list(reversed(tasks))
        given_again: set[int] = set()
        self._fill(len(tasks))
        pool = self._pool
        try:
            while waiting or any(process.task is not None for process in pool):
                for place, process in enumerate(pool):
                    if process.task is None and waiting:
                        task = waiting.pop()
                        started(task)
                        if not process.takes(task, work):  # it died while it had nothing to do
                            pool[place] = _Process(self._threads)
                            pool[place].takes(task, work)
                busy = {process.connection: process for process in pool if process.task is not None}
                for connection in wait(list(busy)):
                    process = busy[connection]  # type: ignore[index]
                    task, process.task = process.task, None
                    try:
                        result = process.connection.recv()
                    except (EOFError, ConnectionError):
                        pool[pool.index(process)] = _Process(self._threads)
                        reason = process.last_words()
                        if process.was_killed and id(task) not in given_again:
                            given_again.add(id(task))
                            waiting.append(task)
                            continue
                        yield Ended(task, None, reason)
                        continue
                    if result is None:
                        raise Interrupted("A trial was stopped.")  # noqa: TRY301 (handled with Ctrl-C)
                    yield Ended(task, result)
        except (KeyboardInterrupt, Interrupted):
            for process in pool:
                process.ask_to_stop()
            raise


class _Process:
    """One worker process, the pipe to it, and the task it is at."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        self.connection, theirs = context.Pipe()
        self.task: Any = None
        self._work: Any = None
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, threads))
        with _deaf_to_interrupts():
            self.process.start()
        theirs.close()

    def gets_ready(self, work: Callable[[Any], Any]) -> None:
        """Tell it what will be done."""
        self._work = work
        with suppress(OSError):  # one that is gone is replaced when there is a task for it
            self.connection.send((work,))

    def takes(self, task: Any, work: Callable[[Any], Any]) -> bool:
        """Give it a task, and what is to be done to it unless it knows; False if it is gone."""
        self.task = task
        try:
            # Not as an argument of the process: to one that is killed while it starts, Python would write for ever.
            self.connection.send((None if self._work is work else work, task))
            self._work = work
        except OSError:
            return False
        return True

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended it, once it has ended."""
        return (self.process.exitcode or 0) < 0

    def last_words(self) -> str:
        """Say how the process ended."""
        self.process.join(STOPPING)
        code = self.process.exitcode
        killed = " (killed by the system: most often for lack of memory, so give fewer --jobs)" if code == -9 else ""
        return f"Its process ended with exit code {code}{killed}."

    def ask_to_stop(self) -> None:
        """Let training save itself and stop."""
        if self.task is not None and self.process.is_alive():
            self.process.terminate()

    def end(self) -> None:
        """Close the pipe, at which the process ends; one that does not is killed."""
        with suppress(OSError):
            self.connection.close()
        self.process.join(STOPPING)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let what is started here ignore Ctrl-C from its first moment on: the parent says when to stop.

    A process that is interrupted while it imports would print its traceback among what the parent says.
    """
    try:
        former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not in the main thread, where signals cannot be changed
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _serve(connection: Connection, threads: int) -> None:
    """Receive what is to be done, and do it to tasks as they come, until the pipe closes."""
    import torch

    warn_plainly()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent says when to stop
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    work = None
    while True:
        try:
            other_work, *tasks = connection.recv()
        except (EOFError, OSError):
            return
        work = other_work or work
        assert work is not None  # which comes with the first task, or before it
        if not tasks:
            getattr(work, "get_ready", lambda: None)()
            continue
        (task,) = tasks
        try:
            result = work(task)
        except Interrupted:
            result = None
        with suppress(BrokenPipeError):
            connection.send(result)
        if result is None:
            return


def _die_with_parent() -> None:
    """End this process when its parent is gone, so that nothing works on in a folder that a new one may take over."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# Trials on a Ray cluster.

LOSSES = 3  # of workers or machines that a run may suffer


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
