"""Open anything that vicinal wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vicinal._util.code import Trust
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


def load(path: str | Path, *, allow_code: Sequence[str] = ()) -> Loaded:
    """Open a path: the folder of an embedder, a run, a comparison or an index, a recipe, scores or data.

    Args:
        path: Folder that `Embedder.save`, `vicinal train`, `vicinal compare` or `vicinal index` wrote, a recipe
            (.toml), scores (.json), or anything that `vicinal.data.load` accepts.
        allow_code: Modules or files whose code may be imported if the opened object refers to it.

    Returns:
        An `Embedder`, a `Run`, a `Leaderboard`, an `Index`, a `Recipe`, `Scores` or a `Dataset`.

    Example:
        >>> load("digits")
        Dataset('digits': 1,797 images, 10 classes)
    """
    source, trust = Path(path), Trust.of(allow_code)
    if source.is_dir():
        if is_index(source):
            return Index.open(source, allow_code=allow_code)
        if (source / CONFIG).is_file():
            return Embedder.load(source, allow_code=allow_code)
        if RunFiles(source).record.is_file():
            return Run.open(source, allow_code=allow_code)
        if Journal(source).path.is_file():
            boards = leaderboards([source], allow_code=allow_code)
            if len(boards) > 1:
                raise InputError(
                    f"{source} holds {len(boards)} comparisons; read them with vicinal.leaderboard.leaderboards([...])."
                )
            return boards[0]
    elif source.suffix == ".toml":
        return Recipe.read(source, trust=trust)
    elif source.suffix == ".json":
        text = read_text(source, "scores (.json)")
        with reading(source, "scores (.json)"):
            return Scores.from_json(text)
    return load_data(path, allow_code=(trust | Trust.typed([path])).sources)
