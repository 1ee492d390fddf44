"""Products of 8-bit integers, rounded to 256 levels, by the quantised operators of torch.

Exactness:
    x86 processors without VNNI multiply unsigned by signed bytes and add two products in 16 bits, which
    saturate. The left side is stored as integer + 90, from 0 to 180, and 2 * 180 * 90 < 2^15, so that nothing
    does; the sums of up to 2^16 columns fit 32 bits. Only the result is rounded, to 256 levels: by half a level,
    and by much less in float32, provided that a level is at least 2^-14 of the numbers around. (It also passes
    through 16 bits there, saturating, far outside of the levels.)

The operators are old ones that torch may drop or change. So they are tried once, on products whose exact values are
known; if anything is amiss, `int8_works` says so and everything is computed in float32: slower, and the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float64, Int8
from torch import Tensor

__all__ = ["FINEST", "LARGEST", "LEVELS", "Levels", "int8_is_fast", "int8_works", "multiply", "pack", "unpack"]

Levels: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

ENGINE = "fbgemm"
LARGEST = 90  # 2 * (2 * 90) * 90 < 2^15
LEVELS = 250
FINEST = 2.0**-14  # level, relative to the numbers around
ONE_AT_A_TIME = RLock()  # the engine is a setting of the whole process


def pack(integers: Int8[Tensor, "m d"], step: float, bias: Float64[Tensor, " m"]) -> Any:
    """Pack the right-hand side of `multiply`: vectors `step * integers`, and what to add to their products."""
    with ONE_AT_A_TIME, _engine():
        wrapped = torch._make_per_tensor_quantized_tensor(integers, step, 0)
        return torch.ops.quantized.linear_prepack(wrapped, bias.float())


def unpack(packed: Any) -> tuple[Int8[Tensor, "m d"], Float64[Tensor, " m"]]:
    """The integers and the bias that were packed; the bias was rounded to float32."""
    wrapped, bias = torch.ops.quantized.linear_unpack(packed)
    return wrapped.int_repr(), bias.double()


def multiply(integers: Int8[Tensor, "r d"], step: float, packed: Any, level: float, zero: int) -> Levels:
    """The products of `step * integers` with what is packed, as `zero + product / level`, from 0 to 255."""
    left = (integers + LARGEST).view(torch.uint8)
    wrapped = torch._make_per_tensor_quantized_tensor(left, step, LARGEST)
    product = torch.ops.quantized.linear(wrapped, packed, level, zero)
    plain = torch.empty(0, dtype=torch.uint8)
    return plain.set_(product.untyped_storage(), 0, product.shape, product.stride()).numpy()


@cache
def int8_works() -> bool:
    """Whether this torch multiplies 8-bit integers as the bound requires: tried once in a process."""
    generator = torch.Generator().manual_seed(0)
    try:
        with _quietly():
            return all(_as_required(dimensions, generator) for dimensions in (1, 31, 512))
    except Exception:  # whatever a newer torch raises, there is another way
        return False


def int8_is_fast() -> bool:
    """Whether this processor and this torch multiply 8-bit integers faster than float32."""
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx2")) and int8_works()


def _as_required(dimensions: int, generator: torch.Generator) -> bool:
    """Integers at the ends of the range, where 16 bits would saturate, and any others, with steps and a bias."""
    left, right = (torch.randint(-LARGEST, LARGEST + 1, (33, dimensions), generator=generator) for _ in range(2))
    left[:9], right[:9] = LARGEST, LARGEST
    left[9:12], right[9:12] = -LARGEST, -LARGEST
    bias = torch.rand(33, generator=generator, dtype=torch.float64) - 0.5
    steps = 2.0**-7, 0.75 * 2.0**-8
    exact = (left @ right.T).double() * (steps[0] * steps[1]) + bias
    packed = pack(right.to(torch.int8), steps[1], bias)
    reach = float(exact.abs().max())
    for level in (reach / 100, reach / 2000):
        got = torch.from_numpy(multiply(left.to(torch.int8), steps[0], packed, level, 128)).double()
        wanted = (exact / level + 128).clamp(0, 255)
        if bool(((got - wanted).abs() > 0.51).any()):
            return False
    return True


@contextmanager
def _engine() -> Iterator[None]:
    """Pack for the one engine whose arithmetic the bound is about, whichever the user has chosen."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


@contextmanager
def _quietly() -> Iterator[None]:
    """Torch warns once in a process that quantised and sparse tensors may change; have it do so here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*(quantize|Sparse CSR).*")
        torch._make_per_tensor_quantized_tensor(torch.zeros(1, dtype=torch.uint8), 1.0, 0)
        torch.eye(1).to_sparse_csr()
        yield
