"""Where trials are kept: in memory, in a file, or in a database that many machines share."""

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
            return RDBStorage(address, engine_kwargs=options)
        except ValueError as error:  # a port that is no number, say
            raise DataError(
                f"{masked(where)} is not the address of a database: {without_secrets(error, where)}.",
                hint="Give a file, or an address such as postgresql://user:password@host/name.",
            ) from None
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
        reason = " ".join(without_secrets(reason, where).split())
        raise DataError(
            f"Cannot use the storage of trials {masked(where)}: {reason.rstrip('.?')}.", hint=hint
        ) from None


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(getattr(error, "orig", None) or error).strip().rstrip(".")


def _database_errors() -> tuple[type[Exception], ...]:
    from sqlalchemy.exc import SQLAlchemyError  # half a second that `import vicinal` need not wait

    return (SQLAlchemyError, StorageInternalError, ImportError)


# Who runs which trial: a place in the search is claimed in one write, and given up when its worker is gone.
#
# A trial appears in the storage together with the name of its worker, so that there is no moment at which a kill
# leaves one that nobody answers for. A worker on this machine is known to be gone at once; one elsewhere when its sign
# of life has not changed for as long as `GRACE` while somebody watched, whatever the clocks of the two machines say.

WORKER, CLAIM, ALIVE, ERROR = "worker", "claim", "alive", "error"
HEARTBEAT, GRACE = 20.0, 120.0  # seconds between two signs of life, and without one until a worker counts as gone
NEW = -1
_ours: set[str] = set()  # claims that this process is at work on


def unclaimed(study: Study, limit: int) -> int | None:
    """Return a place that nobody has run or is running, the lost ones first; `NEW` for the next; None if all are taken.

    Args:
        study: The search.
        limit: How many places there are.
    """
    latest = _latest(study)
    for place, trial in sorted(latest.items()):
        lost = trial.state == TrialState.FAIL and ERROR not in trial.user_attrs
        if place < limit and (lost or trial.state == TrialState.WAITING):
            return place
    return NEW if len(latest) < limit else None


def running(study: Study, limit: int) -> bool:
    """Return whether a place of the search is being run."""
    return any(place < limit and trial.state == TrialState.RUNNING for place, trial in _latest(study).items())


@contextmanager
def claim(study: Study, place: int) -> Iterator[optuna.Trial]:
    """Claim a place and yield its trial; how it ends is for the caller to tell, and a trial left open is lost."""
    token = secrets.token_hex(8)
    attributes = {WORKER: this_process(), CLAIM: token, ALIVE: 0} | ({} if place == NEW else {PLACE: place})
    _ours.add(token)
    try:
        # One transaction: the trial, its worker and its place are all there, or nothing is.
        study.add_trial(optuna.create_trial(state=TrialState.RUNNING, user_attrs=attributes))
        trials = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        (own,) = (trial for trial in trials if trial.user_attrs.get(CLAIM) == token)
        yield optuna.Trial(study, own._trial_id)
    finally:
        _ours.discard(token)


@contextmanager
def signs_of_life(trial: optuna.Trial) -> Iterator[None]:
    """Show workers elsewhere that a trial is being run."""
    ended = threading.Event()

    def beat() -> None:
        count = 0
        while not ended.wait(HEARTBEAT):
            count += 1
            with suppress(Exception):  # the training loop meets the same storage, and says what is wrong with it
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
    """Gives up trials whose workers are gone, so that their places are free again."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[object, float]] = {}

    def give_up(self, study: Study) -> None:
        """Mark every trial as failed whose worker is gone."""
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
    """Return the last word on every place."""
    trials = study.get_trials(deepcopy=False)
    return dict(zip(places(trials), trials, strict=True))
