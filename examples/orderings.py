"""Which orderings of the papers hold in a comparison, with differences, intervals and p-values.

    python examples/orderings.py runs/cub

The folder is one that `vicinal compare` wrote. Every pair of losses is tested on the same test classes and seeds, and
p-values are corrected for the number of pairs (Holm).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vicinal.report.comparison import Comparison, Entry, read_comparisons
from vicinal.report.evidence import correlation_of, evidence
from vicinal.report.summary import class_means, class_queries, lines
from vicinal.statistics import PairTest, compare_pairs

# What is said to be better, and than what; the names are those of `vicinal compare --losses`.
CLAIMS = [
    ("multi similarity + valid triplets", "multi similarity", "RAW + VTHM over RAW"),
    ("multi similarity", "binomial deviance", "RAW over binomial deviance"),
]
LAST = ("n pair", "triplet + semi hard")


def leaderboard(comparison: Comparison) -> Iterator[str]:
    """Yield a Markdown table of all losses: the mean of the folds' models, and the models joined."""
    joined = {entry.label: entry for entry in comparison.joined}
    yield "| loss | MAP@R | ± seeds | P@1 | joined MAP@R | joined - separate | classes gained | p | validation MAP@R |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for line in lines(comparison, comparison.losses):
        entry = line.entry
        reach = "" if line.over_seeds is None else f"{(line.over_seeds.high - line.over_seeds.low) / 2:.4f}"
        cells = ["", "", "", ""]
        if entry.label in joined:
            test = joined_over_separate(entry, joined[entry.label], comparison.metric)
            gain = test.difference if test.first == "joined" else -test.difference
            won = (1 + test.effect) / 2 if test.first == "joined" else (1 - test.effect) / 2
            cells = [f"{joined[entry.label].mean('MAP@R'):.4f}", f"{gain:+.4f}", f"{won:.0%}", f"{test.p_single:.2g}"]
        validation = entry.validation(comparison.metric)
        yield (
            f"| {entry.label} | {line.mean:.4f} | {reach} | {entry.mean('P@1'):.4f} | {' | '.join(cells)} | "
            f"{'' if validation is None else f'{validation:.4f}'} |"
        )


def joined_over_separate(separate: Entry, joined: Entry, metric: str) -> PairTest:
    """Test the joined models of a loss against its separate ones, class by class."""
    scores = {
        name: means[None]
        for name, entry in (("separate", separate), ("joined", joined))
        if (means := class_means(entry, metric)) is not None
    }
    known = np.isfinite(np.concatenate(list(scores.values()))).all(axis=0)
    queries = class_queries(separate, len(known))[known]
    return compare_pairs({name: array[:, known] for name, array in scores.items()}, queries=queries)[0]


def claims(comparison: Comparison) -> Iterator[str]:
    """Yield a line on each ordering."""
    found = evidence(comparison)
    if found is None:
        return
    pairs = {frozenset((pair.first, pair.second)): pair for pair in found.pairs}
    order = [entry.label for entry in comparison.losses]
    if "proxy anchor" in order:
        rank = order.index("proxy anchor") + 1
        rival = order[0] if rank > 1 else order[1]
        yield f"proxy anchor is {rank} of {len(order)}: {_told(pairs[frozenset(('proxy anchor', rival))])}"
    for name in LAST:
        if name in order:
            yield f"{name} is {order.index(name) + 1} of {len(order)}"
    for better, worse, claim in CLAIMS:
        if better in order and worse in order:
            yield f"{claim}: {_told(pairs[frozenset((better, worse))])}"
    yield f"verdict: {found.verdict.winner} beats {', '.join(found.verdict.beaten) or 'none'}; not told from "
    yield f"  {', '.join(found.verdict.undecided) or 'none'}"


def _told(pair: PairTest) -> str:
    low, high = pair.interval
    return (
        f"{pair.first} over {pair.second} by {pair.difference:.4f} ({low:+.4f} to {high:+.4f}), better in "
        f"{(1 + pair.effect) / 2:.0%} of {pair.count} classes, p = {pair.p_value:.2g} (alone {pair.p_single:.2g})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for comparison in read_comparisons([parser.parse_args().folder]):
        print(f"\n{comparison.title}: {len(comparison.records)} trials\n")
        print("\n".join(leaderboard(comparison)), end="\n\n")
        print("\n".join(f"- {line}" if not line.startswith(" ") else line for line in claims(comparison)))
        print(f"- validation -> test: {correlation_of(comparison)}")


if __name__ == "__main__":
    main()
