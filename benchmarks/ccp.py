"""What chance-constrained proxies cost: time per step, memory, and the search for new proxies.

    python benchmarks/ccp.py
    python benchmarks/ccp.py --networks convnet --blocks 20

A step is forward, loss, backward, the pull towards the last solution, and Adam. Blocks of steps with and without CCP
take turns, so that both see the same state of the machine; the ratio is the median over pairs of blocks.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from lightning_fabric import Fabric

from vicinal.criterion import Criterion
from vicinal.embedder import Embedder
from vicinal.references import Batch, Proxies, greedy_k_center
from vicinal.training.ccp import ChanceConstrainedProxies
from vicinal.training.optimiser import build_optimiser
from vicinal.training.settings import CCP, Settings
from vicinal.training.state import TrainingState

BATCH, DIM, GOAL = 32, 128, 1.10
NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "convnet": ({"in_channels": 3, "size": 32}, 32),
    "mobilenet_v2": ({}, 96),
}
# Training classes of one fold (three quarters of the training half) and proxies of each.
DATASETS = {"cub": (75, 8, 12), "sop": (8488, 4, 7)}
LOSSES = ("contrastive_c1", "contrastive_c2", "multi_similarity", "triplet")
SETTINGS = Settings(optimiser="adam", learning_rate=1e-5)


def stepper(name: str, loss: str, size: tuple[int, int, int] | None) -> tuple[Callable[[], None], int]:
    """Return a function that takes a step, and the bytes that CCP keeps."""
    options, side = NETWORKS[name]
    torch.manual_seed(0)
    model = Embedder(name, dim=DIM, normalisation="ball", options=options).train()
    images, labels = torch.randn(BATCH, 3, side, side), torch.arange(8).repeat_interleave(4)
    geometry = "euclidean" if loss in ("contrastive_c2", "triplet") else "dot"
    ccp, kept, references = None, 0, None
    if size is not None:
        classes, per_class, pool = size
        references = [Proxies(classes, DIM, per_class=per_class), (Batch(), 0.1)]
    criterion = Criterion(loss, references=references, geometry=geometry, normalise="ball")
    if size is not None:
        drawn = torch.randn(classes, pool, DIM)
        settings = CCP(proxies_per_class=per_class, pool=pool, patience=1, monitor="fresh")
        ccp = ChanceConstrainedProxies(settings, lambda *_: drawn)
        state = TrainingState(Fabric(accelerator="cpu"), model, criterion, SETTINGS, scored=True)
        ccp.start(state)
        for score in (0.5, 0.5):  # the second one ends the first instance: from now on there is a pull
            ccp.after_evaluation(state, {SETTINGS.score: score})
        parameters = sum(parameter.numel() for parameter in model.parameters())
        kept = 4 * (parameters + classes * per_class * DIM)
    optimiser = build_optimiser(model, criterion, SETTINGS)

    def step() -> None:
        criterion(model(images), labels).backward()
        if ccp is not None:
            ccp.before_step(state)
        optimiser.step()
        optimiser.zero_grad()

    return step, kept


def seconds(step: Callable[[], None], steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps


def compare(name: str, loss: str, data: str, blocks: int, steps: int) -> None:
    (alone, _), (alternated, kept) = stepper(name, loss, None), stepper(name, loss, DATASETS[data])
    for warm_up in (alone, alternated):
        seconds(warm_up, 2)
    times: list[tuple[float, float]] = []
    for block in range(blocks):
        if block % 2:
            first = seconds(alone, steps)
            times.append((first, seconds(alternated, steps)))
        else:
            second = seconds(alternated, steps)
            times.append((seconds(alone, steps), second))
    ratio = statistics.median(ccp / base for base, ccp in times)
    base, ccp = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    print(f"{name:<14}{loss:<18}{data:<6}{base:>10.2f}{ccp:>10.2f}{ratio:>8.3f}{kept / 2**20:>10.1f}")


def k_center(classes: int, pool: int, picks: int) -> None:
    drawn, centres = torch.randn(classes, pool, DIM), torch.randn(classes, picks, DIM)
    spent = min(_time(lambda: greedy_k_center(drawn, picks, centres=centres)) for _ in range(3))
    print(f"greedy k-Center, {classes:,} classes x {pool} candidates x {DIM}-D, {picks} picks each: {spent:.3f} s")


def _time(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--losses", default=",".join(LOSSES))
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="per block")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"torch {torch.__version__}, {platform.machine()}, {given.threads} threads, batches of {BATCH}")
    k_center(11_318, 7, 4)
    k_center(100, 12, 8)
    print(
        f"{'network':<14}{'loss':<18}{'data':<6}{'alone ms':>10}{'CCP ms':>10}{'ratio':>8}{'MiB':>10}   goal {GOAL:.2f}"
    )
    for name in given.networks.split(","):
        for loss in given.losses.split(","):
            for data in DATASETS:
                compare(name, loss, data, given.blocks, given.steps)


if __name__ == "__main__":
    main()
