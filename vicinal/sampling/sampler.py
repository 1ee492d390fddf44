"""Where a run is in its passes over the data: the state of every sampler."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.errors import InputError

Indices = npt.NDArray[np.int64]
Centroids = npt.NDArray[np.float32]


@final
class Sampler:
    """Where a run is in its passes over the data; iterating yields the rest of the present pass.

    Args:
        draw: All batches of a pass, from a generator and the class centroids (None before `update`).
        seed: Of all passes.
        rank: Which process this is.
        world_size: How many there are; each takes its part of every batch.
        wants_embeddings: Whether `update` changes what is drawn.
    """

    def __init__(
        self,
        draw: Callable[[np.random.Generator, Centroids | None], list[Indices]],
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        wants_embeddings: bool = False,
    ) -> None:
        if not 0 <= rank < world_size:
            raise InputError(f"rank must lie in 0..world_size-1; got rank {rank} of {world_size}.")
        self.epoch = 0
        self.batch = 0
        self.wants_embeddings = wants_embeddings
        self._draw, self._seed, self._rank, self._world_size = draw, seed, rank, world_size
        self._centroids: Centroids | None = None
        self._next_centroids: Centroids | None = None
        self._plan: list[Indices] | None = None
        if len(self._pass()[0]) % world_size:
            raise InputError(
                f"a batch of {len(self._pass()[0])} cannot be shared by {world_size} processes evenly; "
                "choose a batch size that is a multiple of their number."
            )

    def __len__(self) -> int:
        """Batches in the present pass."""
        return len(self._pass())

    def __iter__(self) -> Iterator[Indices]:
        for batch in self.remaining():
            self.advance()
            yield batch

    def remaining(self) -> list[Indices]:
        """This rank's part of the batches that are left of the present pass."""
        batches = self._pass()[self.batch :]
        share = len(batches[0]) // self._world_size
        return [batch[self._rank * share : (self._rank + 1) * share] for batch in batches]

    def advance(self) -> None:
        """Take note that one batch was used; after the last one the next pass begins."""
        self.batch += 1
        if self.batch == len(self):
            self.epoch, self.batch = self.epoch + 1, 0
            self._centroids, self._plan = self._next_centroids, None

    def update(self, embeddings: Float[Tensor, "n d"], labels: Int[Tensor, n] | Bool[Tensor, "n c"]) -> None:
        """Search the nearest classes anew, from the mean embedding of every class.

        It counts from the next pass on, or from this one if no batch of it was used. All ranks must
        give the same embeddings.
        """
        if not self.wants_embeddings:
            raise InputError("this sampler does not use embeddings; only hard_class_sampler makes one that does.")
        rows, labels = embeddings.detach().float().cpu(), labels.cpu()
        if labels.ndim == 2:  # sets: a column that no item has is no class
            sums, count = labels.float().T @ rows, labels.sum(dim=0).clamp(min=1)
        else:
            count = torch.bincount(labels)
            if not count.all():
                missing = torch.nonzero(count == 0).flatten().tolist()
                raise InputError(f"embeddings of every class are needed; there are none of classes {missing[:10]}.")
            sums = torch.zeros(len(count), rows.shape[1]).index_add_(0, labels, rows)
        self._next_centroids = (sums / count.float()[:, None]).numpy()
        if self.batch == 0:
            self._centroids, self._plan = self._next_centroids, None

    def state_dict(self) -> dict[str, int | str | Tensor]:
        """Numbers, a string and perhaps tensors: all that resuming needs."""
        state: dict[str, int | str | Tensor] = {"epoch": self.epoch, "batch": self.batch, "plan": self._fingerprint()}
        for name in ("centroids", "next_centroids"):
            if (value := getattr(self, f"_{name}")) is not None:
                state[name] = torch.from_numpy(value.copy())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; refuses a state that draws other batches than this sampler."""
        self.epoch, self.batch, self._plan = int(state["epoch"]), int(state["batch"]), None
        self._centroids, self._next_centroids = (
            None if name not in state else state[name].cpu().numpy() for name in ("centroids", "next_centroids")
        )
        if self._fingerprint() != state["plan"]:
            raise InputError(
                "the saved state belongs to a sampler that draws other batches; resume with the same data, "
                "seed and batch sizes."
            )

    def _pass(self) -> list[Indices]:
        if self._plan is None:
            self._plan = self._draw(np.random.default_rng([self._seed, self.epoch]), self._centroids)
        return self._plan

    def _fingerprint(self) -> str:
        return hashlib.sha256(np.concatenate(self._pass()).astype("<i8").tobytes()).hexdigest()
