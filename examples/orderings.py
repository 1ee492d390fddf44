"""Which orderings of the papers hold in a comparison, with differences, intervals and p-values.

    python examples/orderings.py runs/cub

The folder is one that `vicinal compare` wrote. Every two losses are tested on the test classes, seeds and folds that
both have, and p-values are corrected for the number of pairs (Holm).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from vicinal.results import Leaderboard, leaderboards
from vicinal.statistics import PairTest

# What is said to be better, and than what; the names are those of `vicinal compare --losses`.
CLAIMS = [
    ("multi_similarity + valid_triplets", "multi_similarity", "RAW + VTHM over RAW"),
    ("multi_similarity", "binomial_deviance", "RAW over binomial deviance"),
]
LAST = ("n_pair", "triplet + semi_hard")


def table(board: Leaderboard) -> Iterator[str]:
    """Yield a Markdown table of all losses: the mean of the folds' models, and the models joined."""
    score = board.score
    yield f"| loss | {score} | ± seeds | P@1 | joined {score} | joined - separate | validation {score} |"
    yield "|---|---|---|---|---|---|---|"
    for entry in board.of_network():
        interval = entry.over_seeds(score)
        reach = "" if interval is None else f"{(interval.high - interval.low) / 2:.4f}"
        joined = ["", ""]
        if entry.joined is not None:
            together = entry.joined.mean(score)
            joined = [f"{together:.4f}", f"{together - entry.mean(score):+.4f}"]
        validation = entry.validation(score)
        yield (
            f"| {entry.name} | {entry.mean(score):.4f} | {reach} | {entry.mean('P@1'):.4f} | {' | '.join(joined)} | "
            f"{'' if validation is None else f'{validation:.4f}'} |"
        )


def claims(board: Leaderboard) -> Iterator[str]:
    """Yield a line on each ordering."""
    pairs = {frozenset((pair.first, pair.second)): pair for pair in board.pairs()}
    order = [entry.name for entry in board.of_network()]
    if "proxy_anchor" in order and len(order) > 1:
        rank = order.index("proxy_anchor") + 1
        rival = order[0] if rank > 1 else order[1]
        yield f"proxy_anchor is {rank} of {len(order)}: {_told(pairs[frozenset(('proxy_anchor', rival))])}"
    for name in LAST:
        if name in order:
            yield f"{name} is {order.index(name) + 1} of {len(order)}"
    for better, worse, claim in CLAIMS:
        if better in order and worse in order:
            yield f"{claim}: {_told(pairs[frozenset((better, worse))])}"
    yield f"verdict: {board.verdict()}"
    yield f"validation -> test: {board.correlation()}"


def _told(pair: PairTest) -> str:
    low, high = pair.interval
    return (
        f"{pair.first} over {pair.second} by {pair.difference:.4f} ({low:+.4f} to {high:+.4f}), better in "
        f"{(1 + pair.effect) / 2:.0%} of {pair.count} classes, p = {pair.p_value:.2g} (alone {pair.p_single:.2g})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for board in leaderboards([parser.parse_args().folder]):
        print(f"\n{board.title}: {len(board.runs)} runs\n")
        print("\n".join(table(board)), end="\n\n")
        print("\n".join(f"- {line}" for line in claims(board)))


if __name__ == "__main__":
    main()
