"""What whitening, augmentation, expansion and re-ranking gain on the same vectors, with intervals over classes.

    python benchmarks/better_neighbours.py --embeddings cub.npz --test 100:

A file has the arrays embeddings and labels, as `vicinal embed` writes it; labels from --test on are scored, the others
are what whitening is learned from. Gains are paired by query, and their 95 % intervals are over classes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.evaluation import Neighbourhood, evaluate
from vicinal.neighbours import Reranking, learn_whitening
from vicinal.stats.intervals import class_interval, class_sums

SCORES = ("MAP@R", "P@1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, required=True)
    parser.add_argument("--test", default="100:", help="first:last of the labels that are scored")
    arguments = parser.parse_args()
    file = np.load(arguments.embeddings)
    rows, labels = file["embeddings"], file["labels"]
    first, last = (int(end) if end else None for end in arguments.test.split(":"))
    scored = (labels >= first) & (labels < (labels.max() + 1 if last is None else last))
    train, rows, labels = rows[labels < first], rows[scored], labels[scored]
    dim = rows.shape[1]
    whitenings = {dim // share: learn_whitening(train, dim // share) for share in (2, 5)}
    ways: dict[str, dict[str, Any]] = {"as they are": {}}
    for size, whitening in whitenings.items():
        ways[f"whitened, {size}-D"] = {"whitening": whitening}
    ways |= {
        "augmented by 5": {"augment": 5},
        "expanded by 5": {"expand": 5},
        "augmented and expanded by 5": {"augment": 5, "expand": 5},
        "re-ranked": {"rerank": Reranking()},
        f"whitened, {dim // 2}-D, re-ranked": {"whitening": whitenings[dim // 2], "rerank": Reranking()},
    }
    print(f"{arguments.embeddings.stem}: {len(rows):,} items of {len(np.unique(labels)):,} classes, {dim}-D, cosine\n")
    print("| | " + " | ".join(f"{name} | gain" for name in SCORES) + " | CPU s |")
    print("|---|" + "---|" * (2 * len(SCORES) + 1), flush=True)
    plain = None
    for name, options in ways.items():
        start = time.process_time()
        found = evaluate(rows, labels, also=[], intervals=None, neighbours=Neighbourhood(**options))
        spent = time.process_time() - start
        plain = plain or found
        cells = []
        for score in SCORES:
            gain = found.per_query[score] - plain.per_query[score]
            sums, counts = class_sums(gain, found.query_classes, len(found.classes))
            (ends,) = class_interval(sums[:, None], counts, bounded=False)
            cells.append(f"{found[score]:.4f}")
            cells.append(
                "" if found is plain else f"{found[score] - plain[score]:+.4f} ({ends.low:+.4f} to {ends.high:+.4f})"
            )
        print(f"| {name} | {' | '.join(cells)} | {spent:.1f} |", flush=True)


if __name__ == "__main__":
    main()
