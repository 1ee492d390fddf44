"""The whole campaign, or its short form: kills, disks, fuzzing, and the oracle of evaluation.

    python campaign/run.py            # hours: 1,000 kills, 100,000 fuzzed inputs
    python campaign/run.py --short    # under two minutes

Every trial has a seed, which a fault names: `python campaign/fuzzing.py --seed 4711 --trials 1` repeats it.
"""

from __future__ import annotations

import argparse

import disks
import fuzzing
import kills
import oracle
from common import Tally, finish


def every(short: bool, seed: int) -> list[Tally]:
    """All kinds of trials."""
    if short:
        found = [*oracle.every(100, seed), *disks.every(2, seed), *fuzzing.every(5, seed)]
        return [*found, *kills.every(2, seed, ("train", "tune"))]
    found = [*oracle.every(5000, seed), *disks.every(300, seed), *fuzzing.every(4000, seed)]
    return [*found, *kills.every(90, seed)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    finish(every(flags.short, flags.seed))
