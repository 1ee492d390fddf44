"""What the training loop adds to bare forward, loss, backward and optimiser step on the same batches, in one run.

    python benchmarks/training.py
    python benchmarks/training.py --networks convnet --blocks 20

Batches are decoded beforehand. Blocks of steps of the loop (with its defaults: clipping, checks, a log on disk) and of
a bare loop take turns, so that both see the same state of the machine; the ratio is the median over pairs of blocks.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from vicinal.criterion import Criterion
from vicinal.data import Batch
from vicinal.embedder import Embedder
from vicinal.training.engine import train
from vicinal.training.optimiser import build_optimiser
from vicinal.training.settings import Settings

BATCH, CLASSES, GOAL = 32, 8, 1.05
NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "convnet": ({"in_channels": 3, "size": 32}, 32),
    "mobilenet_v2": ({}, 96),
}


class Sampler:
    """Has nothing to draw: the batches are there."""

    wants_embeddings = False

    def state_dict(self) -> dict[str, int]:
        """Return nothing to resume from."""
        return {}


class Decoded:
    """A stream of batches in memory, which notes when each was asked for."""

    def __init__(self, size: int, count: int) -> None:
        drawn = torch.Generator().manual_seed(0)
        labels = torch.arange(CLASSES).repeat_interleave(BATCH // CLASSES)
        self.batches = [
            Batch(torch.randn(BATCH, 3, size, size, generator=drawn), labels, torch.arange(BATCH)) for _ in range(count)
        ]
        self.sampler = Sampler()
        self.asked: list[float] = []

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            self.asked.append(time.perf_counter())
            yield batch

    def embeddings(self, _: object) -> None:
        """Embed nothing: no classes are searched for."""

    def observe(self, _: object) -> None:
        """Take note of nothing."""

    def seconds_per_step(self) -> float:
        """Return the mean time between two batches, and forget it."""
        first, last, steps = self.asked[0], self.asked[-1], len(self.asked) - 1
        self.asked.clear()
        return (last - first) / steps


def bare(model: Embedder, criterion: Criterion, stream: Decoded, settings: Settings) -> None:
    optimiser = build_optimiser(model, criterion, settings)
    for group in optimiser.param_groups:
        group["lr"] = group["base"]
    model.train()
    for batch in stream:
        criterion(model(batch.images), batch.labels, batch.indices).backward()
        optimiser.step()
        optimiser.zero_grad()


def measure(name: str, blocks: int, steps: int) -> tuple[list[float], list[float]]:
    """Return the seconds per step of each block of the loop and of its neighbour of the bare loop."""
    options, size = NETWORKS[name]
    torch.manual_seed(0)
    model = Embedder(name, dim=128, options=options)
    criterion = Criterion("multi_similarity", mining="valid_triplets")
    stream = Decoded(size, steps + 1)
    settings = Settings(steps=steps + 1, evaluate_every=0, accelerator="cpu")
    times: dict[str, list[float]] = {"loop": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder:
        for block in range(-1, blocks):
            for which in ("loop", "bare") if block % 2 else ("bare", "loop"):
                if which == "loop":
                    train(model, criterion, stream, settings, folder=Path(folder), progress=False)  # type: ignore[arg-type]
                else:
                    bare(model, criterion, stream, settings)
                spent = stream.seconds_per_step()
                if block >= 0:  # the first turn of each warms up
                    times[which].append(spent)
    return times["loop"], times["bare"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10, help="per block")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"torch {torch.__version__}, {platform.machine()}, {given.threads} threads, batches of {BATCH}")
    print(f"{'network':<14}{'pixels':>7}{'loop ms':>10}{'bare ms':>10}{'ratio':>8}   goal {GOAL}")
    for name in given.networks.split(","):
        loop, alone = measure(name, given.blocks, given.steps)
        ratio = statistics.median(one / other for one, other in zip(loop, alone, strict=True))
        medians = (1e3 * statistics.median(loop), 1e3 * statistics.median(alone))
        print(f"{name:<14}{NETWORKS[name][1]:>7}{medians[0]:>10.2f}{medians[1]:>10.2f}{ratio:>8.3f}")


if __name__ == "__main__":
    main()
