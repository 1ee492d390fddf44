"""Where trials are kept: in memory, in a file, or in a database that many machines share."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage

from vicinal.errors import DataError
from vicinal.masking import masked, without_secrets

__all__ = ["explained", "open_storage"]

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
