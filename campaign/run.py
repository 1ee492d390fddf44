"""The whole campaign, or its short form: kills, full disks, damaged files, odd flags, and the oracle of evaluation.

    python campaign/run.py            # hours: 1,000 kills, 100,000 fuzzed inputs
    python campaign/run.py --short    # under two minutes

Every trial has a seed, which a fault names: `python campaign/fuzzing.py --seed 4711 --trials 1` repeats it.
"""

from __future__ import annotations

import argparse

import disks
import flags
import fuzzing
import hostile_uploads
import index_damage
import index_kills
import index_phases
import kills
import machines
import milvus_kills
import oracle
import server_kills
import server_soak
from common import Tally, finish


def short(seed: int) -> list[Tally]:
    """A few trials of every kind that takes no minutes to begin."""
    return [
        *oracle.every(50, seed),
        *disks.every(1, seed),
        *fuzzing.every(2, seed),
        *flags.every(1, seed),
        *index_damage.every(1, seed),
        *index_kills.every(3, 30, seed),
        *index_phases.every(1, seed),
        *server_kills.every(1, seed),
        *hostile_uploads.every(100, seed),
        *kills.every(1, seed, ("train", "tune")),
    ]


def whole(seed: int) -> list[Tally]:
    """All kinds of trials; those that kill other processes come last."""
    return [
        *oracle.every(5000, seed),
        *disks.every(300, seed),
        *fuzzing.every(4000, seed),
        *flags.every(200, seed),
        *index_damage.every(500, seed),
        *index_kills.every(1000, 10_000, seed),
        *index_phases.every(100, seed),
        *server_kills.every(100, seed),
        *server_soak.every(600, seed),
        *hostile_uploads.every(10_000, seed),
        *kills.every(90, seed),
        *machines.every(3, seed),
        *milvus_kills.every(8, seed),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    finish((short if given.short else whole)(given.seed))
