"""Where a training loop's batches come from: data, transform and sampler in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from vicinal.data import Dataset, ItemBatch, batches
from vicinal.errors import InputError
from vicinal.sampling import Sampler

__all__ = ["Stream"]


@final
@dataclass(frozen=True)
class Stream:
    """Iterating yields the rest of the sampler's present pass.

    Attributes:
        data: The training items.
        transform: What makes a tensor of one; None for vectors as they are.
        sampler: Which items form a batch, and where the run is.
        workers: Processes that decode.
        seed: Of random transforms.
        skip_bad: Leave out items that cannot be read.
        embed: Embeds items of the training set as the sampler's search for hard classes needs them.
    """

    data: Dataset
    transform: Callable[..., Tensor] | None
    sampler: Sampler
    workers: int = 0
    seed: int = 0
    skip_bad: bool = False
    embed: Callable[[nn.Module], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.sampler.wants_embeddings and self.embed is None:
            raise InputError("This sampler searches for hard classes: give the stream embed=, a function of the model.")

    def __iter__(self) -> Iterator[ItemBatch]:
        return batches(
            self.data, self.transform, self.sampler, workers=self.workers, seed=self.seed, skip_bad=self.skip_bad
        )

    def embeddings(self, model: nn.Module) -> Tensor | None:
        """Embed the training items where the sampler searches for hard classes; None where it does not."""
        return self.embed(model) if self.sampler.wants_embeddings and self.embed is not None else None

    def observe(self, embeddings: Tensor | None) -> None:
        """Let the sampler look for the nearest classes anew; every process must give the same embeddings."""
        if embeddings is not None:
            self.sampler.update(embeddings, torch.from_numpy(self.data.labels))
