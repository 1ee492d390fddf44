"""What the searches for settings of a comparison came to, kept beside its journal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vicinal.atomic import write_atomically
from vicinal.results.record import Network, Number

__all__ = ["SearchRecord", "read_searches", "search_name"]

FOLDER = "tuning"


class SearchRecord(BaseModel):
    """One search for the settings of a method.

    Attributes:
        name: What tables call the method.
        backbone: Of the network that was searched with; None where that was not kept.
        dim: Of its embeddings.
        score: That the search raised.
        scores: On the validation classes, of every trial that came to an end.
        importance: Share of each setting in how much these scores differ; empty where there were too few.
        given: Settings as they were given.
        best: Settings as they were found.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    backbone: str | None = None
    dim: int | None = None
    score: str
    scores: tuple[Number, ...]
    importance: dict[str, Number] = Field(default_factory=dict)
    given: dict[str, Any] = Field(default_factory=dict)
    best: dict[str, Any] = Field(default_factory=dict)

    def is_of(self, network: Network) -> bool:
        """Whether it was made with a network; earlier ones do not say with which."""
        return self.backbone is None or (self.backbone, self.dim) == network

    def write(self, folder: Path) -> None:
        """Keep it in a comparison's folder."""
        path = folder / FOLDER / f"{search_name(self.name, self.backbone, self.dim)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self.model_dump_json(indent=2) + "\n")


def search_name(name: str, backbone: str | None, dim: int | None) -> str:
    """Return what the files of a search are called: settings are searched for with each network apart.

    Example:
        >>> search_name("triplet + semi_hard", "convnet", 64), search_name("mine", "my_module:Net", None)
        ('triplet+semi_hard-convnet-64', 'mine-my_module_Net-own')
    """
    text = name.replace(" ", "") + ("" if backbone is None else f"-{backbone}-{'own' if dim is None else dim}")
    return re.sub(r"[^\w.+-]", "_", text)


def read_searches(folders: Sequence[Path]) -> list[SearchRecord]:
    """Read the searches of comparisons, one for each method and network; none where nothing was searched for."""
    found: dict[tuple[str, str | None, int | None], SearchRecord] = {}
    for folder in folders:
        for path in sorted((folder / FOLDER).glob("*.json")):
            try:
                search = SearchRecord.model_validate_json(path.read_bytes())
            except (OSError, ValidationError):  # a file of somebody else's
                continue
            found.setdefault((search.name, search.backbone, search.dim), search)
    return list(found.values())
