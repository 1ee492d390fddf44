"""The last word on the order of candidates: exact arithmetic, where the bound cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from vicinal.neighbours.parallel import side_by_side
from vicinal.neighbours.shortlist import Shortlist, both_sides
from vicinal.neighbours.similarity import Vectors, close_pairs, exact_pairs, exact_rows, rounding_error
from vicinal.neighbours.task import Task

__all__ = ["ROW_BUDGET", "every_reference", "finish", "nearest_exactly"]

Compare: TypeAlias = Callable[[Vectors, Tensor, Vectors, Tensor], Tensor]

ROW_BUDGET = 1 << 23  # numbers in a block of whole rows


def nearest_exactly(keys: Float64[Tensor, "r m"], k: int) -> tuple[Float64[Tensor, "r k"], Int64[Tensor, "r k"]]:
    """The k largest of each row in falling order, the earlier of two equal ones first."""
    last = keys.topk(k, dim=1).values[:, -1:]
    above, equal = keys > last, keys == last
    chosen = above | (equal & (equal.cumsum(dim=1) <= k - above.sum(dim=1, keepdim=True)))
    columns = chosen.nonzero()[:, 1].view(-1, k)
    values, order = keys.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


def finish(task: Task, shortlist: Shortlist, rows: Int64[Tensor, " r"]) -> None:
    """Order the candidates of a band for good, and set aside the rows that overflowed."""
    shortlist.settle()
    many = len(rows)  # a band may end in padding
    keys = shortlist.values[:many].double() + task.left.constant
    columns, unsure = task.named(shortlist.columns[:many].long()), shortlist.unsure()[:many]
    rows = task.named(rows)
    for compare in (close_pairs, _exact_list):
        touched = unsure.any(dim=1).nonzero().squeeze(1)
        if len(touched):
            some = keys[touched], columns[touched], unsure[touched]
            keys[touched], columns[touched], unsure[touched] = _compared(task, rows[touched], *some, compare)
    sure = ~shortlist.overflowed()[:many]
    if not bool(sure.all()):
        task.overflowed.append((rows[~sure], shortlist.bar[:many][~sure]))
    found = columns.masked_fill_(keys == -torch.inf, -1)[:, : task.k]
    task.consume(rows[sure], found[sure])


def every_reference(task: Task, rows: Int64[Tensor, " r"]) -> None:
    """The rows in which no bound could decide, with exact arithmetic for all references."""

    def work(some: Tensor) -> None:
        keys = exact_rows(task.queries, some, task.references)
        task.exclusion.apply(keys, some, 0)
        values, columns = nearest_exactly(keys, task.k)
        task.consume(some, columns.masked_fill_(values == -torch.inf, -1))

    side_by_side(work, torch.split(rows, max(1, ROW_BUDGET // 2 // len(task.references))))


def _compared(
    task: Task,
    rows: Int64[Tensor, " r"],
    keys: Float64[Tensor, "r c"],
    columns: Int64[Tensor, "r c"],
    unsure: Bool[Tensor, "r c"],
    compare: Compare,
) -> tuple[Float64[Tensor, "r c"], Int64[Tensor, "r c"], Bool[Tensor, "r c"]]:
    """Give the unsure candidates better keys and sort again; an equal key leaves the order to the index.

    A better key moves a candidate past others that are unsure beside it, and past nothing else.
    """
    row, place = unsure.nonzero().unbind(1)
    keys[row, place] = compare(task.queries, rows[row], task.references, columns[row, place])
    by_index = columns.argsort(dim=1)
    order = by_index.gather(1, keys.gather(1, by_index).argsort(dim=1, descending=True, stable=True))
    keys, columns, unsure = (table.gather(1, order) for table in (keys, columns, unsure))
    close = keys[:, :-1] - keys[:, 1:] <= 2 * rounding_error(task.queries.rows.shape[1])
    return keys, columns, unsure & both_sides(close & unsure[:, :-1] & unsure[:, 1:])


def _exact_list(queries: Vectors, rows: Tensor, references: Vectors, columns: Tensor) -> Tensor:
    return exact_pairs(queries, rows, references, columns[:, None]).squeeze(1)
