"""Scores against an oracle that computes in fractions, without rounding: ties, duplicates, galleries, lone classes.

python campaign/oracle.py --trials 2000
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import torch
from common import SOUND, WRONG, Tally, finish, options, timed

from vicinal.errors import InputError
from vicinal.evaluation import evaluate

KS = (1, 2, 4)


def draw(rng: np.random.Generator) -> dict[str, Any]:
    """Draw small embeddings of whole numbers, with many ties."""
    distance = ("cosine", "euclidean")[int(rng.integers(2))]
    items, dim, classes = int(rng.integers(3, 24)), int(rng.integers(1, 5)), int(rng.integers(1, 5))

    def rows(count: int) -> np.ndarray[Any, Any]:
        # All of one length under the cosine: lengths are roots, which no fraction is.
        return rng.choice([-1, 1], (count, dim)) if distance == "cosine" else rng.integers(-3, 4, (count, dim))

    drawn = {"embeddings": rows(items), "labels": rng.integers(classes, size=items), "distance": distance}
    if rng.integers(2):
        others = int(rng.integers(1, 24))
        drawn["gallery"] = (rows(others), rng.integers(classes, size=others))
    return drawn


def exact_scores(drawn: dict[str, Any]) -> dict[str, Fraction] | None:
    """Return the scores as fractions; None where no query has a reference of its class."""
    queries, labels = drawn["embeddings"].tolist(), drawn["labels"].tolist()
    alone = "gallery" not in drawn
    references = queries if alone else drawn["gallery"][0].tolist()
    classes = labels if alone else drawn["gallery"][1].tolist()
    sums: dict[str, Fraction] = {}
    scored = 0
    for number, (query, label) in enumerate(zip(queries, labels, strict=True)):
        nearness = {
            place: sum(a * b for a, b in zip(query, other, strict=True))
            if drawn["distance"] == "cosine"
            else -sum((a - b) ** 2 for a, b in zip(query, other, strict=True))
            for place, other in enumerate(references)
            if not (alone and place == number)
        }
        ranked = [classes[place] == label for place in sorted(nearness, key=lambda place: (-nearness[place], place))]
        positives = sum(ranked)
        if not positives:
            continue
        scored += 1
        hits = [rank for rank, same in enumerate(ranked, 1) if same]
        precisions = [Fraction(count, rank) for count, rank in enumerate(hits, 1)]
        found = {
            "P@1": Fraction(int(ranked[0])),
            "P@R": Fraction(sum(ranked[:positives]), positives),
            "MAP@R": sum((p for p, rank in zip(precisions, hits, strict=True) if rank <= positives), Fraction(0))
            / positives,
            "mAP": sum(precisions, Fraction(0)) / positives,
            "MRR": Fraction(1, hits[0]),
            **{f"R@{k}": Fraction(int(any(ranked[:k]))) for k in KS},
        }
        sums = {name: sums.get(name, Fraction(0)) + value for name, value in found.items()}
    return {name: value / scored for name, value in sums.items()} if scored else None


def every(trials: int, seed: int) -> list[Tally]:
    """Compare `evaluate` with the oracle."""
    torch.set_num_threads(1)
    tally = Tally("evaluation")
    with timed(tally):
        for trial in range(seed, seed + trials):
            drawn = draw(np.random.default_rng([trial, 2]))
            subject = f"{drawn['distance']}{', gallery' if 'gallery' in drawn else ''}"
            expected = exact_scores(drawn)
            try:
                found = evaluate(**drawn, k=KS, also=["ranking"], intervals=None)
            except InputError:
                tally.note(subject, SOUND if expected is None else WRONG, f"seed {trial}: refused")
                continue
            wrong = expected is None or [name for name, value in expected.items() if abs(found[name] - value) > 1e-12]
            tally.note(subject, WRONG if wrong else SOUND, f"seed {trial}: {wrong}")
    return [tally]


if __name__ == "__main__":
    flags = options(__doc__ or "", usual=2000)
    finish(every(flags.trials, flags.seed))
