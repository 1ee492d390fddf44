"""What the searches for settings of a comparison came to, kept beside its journal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vicinal.atomic import write_atomically
from vicinal.results.record import Number

__all__ = ["SearchRecord", "read_searches"]

FOLDER = "tuning"


class SearchRecord(BaseModel):
    """One search for the settings of a method.

    Attributes:
        name: What tables call the method.
        score: That the search raised.
        scores: On the validation classes, of every trial that came to an end.
        importance: Share of each setting in how much these scores differ; empty where there were too few.
        given: Settings as they were given.
        best: Settings as they were found.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    score: str
    scores: tuple[Number, ...]
    importance: dict[str, Number] = Field(default_factory=dict)
    given: dict[str, Any] = Field(default_factory=dict)
    best: dict[str, Any] = Field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Keep it in a comparison's folder."""
        path = folder / FOLDER / f"{self.name.replace(' ', '')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self.model_dump_json(indent=2) + "\n")


def read_searches(folders: Sequence[Path]) -> list[SearchRecord]:
    """Read the searches of comparisons, one for each method; none where nothing was searched for."""
    found: dict[str, SearchRecord] = {}
    for folder in folders:
        for path in sorted((folder / FOLDER).glob("*.json")):
            try:
                search = SearchRecord.model_validate_json(path.read_bytes())
            except (OSError, ValidationError):  # a file of somebody else's
                continue
            found.setdefault(search.name, search)
    return list(found.values())
