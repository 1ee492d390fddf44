"""Storage of trials: in memory, in a file, or in a database that several machines share."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from vicinal._util.machine import is_gone, this_process
from vicinal._util.secrets import masked, without_secrets
from vicinal.errors import DataError
from vicinal.tuning.samplers import PLACE, places

__all__ = ["ERROR", "LostTrials", "claim", "explained", "open_storage", "running", "signs_of_life", "unclaimed"]


LOCKED = 60  # seconds to wait while another worker writes to the same file


def open_storage(where: str | Path | None) -> BaseStorage:
    """Open a storage: None for memory, a path for an SQLite file, or an address such as `postgresql://host/name`."""
    if where is None:
        return InMemoryStorage()
    address = str(where) if "://" in str(where) else f"sqlite:///{Path(where).resolve()}"
    options = {"connect_args": {"timeout": LOCKED}} if address.startswith("sqlite") else {}
    patience = 5
    while True:
        try:
            return RDBStorage(address, engine_kwargs=options)
        except ValueError as error:  # such as a port that is not a number
            raise DataError(
                f"{masked(where)} is not the address of a database: {without_secrets(error, where)}.",
                hint="Give a file, or an address such as postgresql://user:password@host/name.",
            ) from None
        except _database_errors() as error:
            # Workers that start together all create the tables; all but the first find that they exist.
            patience -= 1
            if not patience or not re.search("already exists|UNIQUE|duplicate", str(error)):
                raise
            time.sleep(0.2)


@contextmanager
def explained(where: str | Path | None) -> Iterator[None]:
    """Turn database errors into one sentence."""
    try:
        yield
    except _database_errors() as error:
        reason = _innermost(error)
        hint = "Choose another path with storage= (--storage)."
        if isinstance(error, ImportError):
            hint = "Install the driver of that database with pip."
        elif "readonly" in reason:
            hint = "The file or its folder is read-only: make it writable, or choose another path."
        elif "full" in reason or "disk I/O" in reason:
            hint = "Free some space and start the same search again: finished trials are kept."
        reason = " ".join(without_secrets(reason, where).split())
        raise DataError(
            f"Cannot use the storage of trials {masked(where)}: {reason.rstrip('.?')}.", hint=hint
        ) from None


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(getattr(error, "orig", None) or error).strip().rstrip(".")


def _database_errors() -> tuple[type[Exception], ...]:
    from sqlalchemy.exc import SQLAlchemyError  # takes half a second to import

    return (SQLAlchemyError, StorageInternalError, ImportError)


# Claims: a position in the search is claimed in one write, and released when its worker is gone.
#
# A trial is stored together with the name of its worker, so that a kill can never leave a trial without an owner. On
# this machine, a dead worker is detected at once. A worker on another machine counts as gone when its heartbeat has not
# changed for `GRACE` seconds while this process watched; the clocks of the two machines need not agree.

WORKER, CLAIM, ALIVE, ERROR = "worker", "claim", "alive", "error"
HEARTBEAT, GRACE = 20.0, 120.0  # seconds between two heartbeats, and without one until a worker counts as gone
NEW = -1
_ours: set[str] = set()  # claims that this process is working on


def unclaimed(study: Study, limit: int) -> int | None:
    """Return a free position, lost ones first; `NEW` for the next new one; None if all are taken.

    Args:
        study: The search.
        limit: Number of positions.
    """
    latest = _latest(study)
    for position, trial in sorted(latest.items()):
        lost = trial.state == TrialState.FAIL and ERROR not in trial.user_attrs
        if position < limit and (lost or trial.state == TrialState.WAITING):
            return position
    return NEW if len(latest) < limit else None


def running(study: Study, limit: int) -> bool:
    """Return whether any position of the search is running."""
    return any(position < limit and trial.state == TrialState.RUNNING for position, trial in _latest(study).items())


@contextmanager
def claim(study: Study, place: int) -> Iterator[optuna.Trial]:
    """Claim a position and yield its trial. The caller must report how it ends; a trial left open counts as lost."""
    token = secrets.token_hex(8)
    attributes = {WORKER: this_process(), CLAIM: token, ALIVE: 0} | ({} if place == NEW else {PLACE: place})
    _ours.add(token)
    try:
        # One transaction: trial, worker and position are written together or not at all.
        study.add_trial(optuna.create_trial(state=TrialState.RUNNING, user_attrs=attributes))
        trials = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        (own,) = (trial for trial in trials if trial.user_attrs.get(CLAIM) == token)
        yield optuna.Trial(study, own._trial_id)
    finally:
        _ours.discard(token)


@contextmanager
def signs_of_life(trial: optuna.Trial) -> Iterator[None]:
    """Send heartbeats, so that workers on other machines see that a trial is running."""
    ended = threading.Event()

    def beat() -> None:
        count = 0
        while not ended.wait(HEARTBEAT):
            count += 1
            with suppress(Exception):  # the training loop uses the same storage and reports its errors
                trial.set_user_attr(ALIVE, count)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@final
class LostTrials:
    """Releases trials whose workers are gone, so that their positions are free again."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[object, float]] = {}

    def give_up(self, study: Study) -> None:
        """Mark every trial whose worker is gone as failed."""
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if self._is_lost(trial):
                with suppress(UpdateFinishedTrialError, ValueError):  # another worker was faster
                    study.tell(trial.number, state=TrialState.FAIL)

    def _is_lost(self, trial: FrozenTrial) -> bool:
        worker = str(trial.user_attrs.get(WORKER, ""))
        if worker == this_process():
            return trial.user_attrs.get(CLAIM) not in _ours
        gone = is_gone(worker)
        if gone is not None:
            return gone
        sign, now = trial.user_attrs.get(ALIVE), time.monotonic()
        before, since = self._seen.setdefault(trial.number, (sign, now))
        if sign != before:
            self._seen[trial.number] = (sign, now)
        return sign == before and now - since > GRACE


def _latest(study: Study) -> dict[int, FrozenTrial]:
    """Return the latest trial of every position."""
    trials = study.get_trials(deepcopy=False)
    return dict(zip(places(trials), trials, strict=True))
