"""vicinal: embeddings in which neighbours mean something.

import vicinal as vc

data = vc.data.glyphs()
split = vc.split(data, "fixed-validation", seed=0)
model = vc.fit(split, loss="proxy_anchor", backbone="convnet", dim=64)
print(vc.evaluate(model, split.test))
"""

import importlib
from typing import Any

from vicinal import data, evaluation, mining, objectives, pairs, references, sampling, spaces
from vicinal.compare import Comparison, compare
from vicinal.criterion import Criterion, Learned
from vicinal.data.split import Split, split
from vicinal.embedder import Embedder
from vicinal.errors import VicinalError
from vicinal.evaluation import Scores
from vicinal.fit import fit
from vicinal.pairs import Geometry
from vicinal.recipe import Recipe
from vicinal.scoring import evaluate
from vicinal.training.settings import Settings
from vicinal.tune import tune
from vicinal.weights import objective_from_weights, pair_weights, similarity_types, weight_curves

__all__ = [
    "Comparison",
    "Criterion",
    "Embedder",
    "Geometry",
    "Learned",
    "Recipe",
    "Scores",
    "Settings",
    "Split",
    "VicinalError",
    "classical",
    "compare",
    "data",
    "evaluate",
    "evaluation",
    "fit",
    "mining",
    "objective_from_weights",
    "objectives",
    "pair_weights",
    "pairs",
    "references",
    "sampling",
    "similarity_types",
    "spaces",
    "split",
    "tune",
    "weight_curves",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the classical learners when they are first asked for, since most programs never do."""
    if name == "classical":
        return importlib.import_module("vicinal.classical")
    raise AttributeError(f"module 'vicinal' has no attribute {name!r}")
