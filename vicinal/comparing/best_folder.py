"""`best/`: the embedder to use, in the comparison's folder, whole at every moment."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vicinal.embedder.card import DESCRIPTION
from vicinal.embedder.folder import FORMER_BEST
from vicinal.results import Journal, Leaderboard
from vicinal.results.text import best_in_words

__all__ = ["heal_best", "keep_best"]


def keep_best(board: Leaderboard, folder: Path) -> None:
    """Save the embedder to use in the comparison's folder.

    The former one is put aside before the new one takes its name, and removed after that. Killed in between, a reader
    of the comparison's folder finds the one put aside, which `heal_best` puts back.
    """
    best, partial, former = Journal(folder).best, folder / ".best.partial", folder / FORMER_BEST
    embedder = board.best.embedder()
    said = [DESCRIPTION, f"To use: {best_in_words(board)}", *([] if board.gain is None else [str(board.gain)])]
    embedder.card = replace(embedder.card, description=" ".join(said))
    shutil.rmtree(partial, ignore_errors=True)
    embedder.save(partial)
    heal_best(folder)
    with suppress(FileNotFoundError):  # of the first call
        best.rename(former)
    partial.rename(best)
    shutil.rmtree(former, ignore_errors=True)


def heal_best(folder: Path) -> None:
    """Finish what a call that was killed while it kept the best embedder has left."""
    best, former = Journal(folder).best, folder / FORMER_BEST
    if best.is_dir():
        shutil.rmtree(former, ignore_errors=True)
    elif former.is_dir():
        former.rename(best)
