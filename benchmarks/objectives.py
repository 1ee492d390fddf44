"""Time and peak memory of every loss against pytorch-metric-learning, forward and backward, in one run.

    python benchmarks/objectives.py            # batches of 128, 512, 2048 and 4096
    python benchmarks/objectives.py --sizes 512 --losses triplet_semi_hard,n_pair

Each measurement is a child process of its own, so that its peak memory is its own. Batches hold 4 items per class in
512 dimensions; proxy losses have 11,318 classes, as many as the training set of Stanford Online Products.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

DIM, PER_CLASS, CLASSES = 512, 4, 11_318
MEMORY_LIMIT, SECONDS_LIMIT = 20 * 2**30, 240
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def ours(name: str, **options: object) -> Callable[[], Step]:
    def make() -> Step:
        from vicinal.criterion import Criterion

        return Criterion(name, classes=CLASSES, dim=DIM, **options)  # type: ignore[arg-type]

    return make


def one_pair_per_class(make: Callable[[], Step]) -> Callable[[], Step]:
    """Give the loss the first two items of each class, which is all that the peer's N-pair loss looks at."""

    def made() -> Step:
        step = make()

        def on_pairs(embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            pairs = torch.arange(len(labels)).view(-1, PER_CLASS)[:, :2].flatten()
            return step(embeddings[pairs], labels[pairs])

        return on_pairs

    return made


def peer(
    loss: str, miner: str = "", miner_options: dict[str, object] | None = None, **options: object
) -> Callable[[], Step]:
    def make() -> Step:
        from pytorch_metric_learning import distances, losses, miners

        if options.pop("cosine", False):
            options["distance"] = distances.CosineSimilarity()
        if options.pop("proxies", False):
            options.update(num_classes=CLASSES, embedding_size=DIM)
        function = getattr(losses, loss)(**options)
        if not miner:
            return function
        mine = getattr(miners, miner)(**(miner_options or {}))
        return lambda embeddings, labels: function(embeddings, labels, mine(embeddings, labels))

    return make


PAIRS: dict[str, tuple[Callable[[], Step], Callable[[], Step]]] = {
    "triplet_all": (
        ours("triplet", margin=0.1),
        peer("TripletMarginLoss", margin=0.1, triplets_per_anchor="all"),
    ),
    "triplet_semi_hard": (
        ours("triplet", margin=0.1, which="semi_hard"),
        peer("TripletMarginLoss", "TripletMarginMiner", {"margin": 0.1, "type_of_triplets": "semihard"}, margin=0.1),
    ),
    "soft_triplet": (
        ours("soft_triplet"),
        peer("TripletMarginLoss", margin=0.0, smooth_loss=True, triplets_per_anchor="all"),
    ),
    "n_pair": (one_pair_per_class(ours("n_pair", regularisers={})), peer("NPairsLoss")),
    "nt_xent": (ours("nt_xent"), peer("NTXentLoss")),
    "supervised_contrastive": (ours("supervised_contrastive"), peer("SupConLoss")),
    "margin_distance_weighted": (
        ours("margin", mining="distance_weighted"),
        peer("MarginLoss", "DistanceWeightedMiner", {"cutoff": 0.5, "nonzero_loss_cutoff": 1.4}),
    ),
    "contrastive_c2": (ours("contrastive_c2"), peer("ContrastiveLoss", pos_margin=0.0, neg_margin=0.5)),
    "lifted_structure": (
        ours("lifted_structure"),
        peer("GeneralizedLiftedStructureLoss", cosine=True, neg_margin=0.5, pos_margin=0.0),
    ),
    "multi_similarity": (ours("multi_similarity"), peer("MultiSimilarityLoss")),
    "multi_similarity_mined": (
        ours("multi_similarity", mining="valid_triplets"),
        peer("MultiSimilarityLoss", "MultiSimilarityMiner", {"epsilon": 0.1}),
    ),
    "circle": (ours("circle"), peer("CircleLoss")),
    "fast_ap": (ours("fast_ap"), peer("FastAPLoss")),
    "smooth_ap": (ours("smooth_ap"), peer("SmoothAPLoss")),
    "normalised_softmax": (ours("normalised_softmax"), peer("NormalizedSoftmaxLoss", proxies=True)),
    "proxy_nca_pp": (ours("proxy_nca_pp"), peer("ProxyNCALoss", proxies=True, softmax_scale=10.0)),
    "proxy_anchor": (ours("proxy_anchor"), peer("ProxyAnchorLoss", proxies=True)),
    "arcface": (ours("arcface"), peer("ArcFaceLoss", proxies=True)),
    "cosface": (ours("cosface"), peer("CosFaceLoss", proxies=True)),
    "soft_triple_2_centres": (
        ours("soft_triple", regularisers={}),
        peer("SoftTripleLoss", proxies=True, centers_per_class=2),
    ),
}


def memory(field: str) -> int:
    """Return VmRSS or VmHWM of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(field)


def measure(name: str, side: int, size: int) -> dict[str, float]:
    """Run one loss in this process and return its median seconds and its peak bytes above the start."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    torch.manual_seed(0)
    step = PAIRS[name][side]()
    if name == "soft_triple_2_centres" and side == 0:
        from vicinal.criterion import Criterion
        from vicinal.references import Proxies

        step = Criterion("soft_triple", references=Proxies(CLASSES, DIM, per_class=2), regularisers={})
    embeddings = torch.nn.functional.normalize(torch.randn(size, DIM)).requires_grad_()
    labels = torch.arange(size // PER_CLASS).repeat_interleave(PER_CLASS)
    # Items of a class are drawn together a little, as in training, or hinge losses would see no easy pair.
    centres = torch.randn(size // PER_CLASS, DIM)[labels] / DIM**0.5
    embeddings = torch.nn.functional.normalize(embeddings.detach() + centres).requires_grad_()
    Path("/proc/self/clear_refs").write_text("5")
    start = memory("VmRSS")
    times: list[float] = []
    while len(times) < 3 or (len(times) < 21 and sum(times) < 3):
        embeddings.grad = None
        began = time.perf_counter()
        step(embeddings, labels).backward()
        times.append(time.perf_counter() - began)
        if sum(times) > 60:
            break
    return {"seconds": statistics.median(times[1:] or times), "bytes": memory("VmHWM") - start, "runs": len(times)}


def child(name: str, side: int, size: int) -> dict[str, float] | str:
    """Measure in a child process; return why it could not where it could not."""
    command = [sys.executable, __file__, "--child", name, str(side), str(size)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"over {SECONDS_LIMIT} s"
    if done.returncode:
        text = done.stderr
        return "out of memory" if "memory" in text.lower() or done.returncode < 0 else text.strip().splitlines()[-1]
    return json.loads(done.stdout.splitlines()[-1])


def show(result: dict[str, float] | str) -> tuple[str, str]:
    if isinstance(result, str):
        return result, "-"
    return f"{1000 * result['seconds']:.1f}", f"{result['bytes'] / 2**20:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="128,512,2048,4096")
    parser.add_argument("--losses", default=",".join(PAIRS))
    parser.add_argument("--child", nargs=3, metavar=("NAME", "SIDE", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, side, size = arguments.child
        print(json.dumps(measure(name, int(side), int(size))))
        return
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for size in map(int, arguments.sizes.split(",")):
        print(f"\nBatch of {size}, {PER_CLASS} per class, {DIM} dimensions; milliseconds and MiB, median of up to 20\n")
        print("| loss | vicinal ms | peer ms | speed-up | vicinal MiB | peer MiB | memory ratio |")
        print("|---|---|---|---|---|---|---|")
        for name in arguments.losses.split(","):
            mine, theirs = child(name, 0, size), child(name, 1, size)
            (my_ms, my_mib), (peer_ms, peer_mib) = show(mine), show(theirs)
            speed = leaner = "-"
            if isinstance(mine, dict) and isinstance(theirs, dict):
                speed = f"{theirs['seconds'] / mine['seconds']:.1f}x"
                leaner = f"{mine['bytes'] / max(theirs['bytes'], 1):.2f}"
            print(f"| {name} | {my_ms} | {peer_ms} | {speed} | {my_mib} | {peer_mib} | {leaner} |", flush=True)


if __name__ == "__main__":
    main()
