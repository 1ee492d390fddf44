"""Where a training loop's batches come from: data, transform and sampler in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from vicinal.data import Batch, Dataset, batches
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

    def __iter__(self) -> Iterator[Batch]:
        return batches(
            self.data, self.transform, self.sampler, workers=self.workers, seed=self.seed, skip_bad=self.skip_bad
        )

    def observe(self, model: nn.Module) -> None:
        """Let a sampler of hard classes look for the nearest classes anew."""
        if self.sampler.wants_embeddings and self.embed is not None:
            self.sampler.update(self.embed(model), torch.from_numpy(self.data.labels))
