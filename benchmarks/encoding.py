"""Images per second from tensors and from JPEG files to embeddings: engines beside the usual eager loop, in one run.

    VICINAL_DATA=path/to/data python benchmarks/encoding.py
    python benchmarks/encoding.py --parts tensors,networks --threads 1 --repeats 3

`VICINAL_DATA` is a folder with `CUB_200_2011/` and `weights/mobilenet_v2-b0353104.pth`; without it the part `files` is
left out and MobileNetV2 has random weights, which take the same time. All ways of a table take turns, so that each sees
the same state of the machine; medians over the turns are printed, both sides of every ratio. Engines are made before
the clock starts, in a first turn that does not count (lines with `ready` say how long that takes); the check of a
run's first batch is in its time.

The usual eager loop is what timm's and open-metric-learning's inference scripts do: a DataLoader with worker processes,
`model(batch)` under `torch.no_grad()`, images in torch's default order of memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from vicinal.backbones import Backbone, Input
from vicinal.data.images import IMAGENET_MEAN, IMAGENET_STD
from vicinal.embedder import Embedder
from vicinal.embedder.engines import IMAGES_PER_CALL, make_engine

BATCH = 32
PARTS = ("tensors", "files", "networks")
NETWORKS = ("resnet50", "googlenet", "bn_inception", "efficientnet_lite0", "vit_small")
Way = Callable[[], int]  # does some work; returns how many images it was


class SmallViT(Backbone):
    """ViT-S/16: 12 layers of width 384, the mean of the tokens; random weights."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 384, 16, stride=16)
        self.position = nn.Parameter(0.02 * torch.randn(1, 196, 384))
        layer = nn.TransformerEncoderLayer(384, 6, 1536, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, norm=nn.LayerNorm(384), enable_nested_tensor=False)
        self.channels, self.input = 384, Input("imagenet", 3, size=224, short_side=256)
        self.stages = {"all": ("patches", "layers")}

    def forward(self, images: Tensor) -> Tensor:
        """Return the mean of the last layer's tokens."""
        return self.layers(self.patches(images).flatten(2).transpose(1, 2) + self.position).mean(dim=1)


def embedder_named(name: str) -> Embedder:
    torch.manual_seed(0)
    if name == "vit_small":
        return Embedder(SmallViT(), dim=None).eval()
    data = os.environ.get("VICINAL_DATA")
    weights = Path(data) / "weights" / "mobilenet_v2-b0353104.pth" if data and name == "mobilenet_v2" else None
    return Embedder(name, dim=None, weights=weights).eval()


def rates(ways: dict[str, Way], repeats: int) -> dict[str, float]:
    """Images per second of each way: the median over the repeats, which take turns; the first turn warms up."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, way in ways.items():
            start = time.perf_counter()
            images = way()
            if turn:
                taken[name].append(images / (time.perf_counter() - start))
    return {name: statistics.median(found) for name, found in taken.items()}


def eager_batches(embedder: Embedder, images: Tensor) -> Way:
    """The loop that `encode` had before there were engines, on batches that are there."""

    def way() -> int:
        with torch.inference_mode():
            for batch in images.split(BATCH):
                embedder(batch).numpy()
        return len(images)

    return way


def encoded(embedder: Embedder, inputs: list[Tensor] | list[Path], engine: str, threads: int) -> Way:
    def way() -> int:
        embedder.encode(inputs, engine=engine, workers=threads)  # type: ignore[arg-type]
        return len(inputs)

    return way


def onnxruntime_alone(embedder: Embedder, inputs: list[Tensor], threads: int) -> Way:
    """One session, one thread a call, as many callers as threads: batches are made beforehand."""
    engine = make_engine(nn.Sequential(embedder.backbone, embedder.head), inputs[0][None], "onnxruntime")
    batches = [torch.stack(inputs[i : i + IMAGES_PER_CALL]) for i in range(0, len(inputs), IMAGES_PER_CALL)]

    def way() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(len(rows) for rows in pool.map(engine.run, batches))

    return way


def onnxruntime_plain(embedder: Embedder, images: Tensor, threads: int) -> Way:
    """A session as its documentation has it: one caller, the session's own threads, batches of 32."""
    import onnxruntime

    from vicinal.embedder.onnx import graph_in_memory

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    graph = graph_in_memory(nn.Sequential(embedder.backbone, embedder.head).eval(), images[:2])
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def way() -> int:
        for batch in images.split(BATCH):
            session.run(None, {"inputs": batch.numpy()})
        return len(images)

    return way


class Files(Dataset[Tensor]):
    """Photographs as the usual scripts open them: Pillow, the short side to 256, the middle 224, a float tensor."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        image = Image.open(self.paths[index]).convert("RGB")
        scale = 256 / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        pixels = np.array(image.crop((left, top, left + 224, top + 224)))
        return torch.from_numpy(pixels).permute(2, 0, 1).float().div(255).sub(self.mean).div(self.std)


def usual_loop(embedder: Embedder, paths: list[Path], threads: int) -> Way:
    def way() -> int:
        loader = DataLoader(Files(paths), batch_size=BATCH, num_workers=threads)
        with torch.no_grad():
            return len(torch.cat([embedder(batch).cpu() for batch in loader]))

    return way


def decoding_alone(embedder: Embedder, paths: list[Path], threads: int) -> Way:
    def way() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(1 for _ in pool.map(lambda path: embedder.transform(Image.open(path)), paths))  # type: ignore[misc]

    return way


def ready(embedder: Embedder, sample: Tensor, engine: str) -> float:
    start = time.perf_counter()
    make_engine(nn.Sequential(embedder.backbone, embedder.head), sample, engine)
    return time.perf_counter() - start


def line(work: str, threads: int, ours: tuple[str, float], other: tuple[str, float], goal: str) -> None:
    print(
        f"{work:<14}{threads:>3}   {ours[0]:<25}{ours[1]:>7.1f}/s   {other[0]:<26}{other[1]:>7.1f}/s"
        f"   {ours[1] / other[1]:>6.2f}   {goal}",
        flush=True,
    )


def tensors(threads: int, given: argparse.Namespace) -> None:
    embedder = embedder_named("mobilenet_v2")
    images = torch.randn(2 * BATCH, 3, 224, 224)
    many = [images[i % len(images)] for i in range(given.count)]
    few = images[:BATCH]
    for engine in ("folded", "onnxruntime"):
        print(f"{'mobilenet_v2':<14}{threads:>3}   {engine}: ready in {ready(embedder, images[:8], engine):.2f} s")
    rate = rates(
        {
            "eager": eager_batches(embedder, few),
            "encode eager": encoded(embedder, list(few), "eager", threads),
            "encode folded": encoded(embedder, many[: given.count // 4], "folded", threads),
            "encode onnxruntime": encoded(embedder, many, "onnxruntime", threads),
            "encode auto": encoded(embedder, many, "auto", threads),
            "onnxruntime alone": onnxruntime_alone(embedder, many, threads),
            "onnxruntime, batch 32": onnxruntime_plain(embedder, images, threads),
        },
        given.repeats,
    )
    eager = ("eager, contiguous", rate["eager"])
    for name in ("encode eager", "encode folded", "encode onnxruntime"):
        line("mobilenet_v2", threads, (name, rate[name]), eager, "")
    auto = (f"encode auto ({embedder.encoded_by})", rate["encode auto"])
    line("mobilenet_v2", threads, auto, eager, "goal 7")
    for name in ("onnxruntime alone", "onnxruntime, batch 32"):
        line("mobilenet_v2", threads, auto, (name, rate[name]), "goal .95")


def files(threads: int, given: argparse.Namespace) -> None:
    root = os.environ.get("VICINAL_DATA")
    if not root or not (Path(root) / "CUB_200_2011").is_dir():
        print("files: left out; VICINAL_DATA names no folder with CUB_200_2011")
        return
    embedder = embedder_named("mobilenet_v2")
    found = sorted((Path(root) / "CUB_200_2011" / "images").rglob("*.jpg"))
    paths = found if given.whole else found[:: max(1, len(found) // given.count)][: given.count]
    opened = [embedder.transform(Image.open(path)) for path in paths[: 2 * BATCH]]  # type: ignore[misc]
    many = [opened[i % len(opened)] for i in range(len(paths))]
    ways = {
        "decoding alone": decoding_alone(embedder, paths, threads),
        "network alone": onnxruntime_alone(embedder, many[: given.count], threads),
        "encode auto": encoded(embedder, paths, "auto", threads),
        "usual eager loop": usual_loop(embedder, paths[: 2 * BATCH], threads),
    }
    rate = rates(ways, given.repeats)
    auto = (f"encode auto ({embedder.encoded_by})", rate["encode auto"])
    both = 1 / (1 / rate["decoding alone"] + 1 / rate["network alone"])
    slower = min("decoding alone", "network alone", key=rate.__getitem__)
    line("CUB, JPEG", threads, auto, (f"{slower} (slower)", rate[slower]), "goal .9")
    line("CUB, JPEG", threads, auto, ("both, one after the other", both), "")
    line("CUB, JPEG", threads, auto, ("usual eager loop", rate["usual eager loop"]), "goal 5")
    print(
        f"{'CUB, JPEG':<14}{threads:>3}   decoding alone {rate['decoding alone']:.0f}/s, 11,788 photographs at this "
        f"rate: {11788 / rate['encode auto']:.0f} s (goal 90 with two threads)"
    )


def networks(threads: int, given: argparse.Namespace) -> None:
    for name in given.networks.split(","):
        embedder = embedder_named(name)
        side = embedder.backbone.input.size
        images = torch.randn(BATCH, 3, side, side)
        many = [images[i % BATCH] for i in range(given.count // 8)]
        rate = rates(
            {
                "eager": eager_batches(embedder, images),
                "folded": encoded(embedder, many, "folded", threads),
                "onnxruntime": encoded(embedder, many, "onnxruntime", threads),
                "auto": encoded(embedder, many, "auto", threads),
            },
            given.repeats,
        )
        eager = ("eager, contiguous", rate["eager"])
        for engine in ("folded", "onnxruntime"):
            line(name, threads, (f"encode {engine}", rate[engine]), eager, "")
        line(name, threads, (f"encode auto ({embedder.encoded_by})", rate["auto"]), eager, "goal 2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--threads", default="1,2", help="numbers of threads to measure with")
    parser.add_argument("--networks", default=",".join(NETWORKS), help="of the part networks")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--count", type=int, default=1024, help="images of the fast ways; slow ones take fewer")
    parser.add_argument("--whole", action="store_true", help="all photographs of CUB for `encode` and for decoding")
    given = parser.parse_args()
    parts = {"tensors": tensors, "files": files, "networks": networks}
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, medians of {given.repeats} turns")
    print(f"{'work':<14}{'threads':>3}   {'ours':<25}{'':>9}   {'beside':<26}{'':>9}   {'ratio':>6}")
    for threads in map(int, given.threads.split(",")):
        torch.set_num_threads(threads)
        for part in given.parts.split(","):
            parts[part](threads, given)


if __name__ == "__main__":
    main()
