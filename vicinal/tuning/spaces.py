"""Default search spaces: the options of every loss and miner, and other settings worth searching.

Steps are those of a coordinate grid. For multi_similarity, soft_triple and proxy_anchor, steps and ranges are those of
the thesis "Metric learning: a deep dive", Table 15, except that the pooling of centres is a temperature here and a
factor there. The other ranges include the settings from the losses' papers and the optima found by Musgrave et al.,
"A metric learning reality check", 2020, with a margin on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from vicinal.errors import InputError, UnknownName
from vicinal.objectives import without_alias
from vicinal.runs.recipe import Recipe
from vicinal.sampling import compositions

__all__ = ["LOSS_SPACES", "MINER_SPACES", "Choice", "Range", "Space", "flat_space", "search_space", "start_of"]


# Ranges and choices of a search, under the names of a recipe.

POINTS = 9
Scalar = str | int | float | bool | None


@final
@dataclass(frozen=True)
class Range:
    """A range of numbers; integers if both ends are.

    Attributes:
        low: Smallest value.
        high: Largest value.
        log: Whether to draw on a logarithmic scale.
        step: Distance between two points of a grid; nine points by default. Other samplers draw between the points too.

    Example:
        >>> Range(0.0, 1.0, step=0.25).levels()
        (0.0, 0.25, 0.5, 0.75, 1.0)
        >>> Range(0.01, 100.0, log=True).levels()[::2]
        (0.01, 0.1, 1.0, 10.0, 100.0)
    """

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"a range goes from a lower to a higher number; got {self.low} to {self.high}.")
        if self.log and not self.low > 0:
            raise InputError(f"a range over orders of magnitude starts above 0; got {self.low} to {self.high}.")
        if self.step is not None and not self.step > 0:
            raise InputError(f"the step of a range is above 0; got {self.step}.")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{' (log)' if self.log else ''}"

    @property
    def whole(self) -> bool:
        """Whether it holds only integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def levels(self) -> tuple[int | float, ...]:
        """Return the points of a grid, from low to high."""
        if self.step is not None:
            points = self.low + self.step * np.arange(int((self.high - self.low) / self.step + 1e-9) + 1)
        else:
            points = (np.geomspace if self.log else np.linspace)(self.low, self.high, POINTS)
        numbers = [float(f"{point:.12g}") for point in points]  # removes rounding errors of the steps
        return tuple(dict.fromkeys(map(round, numbers))) if self.whole else tuple(numbers)

    def including(self, value: Any) -> Range:
        """Return the range, widened if a value is outside."""
        return replace(self, low=min(self.low, value), high=max(self.high, value))

    def distribution(self) -> BaseDistribution:
        """Return the Optuna distribution."""
        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def suggest(self, trial: Trial, name: str) -> int | float:
        """Return the value that an Optuna trial suggests."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@final
@dataclass(frozen=True)
class Choice:
    """One of several values.

    Attributes:
        values: Values to choose from; at least two.

    Example:
        >>> Choice(("all", "semi_hard")).levels()
        ('all', 'semi_hard')
    """

    values: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        if len(set(self.values)) < 2:
            raise InputError(f"a choice needs at least two values; got {list(self.values)}.")

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))

    def levels(self) -> tuple[Scalar, ...]:
        """Return the points of a grid: all values."""
        return self.values

    def including(self, value: Any) -> Choice:
        """Return the choice, with a value added if it is missing."""
        return self if value in self.values else Choice((*self.values, value))

    def distribution(self) -> BaseDistribution:
        """Return the Optuna distribution."""
        return CategoricalDistribution(self.values)

    def suggest(self, trial: Trial, name: str) -> Scalar:
        """Return the value that an Optuna trial suggests."""
        return trial.suggest_categorical(name, self.values)


Space = Mapping[str, Range | Choice]


def flat_space(tables: Mapping[str, Any]) -> dict[str, Range | Choice]:
    """Return a space from nested tables, as in a TOML file.

    Example:
        >>> flat_space({"dim": [32, 64], "loss_options": {"margin": {"low": 0.0, "high": 1.0}}})
        {'dim': Choice(values=(32, 64)), 'loss_options.margin': Range(low=0.0, high=1.0, log=False, step=None)}
    """
    space: dict[str, Range | Choice] = {}
    wrong: list[str] = []
    for name, entry in tables.items():
        try:
            if isinstance(entry, Range | Choice):
                space[name] = entry
            elif isinstance(entry, list | tuple):
                space[name] = Choice(tuple(entry))
            elif isinstance(entry, Mapping) and {"low", "high"} & set(entry):
                space[name] = Range(**entry)
            elif isinstance(entry, Mapping):
                space |= {f"{name}.{inner}": value for inner, value in flat_space(entry).items()}
            else:
                wrong.append(f"{name} must be {{low = 0.0, high = 1.0}} or a list of values; got {entry!r}")
        except TypeError:
            wrong.append(f"{name} may have low, high, log and step, the first two at least; got {dict(entry)!r}")
        except InputError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise InputError("The search space has errors:\n" + "\n".join(f"  - {text}" for text in wrong))
    return space


MARGIN = Range(0.0, 1.0, step=0.1)
DISTANCE = Range(0.0, 1.5, step=0.1)  # distances on the unit sphere are at most 2
SCALE = Range(2.0, 100.0, log=True, step=2.0)
WIDE_SCALE = Range(1.0, 256.0, log=True)
TEMPERATURE = Range(0.005, 1.0, log=True)

LOSS_SPACES: dict[str, Space] = {
    "arcface": {"margin_degrees": Range(0.0, 60.0, step=5.0), "scale": WIDE_SCALE},
    "binomial_deviance": {"positive_scale": SCALE, "negative_scale": SCALE, "threshold": MARGIN},
    "circle": {"margin": MARGIN, "scale": WIDE_SCALE},
    "contrastive": {"threshold": MARGIN},
    "contrastive_c1": {"threshold": MARGIN},
    "contrastive_c2": {
        "positive_margin": Range(0.0, 0.8, step=0.1),
        "negative_margin": Range(0.1, 1.5, step=0.1),
    },
    "cosface": {"margin": MARGIN, "scale": WIDE_SCALE},
    "cross_entropy": {},
    "fast_ap": {"bins": Range(5, 50, step=5)},
    "lifted_structure": {
        "margin": DISTANCE,
        "positive_scale": Range(0.5, 50.0, log=True),
        "negative_scale": Range(0.5, 100.0, log=True),
    },
    "lmnn": {"push": Range(0.1, 0.9, step=0.1), "margin": DISTANCE},
    "margin": {"boundary": Range(0.3, 1.5, step=0.1), "margin": Range(0.0, 0.8, step=0.1)},
    "mcml": {"scale": Range(0.5, 64.0, log=True)},
    "metric_cross_entropy": {"k": Range(0.05, 0.95, step=0.05), "p": Range(0.1, 1.0, step=0.1)},
    "multi_similarity": {"threshold": MARGIN, "positive_scale": SCALE, "negative_scale": SCALE},
    "n_pair": {"scale": Range(0.1, 64.0, log=True)},
    "nca": {"scale": Range(0.5, 64.0, log=True)},
    "normalised_softmax": {"temperature": TEMPERATURE},
    "nt_xent": {"temperature": TEMPERATURE},
    "proxy_anchor": {"margin": MARGIN, "scale": SCALE},
    "proxy_gram": {"margin": MARGIN, "scale": SCALE, "batch_mean": Choice((False, True))},
    "proxy_nca": {"scale": Range(0.5, 64.0, log=True)},
    "proxy_nca_pp": {"temperature": TEMPERATURE},
    "proxy_repulsion": {"margin": MARGIN, "scale": SCALE},
    "smooth_ap": {"temperature": Range(0.001, 0.3, log=True)},
    "soft_triple": {"margin": MARGIN, "scale": SCALE, "centre_temperature": Range(0.01, 100.0, log=True)},
    "soft_triplet": {"margin": MARGIN, "scale": Range(0.5, 64.0, log=True)},
    "supervised_contrastive": {"temperature": TEMPERATURE},
    "triplet": {"margin": MARGIN, "which": Choice(("all", "semi_hard", "hard"))},
    "weak_metric_cross_entropy": {},
}

MINER_SPACES: dict[str, Space] = {
    "all": {},
    "distance_weighted": {"cutoff": Range(0.1, 0.9, step=0.1), "farthest": Range(1.0, 1.8, step=0.1)},
    "easy_positive": {},
    "hard": {},
    "random": {"positives": Range(1, 4), "negatives": Range(1, 16)},
    "semi_hard": {"margin": MARGIN},
    "valid_triplets": {"margin": MARGIN},
}

# For losses on proxies; several proxies per class make sense if the loss pools them.
PROXY_SPACE: Space = {"proxy_multiplier": Range(1.0, 1000.0, log=True)}
SEVERAL_PROXIES: dict[str, Range] = {"soft_triple": Range(1, 10)}

CCP_SPACE: Space = {
    "ccp.proximal_weight": Range(1e-5, 1e-1, log=True),
    "ccp.proxies_per_class": Range(1, 16, log=True),
}


def search_space(recipe: Recipe, *, classes: int | None = None, spread: float = 10.0) -> dict[str, Range | Choice]:
    """Return the default search space of a recipe: learning rate, composition of batches, options of loss and miner.

    Args:
        recipe: Recipe that the search starts from.
        classes: Number of training classes; if given, the space includes the composition of batches of the same size.
        spread: Factor by which the learning rate may be lower or higher than in the recipe; typical rates depend on
            the network.

    Example:
        >>> list(search_space(Recipe(loss="proxy_anchor"), classes=100))
        ['learning_rate', 'batch', 'loss_options.margin', 'loss_options.scale', 'proxy_multiplier']
    """
    rate = recipe.training.learning_rate
    space: dict[str, Range | Choice] = {"learning_rate": Range(rate / spread, rate * spread, log=True)}
    space |= {} if classes is None else _batches(recipe, classes)
    loss = without_alias(recipe.loss)
    space |= {f"loss_options.{name}": entry for name, entry in LOSS_SPACES.get(loss, {}).items()}
    if recipe.mining is not None:
        space |= {f"mining_options.{name}": entry for name, entry in MINER_SPACES.get(recipe.mining, {}).items()}
    if recipe.ccp is not None:
        space |= CCP_SPACE
    elif recipe.traits.usual == "proxies":
        space |= PROXY_SPACE
        if loss in SEVERAL_PROXIES:
            space["proxies_per_class"] = SEVERAL_PROXIES[loss]
    return space


def _batches(recipe: Recipe, classes: int) -> dict[str, Range | Choice]:
    """Return the choice among compositions of batches with the recipe's number of images, if there are several."""
    if recipe.sampler != "classes":
        return {}
    fewest = 1 if recipe.traits.items_per_class == 1 and recipe.ccp is None else 2
    shapes = compositions(recipe.classes_per_batch * recipe.samples_per_class, fewest, classes)
    written = dict.fromkeys([recipe.batch, *(f"{count}x{items}" for count, items in shapes)])
    return {"batch": Choice(tuple(written))} if len(written) > 1 else {}


def start_of(recipe: Recipe, space: Space) -> dict[str, Any]:
    """Return a recipe's values for the names of a space.

    All names that are not settings, or whose value is None, are reported at once.
    """
    values, wrong = {}, []
    for name in space:
        try:
            values[name] = recipe.value(name)
        except UnknownName as error:
            wrong.append(f"{name}: {error}")
            continue
        entry = space[name]
        if values[name] is None and isinstance(entry, Range):
            wrong.append(f"{name} is None in the recipe: give it a number to start from")
        elif isinstance(entry, Range) and entry.log and not values[name] > 0:
            wrong.append(
                f"{name} is {values[name]:g} in the recipe, which a range over orders of magnitude cannot reach: give "
                "it a number above 0 to start from, or a list of values as its space"
            )
    if wrong:
        raise InputError("The search space does not fit the recipe:\n" + "\n".join(f"  - {text}" for text in wrong))
    return values
