"""Embed items one after the other, go on past what cannot be read, and say what that was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float32
from PIL import Image
from torch import Tensor, nn

from vicinal.embedder import Embedder
from vicinal.embedder.encoding import embed_in_batches, stack
from vicinal.embedder.inputs import prepare, reader
from vicinal.errors import VicinalError

__all__ = ["embed_items"]


def embed_items(
    embedder: Embedder, inputs: Any, places: list[int], *, progress: bool = False, label: str = "embedding"
) -> Iterator[tuple[int, Float32[np.ndarray, " d"] | str]]:
    """Yield each place with its embedding, or with the reason why there is none.

    Args:
        embedder: What embeds.
        inputs: What it takes.
        places: Which of the inputs, in this order.
        progress: Whether to show a bar on standard error.
        label: What the bar says.
    """
    expects, transform = embedder.backbone.input, embedder.transform
    _, item = reader(inputs, expects)
    reasons: dict[int, str] = {}

    def blank() -> Tensor:
        nothing: Any = np.zeros(expects.channels) if expects.pixels is None else Image.new("RGB", (8, 8))
        return prepare(nothing, expects, transform)

    def opened(place: int) -> Tensor:
        try:
            return prepare(item(place), expects, transform)
        except (VicinalError, OSError) as error:
            reasons[place] = str(error).splitlines()[0]
            return blank()  # keeps the batch whole; its embedding is thrown away

    runs = embed_in_batches(
        nn.Sequential(embedder.backbone, embedder.head),
        len(places),
        lambda positions: stack([opened(places[position]) for position in positions]),
        progress=progress,
        label=label,
    )
    for positions, rows in runs:
        for position, row in zip(positions, embedder.rounded(rows), strict=True):
            place = places[position]
            if place not in reasons and not np.isfinite(row).all():
                reasons[place] = "the embedder returned NaN or infinity for it"
            yield place, reasons.get(place) or row
