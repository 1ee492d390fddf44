"""The model card: what an embedder was made from and how well it does, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DESCRIPTION", "Card", "card_markdown", "plain_markdown"]

DESCRIPTION = "An embedder: it maps inputs to vectors whose distances tell how alike the inputs are."
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!~$&])")


def plain_markdown(text: object) -> str:
    r"""Return a text that Markdown shows as it is: names of classes and files are no markup.

    Example:
        >>> print(plain_markdown("<b>a_b</b> | [x](y)"))
        \<b\>a\_b\</b\> \| \[x\](y)
    """
    return SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


@dataclass(frozen=True)
class Card:
    """What a saved embedder says about itself; every part may be left empty.

    Attributes:
        title: What to call it.
        description: A sentence or two: what it is for, and what not.
        data: Facts on the training data by name (dataset, classes, images, hash).
        recipe: The recipe of the training run, as TOML.
        scores: Test scores by name, as fractions; None where a score is undefined.
        trained_on: Names of the classes that it was trained on: nothing is promised or measured on them.
    """

    title: str = ""
    description: str = ""
    data: Mapping[str, str | int | float] = field(default_factory=dict)
    recipe: str = ""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    trained_on: tuple[str, ...] = ()


def card_markdown(card: Card, facts: Mapping[str, Any], same: str = "") -> str:
    """Write a card as Markdown.

    Args:
        card: What the maker says of the embedder.
        facts: What the embedder says of itself: one row each.
        same: When two items count as the same, where that is known.

    Example:
        >>> print(card_markdown(Card(title="Birds", scores={"MAP@R": 0.25}), {"dim": 64}).split("## ")[0])
        ---
        library_name: vicinal
        tags:
        - metric-learning
        - image-retrieval
        ---
        <BLANKLINE>
        # Birds
        <BLANKLINE>
        An embedder: it maps inputs to vectors whose distances tell how alike the inputs are.
        <BLANKLINE>
        <BLANKLINE>
    """
    parts = [
        "---\nlibrary_name: vicinal\ntags:\n- metric-learning\n- image-retrieval\n---",
        f"# {plain_markdown(card.title) or 'vicinal embedder'}",
        plain_markdown(card.description) or DESCRIPTION,
        "## Use",
        "```python\nfrom vicinal.embedder import Embedder\n\n"
        'embedder = Embedder.load("path/to/this/folder")\n'
        'vectors = embedder.encode(["one.jpg", "two.jpg"])\n```',
        "## Model",
        _table("fact", "value", facts),
    ]
    if same:
        parts += ["## Same or different", f"{plain_markdown(same[0].upper() + same[1:])}."]
    if card.scores:
        shown = {name: "undefined" if value is None else f"{value:.4f}" for name, value in card.scores.items()}
        parts += ["## Scores", _table("score", "value", shown)]
    if card.data:
        parts += ["## Training data", _table("fact", "value", card.data)]
    if card.recipe:
        longest = max(map(len, re.findall("`+", card.recipe)), default=0)
        fence = "`" * max(3, longest + 1)  # which nothing in the recipe closes
        parts += ["## Recipe", f"{fence}toml\n{card.recipe.strip()}\n{fence}"]
    return "\n\n".join(parts) + "\n"


def _table(left: str, right: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {left} | {right} |", "| --- | --- |"]
    return "\n".join(lines + [f"| {plain_markdown(name)} | {plain_markdown(value)} |" for name, value in rows.items()])
