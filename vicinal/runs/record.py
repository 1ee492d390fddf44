"""Records: everything that one run produced, one line of a journal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vicinal._util.files import write_atomically
from vicinal.data import PROTOCOLS
from vicinal.runs.recipe import method_name

__all__ = ["Network", "Record", "SearchRecord", "read_searches", "refusal", "search_name"]


Number = Annotated[float, Field(allow_inf_nan=False)]
VERSION: Final = 3
Network = tuple[str, int | None]  # a backbone and the length of the embeddings; None for its features as they are


class Record(BaseModel):
    """One run: what was run, how it measured, what it scored, and what it cost.

    Attributes:
        version: Version of this layout; a record of another one is refused.
        key: Hash of all that defines the run; names its folder in a comparison.
        name: What tables call it: the method, or the name of its recipe's file.
        role: "run" for a trained method; "rung" for one that was tried for its learning rate alone; "baseline" for what
            costs no training.
        status: "failed" runs have an error and no scores.
        error: One sentence, and how to see more.
        recipe: All settings, data and protocol included, as `Recipe` dumps them.
        data: Hash of the dataset's content; "" where it is not known.
        split: Hash of the split.
        selected_on: What chose the step that is reported: "validation", "test" (which leaks) or "last" (no choice).
        distance: How embeddings were compared, "cosine" or "euclidean".
        gallery: Whether queries were searched in a gallery of other items.
        threads: That torch computed with.
        same_batches: Whether batches were composed alike for all losses of the comparison, and not as each has them.
        demands: What the method asked for that others did not, in words: "1 item per class".
        notes: What a reader of the scores has to know, a sentence each: batches that shrank, a budget that trains next
            to nothing, steps that nothing chose.
        tuning_trials: How many trials chose the settings; 0 for settings as given.
        tuning_images: Seen in those trials, beyond the images of the run.
        rates: The learning rates that were tried before, and the validation score of each; None for one that failed.
        validation: Scores on the validation classes at the chosen step.
        test: Scores on the test classes.
        classes: Names of the test classes.
        per_class: For P@1, P@R and MAP@R the mean over each test class's queries, in the order of `classes`; None
            where a class has no query that could be scored.
        queries: How many were scored of each class, in the order of `classes`.
        steps: Taken.
        images: Seen in training.
        best_step: The one reported.
        curve: Images seen and the validation score that steps are chosen by, at every evaluation.
        seconds: Training time.
        peak_memory_mib: Of the process.
        instances: What is known of each converged instance of chance-constrained proxies.
        code: SHA-256 of the code that the recipe names and that does not come with vicinal, by its name.
        versions: Of everything that matters.
        command: What repeats the comparison.
        finished: When, as ISO 8601 in UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[3] = VERSION
    key: str
    name: str
    role: Literal["run", "rung", "baseline"] = "run"
    status: Literal["done", "failed"]
    error: str | None = None
    recipe: dict[str, Any]
    data: str = ""
    split: str = ""
    selected_on: Literal["validation", "test", "last"] = "validation"
    distance: Literal["cosine", "euclidean"] = "cosine"
    gallery: bool = False
    threads: int = 0
    same_batches: bool = False
    demands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tuning_trials: int = 0
    tuning_images: int = 0
    rates: dict[float, Number | None] = Field(default_factory=dict)
    validation: dict[str, Number] = Field(default_factory=dict)
    test: dict[str, Number] = Field(default_factory=dict)
    classes: tuple[str, ...] = ()
    per_class: dict[str, tuple[Number | None, ...]] = Field(default_factory=dict)
    queries: tuple[int, ...] = ()
    steps: int = 0
    images: int = 0
    best_step: int = 0
    curve: tuple[tuple[int, Number], ...] = ()
    seconds: float = 0.0
    peak_memory_mib: float = 0.0
    instances: tuple[dict[str, float | None], ...] = ()
    code: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    command: str = ""
    finished: str = ""

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, values: Any) -> Any:
        version = values.get("version", VERSION) if isinstance(values, dict) else VERSION
        if version != VERSION:
            raise ValueError(f"it has version {version!r}, and this vicinal reads version {VERSION}")
        return values

    @property
    def dataset(self) -> str:
        """Name or path of the data, as the recipe has it; "" where the data was given as an object without a name."""
        return str(self.recipe.get("data") or "")

    @property
    def protocol(self) -> str:
        """Name of the protocol that divided the classes."""
        return str(self.recipe["protocol"])

    @property
    def seed(self) -> int:
        """Seed of the split and of training."""
        return int(self.recipe["training"]["seed"])

    @property
    def fold(self) -> int | None:
        """Number of the fold that validated; None for a protocol without folds, and for folds that were joined."""
        fold: int | None = self.recipe.get("fold")
        return fold

    @property
    def folds(self) -> int | None:
        """Number of folds, the recipe's or the protocol's own; None for a protocol without."""
        return self.recipe.get("folds") or PROTOCOLS.get(self.protocol)

    @property
    def network(self) -> Network:
        """The backbone, and the length of the embeddings: None for its features as they are."""
        return str(self.recipe["backbone"]), self.recipe["dim"]

    @property
    def score(self) -> str:
        """Name of the validation score that steps were chosen by."""
        return str(self.recipe["training"]["score"])

    @property
    def method(self) -> str:
        """The loss and what it was used with, whatever tables call it: "contrastive + memory", "triplet + ccp"."""
        return method_name(self.recipe)

    @property
    def experiment(self) -> str:
        """The conditions that compared runs share: data, protocol, network, seed and fold."""
        backbone, dim = self.network
        place = "" if self.fold is None else f", fold {self.fold}"
        return f"{self.dataset}, {self.protocol}, {backbone}-{dim}, seed {self.seed}{place}"


def refusal(error: ValidationError) -> str:
    """Say in words why something is not a record that this vicinal reads."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


# What the searches for settings of a comparison came to, kept beside its journal.

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
