"""Images per second from JPEG files, beside plain Pillow: open, resize, crop.

    python benchmarks/decoding.py                   # photographs made on the spot, three sizes
    python benchmarks/decoding.py path/to/photos    # a folder of your own

Each row is one pipeline on one set of files. Both sides run in turn on the same files in one process;
the medians over the repeats are printed. "image" is plain Pillow up to the cropped image, "tensor" is
plain Pillow and then the usual array, transpose, float and normalisation; vicinal always goes all the way
to the normalised tensor.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vicinal.data import pipeline
from vicinal.data.images import IMAGENET_MEAN, IMAGENET_STD, draw_part

SIZES = {"500 x 375": (500, 375), "1600 x 1200": (1600, 1200), "4000 x 3000": (4000, 3000)}


def make_photographs(folder: Path, size: tuple[int, int], count: int) -> list[Path]:
    """JPEG files with detail at every scale, about as hard to decode as photographs."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(count):
        layers = [
            np.asarray(
                Image.fromarray(rng.integers(0, 256, (edge, edge, 3), dtype=np.uint8)).resize(size), dtype=np.float32
            )
            for edge in (4, 16, 64, 256)
        ]
        mixed = sum(layer * weight for layer, weight in zip(layers, (0.5, 0.25, 0.15, 0.1), strict=True))
        paths.append(folder / f"{size[0]}-{i}.jpg")
        Image.fromarray(np.asarray(mixed).astype(np.uint8)).save(paths[-1], quality=85)
    return paths


def plain_test(path: Path) -> Image.Image:
    image = Image.open(path).convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    return image.crop((left, top, left + 224, top + 224))


def plain_train(path: Path, rng: np.random.Generator) -> Image.Image:
    image = Image.open(path).convert("RGB")
    left, top, width, height = draw_part(*image.size, (0.08, 1.0), (3 / 4, 4 / 3), rng)
    part = image.crop((left, top, left + width, top + height)).resize((224, 224), Image.Resampling.BILINEAR)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else part


def plain_tensor(image: Image.Image) -> Tensor:
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    values = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
    return values.sub_(mean).div_(std)


def rates(ways: dict[str, Callable[[Path, np.random.Generator], object]], paths: list[Path], repeats: int):
    """Images per second of each way: the median over the repeats, which take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            rng = np.random.default_rng(0)
            start = time.perf_counter()
            for path in paths:
                way(path, rng)
            seconds[name].append(time.perf_counter() - start)
    return {name: len(paths) / statistics.median(taken[1:]) for name, taken in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="JPEG files to use in place of made ones")
    parser.add_argument("--count", type=int, default=40, help="files of each set")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ours = pipeline("thesis")
    pipelines = {
        "test": {
            "image": lambda path, _: plain_test(path),
            "tensor": lambda path, _: plain_tensor(plain_test(path)),
            "vicinal": lambda path, _: ours.test(path, None),
        },
        "train": {
            "image": plain_train,
            "tensor": lambda path, rng: plain_tensor(plain_train(path, rng)),
            "vicinal": lambda path, rng: ours.train(path, rng),
        },
    }
    print(
        f"{'files':>12} {'pipeline':>9} {'image/s':>9} {'tensor/s':>9} {'vicinal/s':>10} {'/image':>7} {'/tensor':>8}"
    )
    with tempfile.TemporaryDirectory() as made:
        if arguments.folder:
            found = sorted(arguments.folder.rglob("*.jpg"))
            sets = {arguments.folder.name[:12]: found[:: max(1, len(found) // arguments.count)]}
        else:
            sets = {name: make_photographs(Path(made), size, arguments.count) for name, size in SIZES.items()}
        for files, paths in sets.items():
            for name, ways in pipelines.items():
                rate = rates(ways, paths, arguments.repeats)
                print(
                    f"{files:>12} {name:>9} {rate['image']:9.0f} {rate['tensor']:9.0f} {rate['vicinal']:10.0f} "
                    f"{rate['vicinal'] / rate['image']:6.2f}x {rate['vicinal'] / rate['tensor']:7.2f}x"
                )


if __name__ == "__main__":
    main()
