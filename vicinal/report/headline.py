"""The answer in a headline and a few sentences."""

from __future__ import annotations

from pathlib import Path

from vicinal.phrasing import capitalised, counted, in_words, percent
from vicinal.results import Leaderboard
from vicinal.results.text import network_in_words, scored_classes

__all__ = ["facts", "headline", "lede"]

# What a headline adds, by whether training was worth it.
WORTH = {
    "yes": "; training was worth it",
    "no": "; training was not worth it",
    "unknown": "; it is open whether training was worth it",
    "divided": "; validation and test classes disagree whether training was worth it",
}


def headline(board: Leaderboard) -> str:
    """Who won, or that nobody did."""
    data = Path(board.first.dataset).name
    if not board.entries:
        return f"No run on {data} was done"
    divided = board.gain is not None and board.gain.answer == "divided"
    if board.best_entry in board.baselines and not divided:
        return f"Nothing beats the untrained network on {data}"
    return _winner(board, data) + ("" if board.gain is None else WORTH[board.gain.answer])


def _winner(board: Leaderboard, data: str) -> str:
    found = board.verdict()
    if found is None:
        return f"{capitalised(board.of_network()[0].label)} scores highest on {data}"
    winner = capitalised(in_words(found.winner))
    if found.significant:
        return f"{winner} wins on {data}"
    return f"{winner} leads on {data}, but not every rival is beaten" if found.beaten else f"No clear winner on {data}"


def lede(board: Leaderboard) -> str:
    """The score of the winner, whom it beats and whom not, and what to be careful about."""
    if not board.entries:
        return f"{counted(len(board.failed), 'run')} failed; their errors are below."
    score, entries = board.score, board.of_network()
    first = f"On classes that no training run had seen, {entries[0].label} reaches a {score} of"
    ahead = f", ahead of {entries[1].label} with {percent(entries[1].mean(score))} %" if len(entries) > 1 else ""
    said = [f"{first} {percent(entries[0].mean(score))} %{ahead}."]
    found = board.verdict()
    if found is not None:
        said.append(capitalised(in_words(str(found))))
    if len(board.networks) > 1:
        said.append(
            f"All of this is for {network_in_words(board.main_network)}: the best network by {board.chosen_by} scores."
        )
    if board.first.selected_on == "test":
        said.append("Steps were selected on test, so every score here is too high.")
    if board.failed:
        said.append(f"{counted(len(board.failed), 'run')} failed.")
    return " ".join(said)


def facts(board: Leaderboard) -> str:
    """What was compared."""
    records, networks = board.records, board.networks
    said = [
        counted(len({entry.name for entry in board.entries}), "loss"),
        counted(len({record.seed for record in records}), "seed"),
        network_in_words(networks[0]) if len(networks) == 1 else counted(len(networks), "network"),
        counted(len(records), "run"),
        counted(len(scored_classes(board)), "test class"),
    ]
    return " · ".join(said)
