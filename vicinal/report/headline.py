"""The answer in a headline and a few sentences."""

from __future__ import annotations

from pathlib import Path

from vicinal.report.comparison import Comparison
from vicinal.report.evidence import evidence
from vicinal.report.words import counted, listed, network, percent

__all__ = ["facts", "headline", "lede"]


def headline(comparison: Comparison) -> str:
    """Who won, or that nobody did."""
    data = Path(comparison.first.dataset).name
    if not comparison.entries:
        return f"No run on {data} was done"
    best = comparison.losses[0].label
    found = evidence(comparison)
    if found is None:
        return f"{_capital(best)} scores highest on {data}"
    if found.verdict.significant:
        return f"{_capital(found.verdict.winner)} wins on {data}"
    if found.verdict.beaten:
        return f"{_capital(found.verdict.winner)} leads on {data}, but not every rival is beaten"
    return f"No clear winner on {data}"


def lede(comparison: Comparison) -> str:
    """The score of the winner, whom it beats and whom not, and what to be careful about."""
    if not comparison.entries:
        return f"{counted(len(comparison.failed), 'run')} failed; their errors are below."
    metric, entries = comparison.metric, comparison.losses
    first = f"On classes that no training run had seen, {entries[0].label} reaches a {metric} of"
    ahead = f", ahead of {entries[1].label} with {percent(entries[1].mean(metric))} %" if len(entries) > 1 else ""
    said = [f"{first} {percent(entries[0].mean(metric))} %{ahead}."]
    found = evidence(comparison)
    if found is not None and found.verdict.undecided:
        beaten, rest = list(found.verdict.beaten), list(found.verdict.undecided)
        over = f"Over {counted(found.pairs[0].count, 'test class', 'test classes')}" + (
            f" and {counted(found.pairs[0].seeds, 'seed')}" if found.pairs[0].seeds > 1 else ""
        )
        told = f"{found.verdict.winner} cannot be told from {listed(rest)}"
        said.append(f"{over}, {told}." if not beaten else f"{over}, {told}; it beats {listed(beaten)}.")
    elif found is not None:
        p = max(pair.p_value for pair in found.pairs if pair.first == found.verdict.winner)
        others = "every other loss" if len(entries) > 2 else entries[1].label
        said.append(f"It beats {others} (p {'< 0.001' if p < 0.001 else f'at most {p:.2g}'}, Holm-corrected).")
    if found is not None:
        said += found.verdict.caveats
    if len(comparison.networks) > 1:
        chosen = "validation" if comparison.losses[0].validation(metric) is not None else "test"
        said.append(f"All of this is for {network(*comparison.main_network)}: the best network by {chosen} scores.")
    if comparison.first.selected_on == "test":
        said.append("Steps were selected on test, so every score here is too high.")
    if comparison.failed:
        said.append(f"{counted(len(comparison.failed), 'run')} failed.")
    return " ".join(said)


def facts(comparison: Comparison) -> str:
    """What was compared."""
    records, networks = comparison.records, comparison.networks
    said = [
        counted(len({entry.name for entry in comparison.entries}), "loss", "losses"),
        counted(len({record.seed for record in records}), "seed"),
        network(*networks[0]) if len(networks) == 1 else counted(len(networks), "network"),
        counted(len(records), "run"),
        counted(len(comparison.first.classes), "test class", "test classes"),
    ]
    return " · ".join(said)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
