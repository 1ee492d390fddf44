"""What a search may vary: ranges and choices under the names of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from vicinal.errors import InputError

__all__ = ["Choice", "Range", "Space", "flat_space"]

POINTS = 9
Scalar = str | int | float | bool | None


@final
@dataclass(frozen=True)
class Range:
    """All numbers from one to another; whole numbers where both ends are.

    Attributes:
        low: The smallest.
        high: The largest.
        log: Whether to draw evenly over the orders of magnitude instead of the numbers.
        step: Between two points of a grid; nine points without it. Other samplers draw between the points, too.

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
        """Whether it holds whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def levels(self) -> tuple[int | float, ...]:
        """The points of a grid, from low to high."""
        if self.step is not None:
            points = self.low + self.step * np.arange(int((self.high - self.low) / self.step + 1e-9) + 1)
        else:
            points = (np.geomspace if self.log else np.linspace)(self.low, self.high, POINTS)
        numbers = [float(f"{point:.12g}") for point in points]  # without the dust of adding steps
        return tuple(dict.fromkeys(map(round, numbers))) if self.whole else tuple(numbers)

    def including(self, value: Any) -> Range:
        """The same range, widened where a value lies outside."""
        return replace(self, low=min(self.low, value), high=max(self.high, value))

    def distribution(self) -> BaseDistribution:
        """As Optuna has it."""
        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def suggest(self, trial: Trial, name: str) -> int | float:
        """Ask a trial of Optuna for its value."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@final
@dataclass(frozen=True)
class Choice:
    """One of several values.

    Attributes:
        values: At least two.

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
        """The points of a grid: all of them."""
        return self.values

    def including(self, value: Any) -> Choice:
        """The same choice with one value more, where it is not there."""
        return self if value in self.values else Choice((*self.values, value))

    def distribution(self) -> BaseDistribution:
        """As Optuna has it."""
        return CategoricalDistribution(self.values)

    def suggest(self, trial: Trial, name: str) -> Scalar:
        """Ask a trial of Optuna for its value."""
        return trial.suggest_categorical(name, self.values)


Space = Mapping[str, Range | Choice]


def flat_space(tables: Mapping[str, Any]) -> dict[str, Range | Choice]:
    """Make a space from nested tables, as a TOML file has them.

    Example:
        >>> flat_space({"dim": [32, 64], "loss_options": {"margin": {"low": 0.0, "high": 1.0}}})
        {'dim': Choice(values=(32, 64)), 'loss_options.margin': Range(low=0.0, high=1.0, log=False, step=None)}
    """
    found: dict[str, Range | Choice] = {}
    wrong: list[str] = []
    for name, entry in tables.items():
        try:
            if isinstance(entry, Range | Choice):
                found[name] = entry
            elif isinstance(entry, list | tuple):
                found[name] = Choice(tuple(entry))
            elif isinstance(entry, Mapping) and {"low", "high"} & set(entry):
                found[name] = Range(**entry)
            elif isinstance(entry, Mapping):
                found |= {f"{name}.{inner}": value for inner, value in flat_space(entry).items()}
            else:
                wrong.append(f"{name} must be {{low = 0.0, high = 1.0}} or a list of values; got {entry!r}")
        except TypeError:
            wrong.append(f"{name} may have low, high, log and step, the first two at least; got {dict(entry)!r}")
        except InputError as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise InputError("The search space has mistakes:\n" + "\n".join(f"  - {text}" for text in wrong))
    return found
