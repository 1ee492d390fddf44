"""vicinal: embeddings in which neighbours mean something.

import vicinal as vc

data = vc.data.glyphs()
split = vc.split(data, "fixed-validation", seed=0)
model = vc.fit(split, loss="proxy_anchor", backbone="convnet", dim=64)
print(vc.evaluate(model, split.test))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal import (
        classical,
        collection,
        data,
        evaluation,
        index,
        leaderboard,
        literature,
        mining,
        neighbours,
        objectives,
        pairs,
        references,
        sampling,
        spaces,
        stats,
    )
    from vicinal._load import load
    from vicinal.collection import show_neighbours
    from vicinal.comparing import compare
    from vicinal.criterion import Criterion, Learned
    from vicinal.data import Dataset, Split, split
    from vicinal.embedder import Embedder
    from vicinal.errors import VicinalError
    from vicinal.evaluation import Scores, evaluate
    from vicinal.index import Index, connect
    from vicinal.leaderboard import Leaderboard
    from vicinal.neighbours import Searcher
    from vicinal.pairs import Geometry
    from vicinal.runs import Recipe, Record, Run, fit, train
    from vicinal.training import Hook, Settings
    from vicinal.tuning import tune
    from vicinal.weights import objective_from_weights, pair_weights, similarity_types, weight_curves

__all__ = [
    "Criterion",
    "Dataset",
    "Embedder",
    "Geometry",
    "Hook",
    "Index",
    "Leaderboard",
    "Learned",
    "Recipe",
    "Record",
    "Run",
    "Scores",
    "Searcher",
    "Settings",
    "Split",
    "VicinalError",
    "classical",
    "collection",
    "compare",
    "connect",
    "data",
    "evaluate",
    "evaluation",
    "fit",
    "index",
    "leaderboard",
    "literature",
    "load",
    "mining",
    "neighbours",
    "objective_from_weights",
    "objectives",
    "pair_weights",
    "pairs",
    "references",
    "sampling",
    "show_neighbours",
    "similarity_types",
    "spaces",
    "split",
    "stats",
    "train",
    "tune",
    "weight_curves",
]
__version__ = "0.1.0"

# Module of each name; a module is imported when one of its names is first used.
_MODULES = {
    "compare": "comparing",
    "Criterion": "criterion",
    "Learned": "criterion",
    "Dataset": "data",
    "Split": "data",
    "split": "data",
    "Embedder": "embedder",
    "VicinalError": "errors",
    "Scores": "evaluation",
    "fit": "runs",
    "train": "runs",
    "Index": "index",
    "connect": "index",
    "load": "_load",
    "show_neighbours": "collection",
    "Searcher": "neighbours",
    "Geometry": "pairs",
    "Recipe": "runs",
    "Leaderboard": "leaderboard",
    "Record": "runs",
    "Run": "runs",
    "evaluate": "evaluation",
    "Hook": "training",
    "Settings": "training",
    "tune": "tuning",
    "objective_from_weights": "weights",
    "pair_weights": "weights",
    "similarity_types": "weights",
    "weight_curves": "weights",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'vicinal' has no attribute {name!r}")
    if name not in _MODULES:
        return importlib.import_module(f"vicinal.{name}")
    value = getattr(importlib.import_module(f"vicinal.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
