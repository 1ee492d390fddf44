"""Prepared references as plain arrays, so that they can be kept in a file and need not be prepared again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vicinal.errors import InputError
from vicinal.neighbours.int8_products import unpack
from vicinal.neighbours.int8_references import Int8References, laid_block
from vicinal.neighbours.prepared_references import PreparedReferences, with_pilot
from vicinal.neighbours.similarity import Vectors

__all__ = ["as_arrays", "from_arrays"]

NUMBERS = ("step", "typical", "longest", "highest", "worst", "largest_bias")


def as_arrays(prepared: PreparedReferences) -> dict[str, NDArray[Any]] | None:
    """What is slow to compute; None if references are so few that nothing is."""
    codes, exact = prepared.codes, prepared.vectors
    if codes is None:
        return None
    blocks = [(block.integers, block.bias) if codes.plain else unpack(block) for block in codes.blocks]
    return {
        "integers": torch.cat([integers for integers, _ in blocks]).numpy(),
        "bias": torch.cat([bias.float() for _, bias in blocks]).numpy(),
        "ends": np.array([columns.stop for columns in codes.columns]),
        "numbers": np.array([getattr(codes, name) for name in NUMBERS]),
        "mean": prepared.mean.numpy(),
        "scale": (exact.scale if exact.distance == "cosine" else exact.scale[:1]).numpy(),
        "offset": (exact.offset[:1] if exact.distance == "cosine" else exact.offset).numpy(),
    }


def from_arrays(rows: Tensor, distance: str, arrays: Mapping[str, NDArray[Any]]) -> PreparedReferences:
    """What `as_arrays` was given, for the same rows.

    Raises:
        InputError: If the arrays are not of such rows.
    """
    many, dimensions = rows.shape
    shapes = {
        "integers": (many, dimensions),
        "bias": (many,),
        "mean": (dimensions,),
        "numbers": (len(NUMBERS),),
        "scale": (many if distance == "cosine" else 1,),
        "offset": (1 if distance == "cosine" else many,),
    }
    wrong = [name for name, shape in shapes.items() if name not in arrays or arrays[name].shape != shape]
    ends = arrays["ends"].tolist() if "ends" in arrays else []
    if wrong or not ends or ends[-1] != many or sorted(set(ends)) != ends:
        raise InputError(f"That layout is of other vectors: {', '.join(wrong) or 'ends'} do not fit {many} rows.")
    scale, offset = (torch.from_numpy(arrays[name]).expand(many) for name in ("scale", "offset"))
    exact = Vectors(rows, scale, offset, distance)
    numbers = dict(zip(NUMBERS, arrays["numbers"].tolist(), strict=True))
    columns = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    integers, bias = (torch.from_numpy(arrays[name]) for name in ("integers", "bias"))
    blocks = [laid_block(integers[part], numbers["step"], bias[part].double()) for part in columns]
    return with_pilot(exact, torch.from_numpy(arrays["mean"]), Int8References(blocks, columns, **numbers))
