"""One process of a distributed run: `python distributed_worker.py RANK WORLD STORE OUT`.

Also imported by the test, which runs the same steps in one process on the whole batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vicinal.criterion import Criterion, Learned
from vicinal.references import Memory, Proxies

STEPS, ITEMS, CLASSES, INPUTS, DIM = 3, 12, 4, 6, 5


@dataclass(frozen=True)
class Scenario:
    """A criterion, and how many items each of two processes holds."""

    make: Callable[[], Criterion]
    split: tuple[int, int] = (6, 6)


SCENARIOS = {
    "batch": Scenario(lambda: Criterion("multi_similarity", mining="valid_triplets")),
    "unequal": Scenario(lambda: Criterion("triplet"), split=(9, 3)),
    "one empty": Scenario(lambda: Criterion("contrastive"), split=(12, 0)),
    "regulariser": Scenario(lambda: Criterion("n_pair"), split=(5, 7)),
    "proxies": Scenario(lambda: Criterion("proxy_anchor", classes=CLASSES, dim=DIM)),
    "centres": Scenario(lambda: Criterion("soft_triple", references=Proxies(CLASSES, DIM, per_class=2)), split=(4, 8)),
    "memory": Scenario(lambda: Criterion("contrastive_c1", references=Memory(20, DIM), threshold=0.1)),
    "random": Scenario(lambda: Criterion("contrastive", mining="random", threshold=0.0)),
    "distance weighted": Scenario(
        lambda: Criterion("margin", mining="distance_weighted", boundary=Learned(1.1, classes=CLASSES)), split=(8, 4)
    ),
}


def whole_batch(step: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(ITEMS, INPUTS, generator=generator, dtype=torch.float64)
    return inputs, torch.randperm(ITEMS, generator=generator) % CLASSES, torch.randperm(30, generator=generator)[:ITEMS]


def train(scenario: Scenario, rank: int | None) -> dict[str, Tensor]:
    """Take a few steps of plain gradient descent and return losses and all gradients, step by step."""
    torch.manual_seed(0)
    network: nn.Module = nn.Linear(INPUTS, DIM).double()
    criterion = scenario.make().double()
    parameters = [*network.parameters(), *criterion.parameters()]
    if rank is not None:
        network = DistributedDataParallel(network)
        rows = slice(0, scenario.split[0]) if rank == 0 else slice(scenario.split[0], ITEMS)
    else:
        rows = slice(0, ITEMS)
    record: dict[str, Tensor] = {}
    for step in range(STEPS):
        inputs, labels, ids = (part[rows] for part in whole_batch(step))
        loss = criterion(network(inputs), labels, ids=ids)
        loss.backward()
        record[f"loss {step}"] = loss.detach()
        for k, parameter in enumerate(parameters):
            assert parameter.grad is not None
            record[f"gradient {step} {k}"] = parameter.grad.clone()
            parameter.data -= 0.1 * parameter.grad
            parameter.grad = None
    return record


def main() -> None:
    rank, world, store, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.save({name: train(scenario, rank) for name, scenario in SCENARIOS.items()}, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
