"""The settings of Gurbuz et al. (WACV 2024) for four datasets, written as recipes.

    python examples/ccp_recipes.py recipes/ccp

C1, C2, MS and Triplet, each alone and with chance-constrained proxies; C1 and C2 with a small and a large memory (XBM);
and what their search over the proximal weight and the number of proxies starts from.
"""

from __future__ import annotations

import sys
from pathlib import Path

DATASETS = {
    "cub": {"evaluate_every": 25, "proxies": 8, "pool": 12, "memory": (3, 25)},
    "cars196": {"evaluate_every": 25, "proxies": 8, "pool": 12, "memory": (3, 25)},
    "inshop": {"evaluate_every": 250, "proxies": 4, "pool": 7, "memory": (100, 400)},
    "sop": {"evaluate_every": 250, "proxies": 4, "pool": 7, "memory": (400, 1400)},
}
LOSSES = {
    "c1": ("contrastive_c1", ("threshold",)),
    "c2": ("contrastive_c2", ("positive_margin", "negative_margin")),
    "ms": ("multi_similarity", ("positive_scale", "negative_scale", "threshold")),
    "triplet": ("triplet", ("margin",)),
}
OPTIONS = {
    "cub": {"c1": (0.5,), "c2": (0.0, 0.3841), "ms": (2.0, 40.0, 0.5), "triplet": (0.0961,)},
    "cars196": {"c1": (0.5,), "c2": (0.2652, 0.5409), "ms": (14.35, 75.83, 0.66), "triplet": (0.119,)},
    "inshop": {"c1": (0.5,), "c2": (0.2858, 0.513), "ms": (8.49, 57.38, 0.41), "triplet": (0.0451,)},
    "sop": {"c1": (0.5,), "c2": (0.2858, 0.513), "ms": (2.0, 40.0, 0.5), "triplet": (0.0451,)},
}
BATCH = 32
SEARCH_POOL = 16
XBM_START = 1000


def recipe(data: str, loss: str, extra: str) -> str:
    """Return one recipe as TOML."""
    about, (name, options) = DATASETS[data], LOSSES[loss]
    words = {"": "alone", "ccp": "with chance-constrained proxies", "search": "with proxies, for a search"}
    size = dict(zip(("xbm-s", "xbm-l"), about["memory"], strict=True)).get(extra)
    lines = [
        f"# {data}, {loss.upper()} {words.get(extra, f'with a memory of {size} batches')}: Gurbuz et al. 2024.",
        f"# vicinal train {data} --protocol reality-check --fold 0 --run RUN --recipe THIS",
        f'loss = "{name}"',
        *([f"memory = {size * BATCH}", f"memory_start = {XBM_START}"] if size else []),
        'backbone = "bn_inception"',
        'weights = "imagenet"',
        "dim = 128",
        'normalisation = "ball"',
        'images = "reality-check"',
        "classes_per_batch = 8",
        "samples_per_class = 4",
        "freeze_batch_norm = true",
        "",
        "[loss_options]",
        *(f"{option} = {value}" for option, value in zip(options, OPTIONS[data][loss], strict=True)),
    ]
    if extra in ("ccp", "search"):
        lines += [
            "",
            "[ccp]",
            'preset = "code"',
            f"proxies_per_class = {about['proxies']}",
            f"pool = {SEARCH_POOL if extra == 'search' else about['pool']}",
            "proximal_weight = 2e-4",
        ]
    lines += [
        "",
        "[training]",
        f"steps = {10_000 * about['evaluate_every']}",
        'optimiser = "adam"',
        "learning_rate = 1e-5",
        "weight_decay = 1e-4",
        "clip_norm = 10.0",
        f"evaluate_every = {about['evaluate_every']}",
        "patience = 60",
    ]
    return "\n".join(lines) + "\n"


def recipes() -> dict[str, str]:
    """Return every recipe by its file name."""
    found = {}
    for data in DATASETS:
        for loss in LOSSES:
            for extra in ("", "ccp", "xbm-s", "xbm-l") if loss in ("c1", "c2") else ("", "ccp"):
                found["-".join(filter(None, (data, loss, extra))) + ".toml"] = recipe(data, loss, extra)
    return {**found, "cub-c2-search.toml": recipe("cub", "c2", "search")}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "recipes/ccp")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in recipes().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
