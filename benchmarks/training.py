"""Training steps beside what they are compared with, in one run: both take turns, and the ratio is the median of pairs.

    python benchmarks/training.py
    python benchmarks/training.py --parts loop --networks convnet --blocks 20
    VICINAL_DATA=/data python benchmarks/training.py --parts step,trunk --threads 1 --rounds 5

loop    What the training loop (with its defaults: clipping, checks, a log on disk) adds to bare forward, loss, backward
        and optimiser step, on batches that are decoded beforehand.
step    A step of MobileNetV2 as torch's own layers do it with contiguous maps, beside ours: channels last, and batch
        norm frozen.
trunk   A step of all of MobileNetV2 from JPEG files of CUB-200-2011, beside one of its last stages from cached maps;
        and embedding the same photographs both ways.

Seconds of the clock count, or with --cpu those of the processor, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal.backbones.mobile import ConvNorm
from vicinal.criterion import Criterion
from vicinal.data import ItemBatch, load, pipeline
from vicinal.embedder import Embedder
from vicinal.runs.run import RunFiles
from vicinal.sampling import class_sampler
from vicinal.training.engine import Stream, run_training
from vicinal.training.frozen import FrozenEmbedder, Trainee, training_items
from vicinal.training.optimiser import build_optimiser
from vicinal.training.settings import Settings
from vicinal.training.state import Checkpoints

BATCH, CLASSES, GOAL = 32, 8, 1.05
SIDE = 160
STEP_GOALS = {"channels last": 0.65, "batch norm frozen": 0.45}
TRUNK_GOAL = 0.33
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
            ItemBatch(torch.randn(BATCH, 3, size, size, generator=drawn), labels, torch.arange(BATCH))
            for _ in range(count)
        ]
        self.sampler = Sampler()
        self.asked: list[float] = []

    def __iter__(self) -> Iterator[ItemBatch]:
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
                    run_training(
                        model,
                        criterion,
                        stream,
                        settings,
                        checkpoints=Checkpoints(RunFiles(Path(folder))),
                        progress=False,
                    )  # type: ignore[arg-type]
                else:
                    bare(model, criterion, stream, settings)
                spent = stream.seconds_per_step()
                if block >= 0:  # the first turn of each warms up
                    times[which].append(spent)
    return times["loop"], times["bare"]


def one_step(model: torch.nn.Module, criterion: Criterion, optimiser: Any, batch: ItemBatch) -> None:
    criterion(model(batch.images), batch.labels, batch.indices).backward()
    optimiser.step()
    optimiser.zero_grad()


def in_turns(ways: Mapping[str, Callable[[], object]], rounds: int, now: Callable[[], float]) -> dict[str, list[float]]:
    """Return the seconds of every way, each called once a round; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, rounds):
        for name, run in ways.items():
            start = now()
            run()
            if turn >= 0:
                times[name].append(now() - start)
    return times


def show(title: str, times: Mapping[str, list[float]], goals: Mapping[str, float]) -> None:
    """Print the median of every way, and its ratio to the first."""
    first, *_ = times
    print(f"\n{title}")
    for name, spent in times.items():
        ratio = statistics.median(one / other for one, other in zip(spent, times[first], strict=True))
        goal = f"   goal {goals[name]}" if name in goals else ""
        print(f"{name:<32}{1e3 * statistics.median(spent):>10.0f} ms{ratio:>8.3f}{goal}")


class Contiguous(torch.nn.Module):
    """MobileNetV2 as torch's own layers make it up, in the order of memory that batches come in."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.backbone, self.head = embedder.backbone, embedder.head
        for name, layer in list(self.backbone.named_modules()):
            if isinstance(layer, ConvNorm):
                self.backbone.set_submodule(name, torch.nn.Sequential(*layer, torch.nn.ReLU6(inplace=True)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return embeddings."""
        return self.head(self.backbone(images))


def network(**frozen: Any) -> Embedder:
    torch.manual_seed(0)
    return Embedder("mobilenet_v2", dim=128).freeze(**frozen)


def measure_step(rounds: int, now: Callable[[], float]) -> None:
    batch = next(iter(Decoded(SIDE, 1)))
    models = {
        "contiguous": Contiguous(network()),
        "channels last": network(),
        "batch norm frozen": network(batch_norm=True),
    }
    criterion, settings = Criterion("multi_similarity", mining="valid_triplets"), Settings(accelerator="cpu")
    ways = {}
    for name, model in models.items():
        optimiser = build_optimiser(model.train(), criterion, settings)
        ways[name] = partial(one_step, model, criterion, optimiser, batch)
    show(f"step, mobilenet_v2, {SIDE} pixels, batches of {BATCH}", in_turns(ways, rounds, now), STEP_GOALS)


def measure_trunk(rounds: int, now: Callable[[], float]) -> None:
    root = Path(os.environ.get("VICINAL_DATA", ""))
    if not (root / "CUB_200_2011").is_dir():
        print(f"\ntrunk: no CUB_200_2011 in {root.resolve()}; name its folder in VICINAL_DATA")
        return
    data = load(str(root / "CUB_200_2011"))
    data = data.of_classes(range(CLASSES))
    data = data.subset([item for label in data.classes for item in np.flatnonzero(data.labels == label)[:16]])
    draw = pipeline("thesis", size=SIDE, pixels="imagenet")
    criterion, settings = Criterion("multi_similarity", mining="valid_triplets"), Settings(accelerator="cpu")
    with tempfile.TemporaryDirectory() as folder:
        models: dict[str, Trainee] = {"all stages, from files": network()}
        for stages in (3, 2):
            embedder = network(train_stages=stages)
            embedder.transform = draw.test
            models[f"last {stages} stages, from cached maps"] = FrozenEmbedder(
                embedder, cache=Path(folder), progress=False
            )
        steps, embeds = {}, {}
        for name, model in models.items():
            items, transform = training_items(model, data, draw.train, 2)
            sampler = class_sampler(data.labels, CLASSES, BATCH // CLASSES, rounds=rounds + 2)
            optimiser = build_optimiser(model.train(), criterion, settings)
            batches = iter(Stream(items, transform, sampler))
            steps[name] = partial(_next_step, model, criterion, optimiser, batches)
            if isinstance(model, Embedder):
                model.transform = draw.test
            embeds[name] = partial(model.encode, data, engine="folded")
        goals = dict.fromkeys(list(models)[1:], TRUNK_GOAL)
        title = f"mobilenet_v2, {SIDE} pixels, {len(data)} photographs of CUB"
        show(f"step with decoding, batches of {BATCH}, {title}", in_turns(steps, rounds, now), goals)
        show(f"an evaluation, {title}", in_turns(embeds, max(1, rounds // 2), now), {})


def _next_step(model: torch.nn.Module, criterion: Criterion, optimiser: Any, batches: Iterator[ItemBatch]) -> None:
    one_step(model, criterion, optimiser, next(batches))


def measure_loop(networks: Sequence[str], blocks: int, steps: int) -> None:
    print(f"\n{'network':<14}{'pixels':>7}{'loop ms':>10}{'bare ms':>10}{'ratio':>8}   goal {GOAL}")
    for name in networks:
        loop, alone = measure(name, blocks, steps)
        ratio = statistics.median(one / other for one, other in zip(loop, alone, strict=True))
        medians = (1e3 * statistics.median(loop), 1e3 * statistics.median(alone))
        print(f"{name:<14}{NETWORKS[name][1]:>7}{medians[0]:>10.2f}{medians[1]:>10.2f}{ratio:>8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="loop,step,trunk", help="what to measure")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="of the part loop")
    parser.add_argument("--blocks", type=int, default=15, help="of the part loop")
    parser.add_argument("--steps", type=int, default=10, help="per block")
    parser.add_argument("--rounds", type=int, default=5, help="of the parts step and trunk")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true", help="count seconds of the processor")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    now = time.process_time if given.cpu else time.perf_counter
    print(f"torch {torch.__version__}, {platform.machine()}, {given.threads} threads, batches of {BATCH}")
    parts = given.parts.split(",")
    if "loop" in parts:
        measure_loop(given.networks.split(","), given.blocks, given.steps)
    if "step" in parts:
        measure_step(given.rounds, now)
    if "trunk" in parts:
        measure_trunk(given.rounds, now)


if __name__ == "__main__":
    main()
