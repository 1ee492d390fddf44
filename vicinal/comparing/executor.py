"""Parallel execution of tasks, in local processes that end with their parent, or on a Ray cluster."""

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
STOPPING = 60.0  # seconds that a run has to save its state


@dataclass(frozen=True)
class Ended(Generic[Task, Result]):
    """A finished task, with a result or with the reason why there is none."""

    task: Task
    result: Result | None
    error: str = ""


def run_here(
    tasks: Sequence[Task], work: Callable[[Task], Result], started: Callable[[Task], None]
) -> Iterator[Ended[Task, Result]]:
    """Run tasks one after another in this process."""
    for task in tasks:
        started(task)
        yield Ended(task, work(task))


@final
class Processes:
    """Worker processes that run tasks in parallel. They stay alive in between: starting one takes seconds of imports.

    If a process dies, only its task ends with an error, and a new process takes its place. The task of a process that
    was killed by a signal is retried once, since a run resumes from its last checkpoint.

    Args:
        jobs: Largest number of processes; they are started when needed, or by `start`.
        threads: Number of threads of each process.
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
        """Start processes for upcoming tasks; they prepare while this process does something else.

        Args:
            work: Function to run on each task; its `get_ready`, if it has one, is called in each process.
            tasks: Number of upcoming tasks.
        """
        self._fill(tasks)
        for process in self._pool:
            process.gets_ready(work)

    def _fill(self, tasks: int) -> None:
        self._pool += [_Process(self._threads) for _ in range(min(self._jobs, tasks) - len(self._pool))]

    def run(
        self, tasks: Sequence[Task], work: Callable[[Task], Result], started: Callable[[Task], None]
    ) -> Iterator[Ended[Task, Result]]:
        """Run tasks; `work`, with all its data, is sent to each process once."""
        waiting = list(reversed(tasks))
        given_again: set[int] = set()
        self._fill(len(tasks))
        pool = self._pool
        try:
            while waiting or any(process.task is not None for process in pool):
                for index, process in enumerate(pool):
                    if process.task is None and waiting:
                        task = waiting.pop()
                        started(task)
                        if not process.takes(task, work):  # it died while idle
                            pool[index] = _Process(self._threads)
                            pool[index].takes(task, work)
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
    """A worker process, the pipe to it, and its current task."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")  # PyTorch's threads do not survive a fork
        self.connection, child_end = context.Pipe()
        self.task: Any = None
        self._work: Any = None
        self.process: SpawnProcess = context.Process(target=_serve, args=(child_end, threads))
        with _deaf_to_interrupts(), _limited_threads(threads):
            self.process.start()
        child_end.close()

    def gets_ready(self, work: Callable[[Any], Any]) -> None:
        """Send the work to the process in advance."""
        self._work = work
        with suppress(OSError):  # a dead process is replaced when it gets a task
            self.connection.send((work,))

    def takes(self, task: Any, work: Callable[[Any], Any]) -> bool:
        """Assign a task, and send the work unless it has it already; return False if the process is gone."""
        self.task = task
        try:
            # Not as an argument of the process: Python would block forever if it is killed while it starts.
            self.connection.send((None if self._work is work else work, task))
            self._work = work
        except OSError:
            return False
        return True

    @property
    def was_killed(self) -> bool:
        """Whether the process was ended by a signal."""
        return (self.process.exitcode or 0) < 0

    def last_words(self) -> str:
        """Return how the process ended."""
        self.process.join(STOPPING)
        code = self.process.exitcode
        killed = " (killed by the system: most often for lack of memory, so give fewer --jobs)" if code == -9 else ""
        return f"Its process ended with exit code {code}{killed}."

    def ask_to_stop(self) -> None:
        """Ask training to save its state and stop."""
        if self.task is not None and self.process.is_alive():
            self.process.terminate()

    def end(self) -> None:
        """Close the pipe, which ends the process; kill it if it does not end."""
        with suppress(OSError):
            self.connection.close()
        self.process.join(STOPPING)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def _limited_threads(threads: int) -> Iterator[None]:
    """Limit the threads of processes started here, including those of NumPy, which torch does not control.

    NumPy's threads wait in a loop: with more of them than cores, runs take several times as long.
    """
    former = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        if former is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = former


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Make processes started here ignore Ctrl-C from the beginning; the parent tells them when to stop.

    A process that is interrupted during its imports would print a traceback into the parent's output.
    """
    try:
        former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread: signals cannot be changed here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _serve(connection: Connection, threads: int) -> None:
    """Receive the work and run it on tasks as they arrive, until the pipe closes."""
    import torch

    warn_plainly()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent tells them when to stop
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    work = None
    while True:
        try:
            other_work, *tasks = connection.recv()
        except (EOFError, OSError):
            return
        work = other_work or work
        assert work is not None  # sent with the first task or before it
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
    """End this process when its parent is gone, so that it does not write to a folder that a new process may use."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# Execution on a Ray cluster.

LOSSES = 3  # retries of a run after lost workers or machines


def run_on_ray(
    tasks: Sequence[Task],
    work: Callable[[Task], Result],
    started: Callable[[Task], None],
    *,
    address: str,
    threads: int,
) -> Iterator[Ended[Task, Result]]:
    """Run tasks on a Ray cluster, as many in parallel as it has resources for.

    The data goes into Ray's object store once. All machines must be able to access the folder of the comparison and, if
    the data is a set of files, those files under the same paths.

    Args:
        tasks: Tasks to run.
        work: Function that runs a task.
        started: Callback that receives each task when it is submitted.
        address: Address of the cluster; "local" starts one on this machine.
        threads: Number of CPUs of each task.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "Comparing on Ray") from None
    mine = not ray.is_initialized()
    if mine:
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    # Ray retries tasks that it lost with a worker or a machine, and the run resumes from its last checkpoint. Tasks
    # that raise an exception are not retried.
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
