"""Duplicates and outliers that were planted among photographs, and how many are found.

    python benchmarks/planted.py duplicates --photos CUB_200_2011/images --model MODEL --items 360 --planted 60
    python benchmarks/planted.py outliers --embeddings cub.npz --model MODEL --planted 60 --seeds 3

MODEL is the folder of an embedder, and the embeddings (`vicinal embed MODEL cub`) are of the same one.

Duplicates: of some photographs a changed copy is added for each kind of change, each kind of other photographs, and
all are compared as `vicinal duplicates` does it: by bytes, by looks, by embeddings (cosine from 0.98 on), and by all
three. Recall is the share of planted pairs that are linked, precision the share of linked pairs that were planted (or
are two copies of one photograph). Beside them imagehash's phash alone, up to 10 of its 64 bits apart.

Outliers: among the photographs of the classes from 100 on are put, under labels of these, noise, drawn characters, and
photographs of the classes before 100. The scores of `vicinal outliers` and of cleanlab's `OutOfDistribution` on the
same embeddings are compared by AUROC, and by the share of planted ones among the first as many.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import imagehash
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from sklearn.metrics import roc_auc_score

from vicinal.collection import find_outliers
from vicinal.collection.duplicates import THRESHOLD, near_links
from vicinal.data import glyphs
from vicinal.data.lookalikes import lookalike_files
from vicinal.embedder import Embedder

Pair = tuple[int, int]
FIRST_TEST_CLASS, PHASH_BITS = 100, 10


def cropped(image: Image.Image) -> Image.Image:
    width, height = image.size
    left, top = round(0.025 * width), round(0.025 * height)
    return image.crop((left, top, width - left, height - top))


CHANGES: dict[str, tuple[Callable[[Image.Image], Image.Image], int]] = {
    "re-encoded (JPEG 50)": (lambda image: image, 50),
    "half the size": (lambda image: image.resize((image.width // 2, image.height // 2)), 90),
    "cropped to 95 %": (cropped, 90),
    "brighter by 30 %": (lambda image: ImageEnhance.Brightness(image).enhance(1.3), 90),
    "mirrored": (lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), 90),
}


def plant_copies(photos: list[Path], folder: Path, planted: int) -> tuple[list[str], dict[str, set[Pair]]]:
    """Write photographs and changed copies of some; return their paths, and the pairs of each kind of change."""
    paths, pairs = [str(path) for path in photos], defaultdict(set)
    kinds = ["the same bytes", *CHANGES]
    for number, kind in enumerate(kinds):
        for place in range(number * planted, (number + 1) * planted):
            copy = folder / f"{number}-{place}.jpg"
            if kind in CHANGES:
                change, quality = CHANGES[kind]
                with Image.open(photos[place]) as image:
                    change(image.convert("RGB")).save(copy, quality=quality)
            else:
                copy.write_bytes(photos[place].read_bytes())
            pairs[kind].add((place, len(paths)))
            paths.append(str(copy))
    return paths, pairs


def by_phash(paths: list[str]) -> set[Pair]:
    hashes = []
    for path in paths:
        with Image.open(path) as image:
            hashes.append(imagehash.phash(image).hash.ravel())
    bits = np.array(hashes)
    apart = (bits[:, None] != bits[None]).sum(axis=2)
    one, other = np.nonzero(np.triu(apart <= PHASH_BITS, 1))
    return set(zip(one.tolist(), other.tolist(), strict=True))


def duplicates(photos: Path, model: Path, items: int, planted: int, seed: int) -> None:
    every = sorted(photos.rglob("*.jpg"))
    need = planted * (1 + len(CHANGES))
    if not need <= items <= len(every):
        raise SystemExit(f"--items must be {need} to {len(every)}: every change has photographs of its own.")
    chosen = [every[place] for place in np.random.default_rng(seed).choice(len(every), items, replace=False)]
    with tempfile.TemporaryDirectory() as folder:
        paths, pairs = plant_copies(chosen, Path(folder), planted)
        alike = lookalike_files(paths)
        rows = Embedder.load(model).encode(paths, progress=True)
        ways = {
            "bytes": {(group[0], other) for group in alike.same for other in group[1:]},
            "looks": {(min(pair), max(pair)) for pair in alike.near},
            "embeddings": {(link.first, link.second) for link in near_links(rows, THRESHOLD)},
        }
        ways["vicinal, all three"] = set.union(*ways.values())
        ways[f"imagehash's phash, {PHASH_BITS} bits"] = by_phash(paths)
    right = set.union(*pairs.values())
    print(f"{items} photographs and {len(right)} planted copies, {planted} of each kind; seed {seed}\n")
    print(f"| compared by | {' | '.join(f'recall: {kind}' for kind in pairs)} | precision |")
    print("|---|" + "---|" * (len(pairs) + 1))
    for way, found in ways.items():
        cells = [f"{len(found & some) / len(some):.3f}" for some in pairs.values()]
        precision = f"{len(found & right) / len(found):.3f} of {len(found)}" if found else "nothing found"
        print(f"| {way} | {' | '.join(cells)} | {precision} |")


def strangers(model: Path, many: int, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Embeddings of what is no photograph of a bird."""
    noise = [Image.fromarray(rng.integers(0, 256, (256, 256, 3), dtype=np.uint8)) for _ in range(many)]
    drawn = glyphs().items[rng.choice(len(glyphs()), many, replace=False)]
    characters = [Image.fromarray(each).convert("RGB").resize((256, 256)) for each in drawn]
    embedder = Embedder.load(model)
    return {"noise": embedder.encode(noise), "drawn characters": embedder.encode(characters)}


def scores_of(rows: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    scores = np.empty(len(rows))
    for found in find_outliers(rows, labels, least=-np.inf):
        scores[found.index] = found.score
    return scores


def outliers(embeddings: Path, model: Path, planted: int, seeds: int) -> None:
    from cleanlab.outlier import OutOfDistribution  # pip install cleanlab

    file = np.load(embeddings)
    rows, labels = file["embeddings"], file["labels"]
    inside = labels >= FIRST_TEST_CLASS
    cells: defaultdict[str, list[list[float]]] = defaultdict(list)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        planting = strangers(model, planted, rng)
        others = rng.choice(np.flatnonzero(~inside), planted, replace=False)
        planting["birds of other classes"] = rows[others]
        for kind, foreign in planting.items():
            given = np.concatenate([labels[inside], rng.choice(labels[inside], planted)])
            both = np.concatenate([rows[inside], foreign])
            wrong = np.arange(len(both)) >= inside.sum()
            mine = scores_of(both, given)
            theirs = -OutOfDistribution().fit_score(features=both, verbose=False)
            figures = []
            for scores in (mine, theirs):
                first = np.argsort(-scores, kind="stable")[:planted]
                figures += [float(wrong[first].mean()), float(roc_auc_score(wrong, scores))]
            cells[kind].append(figures)
    print(f"{inside.sum():,} photographs and {planted} planted; means of {seeds} seeds\n")
    print("| planted | vicinal: P, AUROC | cleanlab's OutOfDistribution: P, AUROC |\n|---|---|---|")
    for kind, each in cells.items():
        mean = np.mean(each, axis=0)
        print(f"| {kind} | {mean[0]:.4f}, {mean[1]:.4f} | {mean[2]:.4f}, {mean[3]:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["duplicates", "outliers"])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files, for duplicates")
    parser.add_argument("--embeddings", type=Path, help="an .npz file, for outliers")
    parser.add_argument("--items", type=int, default=360, help="photographs that copies are planted among")
    parser.add_argument("--planted", type=int, default=60, help="of each kind")
    parser.add_argument("--seeds", type=int, default=1, help="of the outliers; duplicates have the seed 0")
    arguments = parser.parse_args()
    if arguments.what == "duplicates":
        duplicates(arguments.photos, arguments.model, arguments.items, arguments.planted, 0)
    else:
        outliers(arguments.embeddings, arguments.model, arguments.planted, arguments.seeds)


if __name__ == "__main__":
    main()
