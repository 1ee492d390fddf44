"""What is wrong with items.sqlite: pages, seals of the rows, rows that two items have or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from vicinal.index.catalogue import Catalogue
from vicinal.index.sealed_rows import is_as_written, seal

__all__ = ["problems_of"]


def problems_of(catalogue: Catalogue) -> list[str]:
    """Everything that is not as it was written, one sentence each."""
    try:
        found = [f"items.sqlite: {line}" for (line,) in catalogue.connection.execute("PRAGMA integrity_check")]
        return [line for line in found if line != "items.sqlite: ok"] + list(_broken(catalogue))
    except (sqlite3.DatabaseError, OverflowError, ValueError, TypeError, IndexError, KeyError) as error:
        return [f"items.sqlite cannot be read: {error}"]


def _broken(catalogue: Catalogue) -> Iterator[str]:
    connection = catalogue.connection
    version, finish, written = connection.execute("SELECT * FROM state").fetchone()
    if written != seal(version, finish):
        yield "items.sqlite: the end of the vectors is not what was written"
    for name, kind, _, written in connection.execute("SELECT * FROM columns"):
        if written != seal(name, kind):
            yield f"items.sqlite: the column {name!r} is not what was written"
    many, dead = 0, set(catalogue.dead().tolist())
    for row in connection.execute("SELECT * FROM items"):
        many += 1
        if not is_as_written(row):
            yield f"items.sqlite: item {row[1]!r} is not what was written"
        if row[0] in dead or not 0 <= row[0] < finish:
            yield f"items.sqlite: item {row[1]!r} has the row {row[0]}, which does not exist"
    if many + len(dead) != finish:
        yield f"items.sqlite: {finish} rows exist, but {many} items and {len(dead)} dead rows are listed"
    expected = 0
    for block in catalogue.blocks():
        if block.first != expected or block.many < 1:
            yield f"items.sqlite: the block at row {block.first} does not follow the one before"
        expected = block.first + block.many
    if expected != finish:
        yield f"items.sqlite: blocks end at row {expected}, the vectors at {finish}"
