"""Products of 8-bit integers in 32 bits, exact, by the instructions that newer processors have for them (VNNI).

The integers are stored as they are, in two halves of their columns: nothing is packed, so that they may be read from
a file as it is, and the first half alone already rules most references out (few_queries.py).

Older processors would add in 16 bits, which saturate, or multiply one number at a time. So the operator is used only
where the processor has the instructions, and is tried once, on products whose values are known; elsewhere
int8_products.py has another way, and float32 is the last: each slower, and all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int8, Int32, Int64
from torch import Tensor

__all__ = ["FEWEST_COLUMNS", "PlainBlock", "int32_is_fast", "int32_works", "multiply_exactly"]

INSTRUCTIONS = ("avx512_vnni", "avx_vnni", "amx_int8")
FEWEST_COLUMNS = 16  # of an integer vector; with one column, torch 2.13 returns other numbers
PRODUCTS = 1 << 18  # at a time: they stay in the cache until they are compared
AT_ONCE = 64  # queries


@dataclass(frozen=True)
class PlainBlock:
    """The integers of some references, and what to add to their products.

    Args:
        head: The first half of the columns.
        tail: The others.
        tail_length: At least the length of each tail, in integers.
        bias: What to add to a product.
    """

    head: Int8[Tensor, "c h"]
    tail: Int8[Tensor, "c t"]
    tail_length: Float32[Tensor, " c"]
    bias: Float32[Tensor, " c"]

    @classmethod
    def of(cls, integers: Int8[Tensor, "c d"], bias: Float64[Tensor, " c"]) -> PlainBlock:
        """Lay the integers of some references out."""
        half = integers.shape[1] // 2
        tail = integers[:, half:].contiguous()
        length = tail.float().norm(dim=1) * (1 + 2.0**-20)  # float32 may round down
        return cls(integers[:, :half].contiguous(), tail, length, bias.float())

    def __len__(self) -> int:
        return len(self.bias)

    @property
    def integers(self) -> Int8[Tensor, "c d"]:
        """Both halves together, copied."""
        return torch.cat([self.head, self.tail], dim=1)

    def clear(
        self, integers: Int8[Tensor, "r d"], step: float, bars: Float64[Tensor, " r"], most: float
    ) -> tuple[Int64[Tensor, " hits"], Int64[Tensor, " hits"]] | None:
        """The pairs whose `step * product + bias` is not under the bar: places in the rows, and in the block.

        Args:
            integers: Of some queries.
            step: What one unit of a product stands for.
            bars: One for each query, with room for float32 to round a few times.
            most: With more pairs than that, None is returned.
        """
        rows, columns, many = [], [], 0
        lowest = bars.float()
        wide = max(1, PRODUCTS // AT_ONCE)
        half = self.head.shape[1]
        for first in range(0, len(integers), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            left, right = integers[some, :half].contiguous(), integers[some, half:].contiguous()
            for start in range(0, len(self), wide):
                here = slice(start, start + wide)
                products = multiply_exactly(left, self.head[here]).add_(multiply_exactly(right, self.tail[here]))
                bounds = torch.add(self.bias[here], products, alpha=step)
                hits = np.flatnonzero((bounds >= lowest[some, None]).numpy())
                many += len(hits)
                if many > most:
                    return None
                row, column = np.divmod(hits, bounds.shape[1])
                rows.append(row + first)
                columns.append(column + start)
        return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(columns))


def multiply_exactly(left: Int8[Tensor, "r d"], right: Int8[Tensor, "c d"]) -> Int32[Tensor, "r c"]:
    """The inner products of all pairs."""
    return torch._int_mm(left, right.T)


@cache
def int32_works() -> bool:
    """Whether this torch multiplies 8-bit integers exactly: tried once in a process."""
    generator = torch.Generator().manual_seed(0)
    try:
        for rows, dimensions in ((1, 8), (1, 31), (5, 9), (AT_ONCE, 64), (33, 512)):
            sides = [torch.randint(-90, 91, (many, dimensions), generator=generator) for many in (rows, 37)]
            for side, extreme in zip(sides, (90, -90), strict=True):
                side[: len(side) // 2] = extreme  # where 16 bits would saturate
            found = multiply_exactly(sides[0].to(torch.int8), sides[1].to(torch.int8))
            if not torch.equal(found.long(), sides[0] @ sides[1].T):
                return False
    except Exception:  # whatever a newer torch raises, there is another way
        return False
    return True


def int32_is_fast() -> bool:
    """Whether this processor has instructions for such products, and this torch gets them right."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in INSTRUCTIONS) and int32_works()
