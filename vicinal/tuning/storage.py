"""Where trials are kept: in memory, in a file, or in a database that many machines share."""

from __future__ import annotations

import os
import re
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from vicinal.errors import DataError
from vicinal.tuning.in_turn import PLACE, places

__all__ = ["ERROR", "WORKER", "explained", "open_storage", "run_lost_again", "this_worker"]

WORKER, ERROR = "worker", "error"
HEARTBEAT, GRACE = 30, 120  # seconds between two signs of life, and without one until a worker counts as dead
LOCKED = 60  # seconds to wait for another worker that writes to the same file


def open_storage(where: str | Path | None) -> BaseStorage:
    """Open a storage: None for memory, a path for an SQLite file, or an address such as `postgresql://host/name`."""
    if where is None:
        return InMemoryStorage()
    address = str(where) if "://" in str(where) else f"sqlite:///{Path(where).resolve()}"
    options = {"connect_args": {"timeout": LOCKED}} if address.startswith("sqlite") else {}
    patience = 5
    while True:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)  # heartbeats are
                return RDBStorage(address, engine_kwargs=options, heartbeat_interval=HEARTBEAT, grace_period=GRACE)
        except _database_errors() as error:
            # Of workers that start together each makes the tables, and all but the first find them made.
            patience -= 1
            if not patience or not re.search("already exists|UNIQUE|duplicate", str(error)):
                raise
            time.sleep(0.2)


@contextmanager
def explained(where: str | Path | None) -> Iterator[None]:
    """Turn what a database complains of into one sentence."""
    try:
        yield
    except _database_errors() as error:
        reason = _innermost(error)
        hint = "Choose another place with storage= (--storage)."
        if isinstance(error, ImportError):
            hint = "Install the driver of that database with pip."
        elif "readonly" in reason:
            hint = "The file or its folder is read-only: make it writable, or choose another place."
        elif "full" in reason or "disk I/O" in reason:
            hint = "Free some space and start the same search again: finished trials are kept."
        shown = re.sub(r"(?<=:)[^:@/]+(?=@)", "***", str(where))  # no password in a message
        raise DataError(f"Cannot use the storage of trials {shown}: {reason}.", hint=hint) from error


def this_worker() -> str:
    """Return who runs trials here: the machine and the process."""
    return f"{socket.gethostname()} {os.getpid()}"


def run_lost_again(study: Study) -> None:
    """Put trials back into the queue, at their places, that were cut short because their worker died or was stopped.

    A worker on this machine is known to be dead at once, one on another machine when its signs of life have stopped.
    """
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if _is_lost(trial):
            with suppress(UpdateFinishedTrialError, ValueError):  # another worker was faster
                study.tell(trial.number, state=TrialState.FAIL)
    trials = study.get_trials(deepcopy=False)
    latest = dict(zip(places(trials), trials, strict=True))
    for place, trial in latest.items():
        if trial.state == TrialState.FAIL and ERROR not in trial.user_attrs:
            study.enqueue_trial({}, user_attrs={PLACE: place})


def _is_lost(trial: FrozenTrial) -> bool:
    machine, _, process = str(trial.user_attrs.get(WORKER, "")).rpartition(" ")
    if not process:  # killed before it could say who it was
        return trial.datetime_start is not None and datetime.now() - trial.datetime_start > timedelta(seconds=GRACE)
    if machine != socket.gethostname():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # alive, and somebody else's
    return False


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(getattr(error, "orig", None) or error).strip().rstrip(".")


def _database_errors() -> tuple[type[Exception], ...]:
    from sqlalchemy.exc import SQLAlchemyError  # half a second that `import vicinal` need not wait

    return (SQLAlchemyError, StorageInternalError, ImportError)
