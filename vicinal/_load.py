"""Open again whatever vicinal wrote."""

from __future__ import annotations

from pathlib import Path

from vicinal._util.reading import read_text, reading
from vicinal.data import Dataset
from vicinal.data import load as load_data
from vicinal.embedder import Embedder
from vicinal.embedder.folder import CONFIG
from vicinal.errors import InputError
from vicinal.evaluation import Scores
from vicinal.index import Index
from vicinal.index.folder import is_index
from vicinal.leaderboard import Leaderboard, leaderboards
from vicinal.runs import Run, RunFiles
from vicinal.runs.journal import Journal
from vicinal.runs.recipe import Recipe

__all__ = ["load"]

Loaded = Embedder | Run | Leaderboard | Index | Recipe | Scores | Dataset


def load(path: str | Path) -> Loaded:
    """Open what lies at a path: the folder of an embedder, a run, a comparison or an index, a recipe, scores, data.

    Args:
        path: A folder that `Embedder.save`, `vicinal train`, `vicinal compare` or `vicinal index` wrote, a recipe
            (.toml), scores (.json), or what `vicinal.data.load` takes.

    Returns:
        An `Embedder`, a `Run`, a `Leaderboard`, an `Index`, a `Recipe`, `Scores` or a `Dataset`.

    Example:
        >>> load("digits")
        Dataset('digits': 1,797 images, 10 classes)
    """
    place = Path(path)
    if place.is_dir():
        if is_index(place):
            return Index.open(place)
        if (place / CONFIG).is_file():
            return Embedder.load(place)
        if RunFiles(place).record.is_file():
            return Run.open(place)
        if Journal(place).path.is_file():
            boards = leaderboards([place])
            if len(boards) > 1:
                raise InputError(
                    f"{place} holds {len(boards)} questions: read them with vicinal.leaderboard.leaderboards([...])."
                )
            return boards[0]
    elif place.suffix == ".toml":
        return Recipe.read(place)
    elif place.suffix == ".json":
        text = read_text(place, "scores (.json)")
        with reading(place, "scores (.json)"):
            return Scores.from_json(text)
    return load_data(path)
