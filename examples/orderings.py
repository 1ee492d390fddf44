"""Which orderings of the papers hold in a comparison, with differences, intervals and p-values.

    python examples/orderings.py runs/cub

The folder is one that `vicinal compare` wrote. Every pair of losses is tested on the test classes, seeds and folds that
the two share, and p-values are corrected for the number of pairs (Holm). Where there are several networks or
dimensions, those of each loss are compared as well.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from vicinal.leaderboard import Entry, Leaderboard, leaderboards
from vicinal.leaderboard.entry import shared_scores
from vicinal.runs.record import Network
from vicinal.stats import PairTest, compare_pairs

# What is said to be better, and than what; the names are those of `vicinal compare --losses`.
CLAIMS = [
    ("multi_similarity+valid_triplets", "multi_similarity", "RAW + VTHM over RAW"),
    ("multi_similarity", "binomial_deviance", "RAW over binomial deviance"),
    # The recipes pair-weighting/losses.
    ("raw-vthm", "raw", "RAW + VTHM over RAW"),
    ("raw-vthm", "vthm", "RAW + VTHM over VTHM alone"),
    ("raw-vthm", "raw-semi_hard", "VTHM over semi-hard mining"),
    ("raw-vthm", "raw-distance_weighted", "VTHM over distance-weighted sampling"),
    ("raw-vthm", "binomial-vthm", "RAW over binomial deviance, both with VTHM"),
    ("raw", "binomial", "RAW over binomial deviance"),
]
FIRST = ("proxy_anchor", "raw-vthm")
LAST = ("n_pair", "triplet+semi_hard")


def leaderboard(board: Leaderboard, network: Network) -> Iterator[str]:
    """Yield a Markdown table of the losses with a network: the mean of the folds' models, and the models joined."""
    score = board.score
    yield f"| loss | {score} | ± seeds | P@1 | joined | joined - separate | classes gained | p | validation |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for entry in board.of_network(network):
        over_seeds, validation = entry.over_seeds(score), entry.validation(score)
        reach = "" if over_seeds is None else f"{(over_seeds.high - over_seeds.low) / 2:.4f}"
        cells = ["", "", "", ""]
        if entry.joined is not None:
            cells = [f"{entry.joined.mean(score):.4f}", *joined_over_separate(entry, entry.joined, score)]
        yield (
            f"| {entry.label} | {entry.mean(score):.4f} | {reach} | {entry.mean('P@1'):.4f} | {' | '.join(cells)} | "
            f"{'' if validation is None else f'{validation:.4f}'} |"
        )


def networks(board: Leaderboard) -> Iterator[str]:
    """Yield a Markdown table of every loss with every network, and what separates it from the best of that loss."""
    score = board.score
    yield f"| loss | network | {score} | P@1 | behind the best of the loss |"
    yield "|---|---|---|---|---|"
    for name in dict.fromkeys(entry.name for entry in board.entries):
        entries = sorted((entry for entry in board.entries if entry.name == name), key=lambda entry: -entry.mean(score))
        for place, entry in enumerate(entries):
            behind = _behind(entries[0], entry, score) if place else ""
            (backbone, dim), means = entry.network, f"{entry.mean(score):.4f} | {entry.mean('P@1'):.4f}"
            yield f"| {entry.label} | {backbone}, {dim}-D | {means} | {behind} |"


def _behind(best: Entry, entry: Entry, score: str) -> str:
    shared = shared_scores([best, entry], score)
    if shared is None:
        return "they share no seed"
    (test,) = compare_pairs(dict(zip(("best", "other"), shared.values, strict=True)), queries=shared.queries)
    low, high = test.interval
    return f"{test.difference:.4f} ({low:+.4f} to {high:+.4f}), p = {test.p_single:.2g}"


def joined_over_separate(separate: Entry, joined: Entry, score: str) -> tuple[str, str, str]:
    """Test the joined models of a loss against its separate ones, class by class: the gain, classes gained, and p."""
    both = {"separate": shared_scores([separate], score), "joined": shared_scores([joined], score)}
    known = {name: found for name, found in both.items() if found is not None}
    if len(known) < 2:
        return "", "", ""
    means = {name: found.values[0].mean(axis=0) for name, found in known.items()}
    (test,) = compare_pairs(means, queries=known["joined"].queries)
    sign = 1 if test.first == "joined" else -1
    return f"{sign * test.difference:+.4f}", f"{(1 + sign * test.effect) / 2:.0%}", f"{test.p_single:.2g}"


def claims(board: Leaderboard, network: Network) -> Iterator[str]:
    """Yield a line on each ordering, with one network."""
    pairs = {frozenset((pair.first, pair.second)): pair for pair in board.pairs(network)}
    order = [entry.name for entry in board.of_network(network)]
    for name in FIRST:
        if name in order and len(order) > 1:
            rank = order.index(name) + 1
            pair = pairs.get(frozenset((name, order[0] if rank > 1 else order[1])))
            yield f"{name} is {rank} of {len(order)}: {_told(pair)}"
    for name in LAST:
        if name in order:
            yield f"{name} is {order.index(name) + 1} of {len(order)}"
    for better, worse, claim in CLAIMS:
        if better in order and worse in order:
            yield f"{claim}: {_told(pairs.get(frozenset((better, worse))))}"
    yield f"verdict: {board.verdict(network)}"
    yield f"validation -> test: {board.correlation(network) or 'too few losses to tell'}"


def _told(pair: PairTest | None) -> str:
    if pair is None:
        return "they share no seed"
    low, high = pair.interval
    return (
        f"{pair.first} over {pair.second} by {pair.difference:.4f} ({low:+.4f} to {high:+.4f}), better in "
        f"{(1 + pair.effect) / 2:.0%} of {pair.basis}, p = {pair.p_value:.2g} (alone {pair.p_single:.2g})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for board in leaderboards([parser.parse_args().folder]):
        print(f"\n{board.title}: {len(board.records)} runs")
        for network in board.networks:
            backbone, dim = network
            print(f"\n{backbone}, {dim}-D\n")
            print("\n".join(leaderboard(board, network)), end="\n\n")
            print("\n".join(f"- {line}" for line in claims(board, network)))
        if len(board.networks) > 1:
            print("\n" + "\n".join(networks(board)))


if __name__ == "__main__":
    main()
