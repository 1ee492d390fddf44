"""CUB-200-2011 with a pretrained small network: raw features, trained heads, and the last stage fine-tuned.

    VICINAL_DATA=../shared/data python examples/cub.py --out runs/cub

The data folder holds `CUB_200_2011/` and `weights/mobilenet_v2-b0353104.pth`. Classes 1-100 train (10 validate),
101-200 test. Features are computed once and kept in the cache, so a second run takes seconds per loss.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import vicinal as vc
from vicinal.training.feature_cache import frozen_features

LOSSES = {
    "proxy_anchor": {},
    "multi_similarity": {"mining": "valid_triplets"},
    "normalised_softmax": {},
    "triplet": {"loss_options": {"which": "semi_hard"}},
}
HEAD = {
    "backbone": "mobilenet_v2",
    "dim": 128,
    "freeze": True,
    "images": "plain",  # augmented crops make these frozen features worse on the test classes
    "copies": 1,
    "classes_per_batch": 24,
    "samples_per_class": 5,
    "steps": 500,
    "learning_rate": 1e-3,
    "evaluate_every": 50,
}
FINE = {
    **HEAD,
    "freeze": False,
    "train_stages": 1,
    "freeze_batch_norm": True,
    "classes_per_batch": 8,
    "samples_per_class": 4,
    "learning_rate": 1e-4,
    "schedule": "cosine",
    # Random proxies would first undo the head; pairs go on where it is.
    "loss": "multi_similarity",
    "mining": "valid_triplets",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/cub"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fine-tune", type=int, default=0, metavar="STEPS", help="steps of fine-tuning the last stage")
    arguments = parser.parse_args()
    weights = str(Path(os.environ["VICINAL_DATA"]) / "weights" / "mobilenet_v2-b0353104.pth")
    console, table = Console(), Table("model", "dim", "seed", "R@1", "MAP@R")

    def add(name: str, dim: int, seed: int | str, embeddings: np.ndarray, labels: np.ndarray) -> vc.Scores:
        scores = vc.evaluate(embeddings, labels, also=[])
        scores_file = arguments.out / f"{name}-{seed}.json".replace(" ", "-")
        scores_file.write_text(scores.to_json())
        table.add_row(name, str(dim), str(seed), f"{scores['P@1']:.4f}", f"{scores['MAP@R']:.4f}")
        console.print(name, seed, f"R@1 {scores['P@1']:.4f} MAP@R {scores['MAP@R']:.4f}")
        return scores

    arguments.out.mkdir(parents=True, exist_ok=True)
    data = vc.data.load("cub")
    split = vc.split(data, "fixed-validation", seed=0)
    raw = vc.Embedder("mobilenet_v2", dim=None, weights=weights)
    test = frozen_features(raw, split.test, raw.transform)[:, 0]
    add("raw features", 1280, "-", test, split.test.labels)

    for loss, options in LOSSES.items():
        for seed in range(arguments.seeds):
            run = vc.split(data, "fixed-validation", seed=seed)
            model = vc.fit(run, loss=loss, weights=weights, seed=seed, progress=False, **HEAD, **options)
            with torch.inference_mode():
                embeddings = model.head(torch.from_numpy(test)).numpy()
            add(loss, model.dim, seed, embeddings, split.test.labels)
            model.save(arguments.out / f"{loss}-{seed}")

    if arguments.fine_tune:
        start = arguments.out / "proxy_anchor-0"
        settings = {**FINE, "steps": arguments.fine_tune, "evaluate_every": max(1, arguments.fine_tune // 4)}
        model = vc.fit(
            split,
            weights=weights,
            start=str(start),
            folder=arguments.out / "fine-tuned",
            resume=True,
            workers=1,
            **settings,
        )
        embeddings = model.encode(split.test, progress=True)
        tuned = add("proxy_anchor, then last stage", model.dim, 0, embeddings, split.test.labels)
        with torch.inference_mode():
            head = vc.Embedder.load(start).head(torch.from_numpy(test)).numpy()
        before = vc.evaluate(head, split.test.labels, also=[])
        console.print("over the head it began with:", tuned.difference(before, "MAP@R"))
    console.print(table)


if __name__ == "__main__":
    main()
