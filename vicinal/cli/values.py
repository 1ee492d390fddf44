"""What people type: name=value pairs, lists with commas, and the recipe that flags make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vicinal.errors import InputError

if TYPE_CHECKING:
    from vicinal.budget import Budget

__all__ = ["asked_budget", "given", "loss_settings", "parse_pairs", "ways_and_shots", "whole_numbers", "words"]


def parse_pairs(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """Read name=value pairs; a value that is a number, true, false or null in JSON is one, the rest are strings.

    Example:
        >>> parse_pairs(["margin=0.1", "which=hard"], "--option")
        {'margin': 0.1, 'which': 'hard'}
    """
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{flag} must be name=value, such as margin=0.2; got {text!r}.")
        try:
            pairs[name] = json.loads(value)
        except (ValueError, RecursionError):
            pairs[name] = value
    return pairs


def given(flags: Mapping[str, Any], options: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the settings that flags name, without those left out, and those of `--option name=value` over them.

    Example:
        >>> given({"dim": 8, "loss": None, "freeze": False}, ["steps=5"])
        {'dim': 8, 'steps': 5}
    """
    named = {name: value for name, value in flags.items() if value is not None and value is not False}
    return named | parse_pairs(options or [], "--option")


def loss_settings(loss: str | None, mining: str | None) -> dict[str, Any]:
    """Return the settings of `--loss` and `--mining`; a loss may bring its miner, as tables and `--losses` write it.

    Example:
        >>> loss_settings("triplet + semi_hard", None)
        {'mining': 'semi_hard', 'loss': 'triplet'}
    """
    if loss is None or "+" not in loss:
        return {"loss": loss, "mining": mining}
    from vicinal.comparing.contestants import described

    own = described(loss.replace(" ", ""))[1]
    if mining is not None and "mining" in own:
        raise InputError(f"--loss {loss} names a miner, and so does --mining {mining}: give one of them.")
    return {"mining": mining, **own}


def asked_budget(text: str | None, changes: Mapping[str, Any]) -> Budget:
    """Return the budget of `--budget`, which nothing else that was typed may contradict.

    Args:
        text: What was typed; None for nothing.
        changes: The settings of a recipe that other flags name.
    """
    from vicinal.budget import Budget, read_budget
    from vicinal.recipe import flat

    if text is None:
        return Budget()
    if {"steps", "seconds"} & flat(changes).keys():
        raise InputError("--budget and --steps say the same, and so do steps and seconds after -o: give one of them.")
    return read_budget(text)


def words(text: str) -> list[str]:
    """Read a list with commas.

    Example:
        >>> words("triplet, circle,")
        ['triplet', 'circle']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def whole_numbers(text: str, flag: str) -> list[int]:
    """Read whole numbers with commas.

    Example:
        >>> whole_numbers("64,128", "--dims")
        [64, 128]
    """
    try:
        return [int(word) for word in words(text)]
    except ValueError:
        raise InputError(f"{flag} must be whole numbers separated by commas, such as 64,128; got {text!r}.") from None


def ways_and_shots(text: str, flag: str) -> list[tuple[int, int]]:
    """Read pairs of numbers with an x between.

    Example:
        >>> ways_and_shots("5x1,20x5", "--few-shot")
        [(5, 1), (20, 5)]
    """
    pairs = [word.lower().split("x") for word in words(text)]
    if not all(len(pair) == 2 and all(number.isdecimal() for number in pair) for pair in pairs):
        raise InputError(f"{flag} must be ways x shots, such as 5x1 or 5x1,5x5; got {text!r}.")
    return [(int(ways), int(shots)) for ways, shots in pairs]
