"""Records: the results of a run, one line of a journal each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from vicinal._util.files import write_atomically
from vicinal.data import PROTOCOLS
from vicinal.runs.recipe import method_name, network_name

__all__ = ["Network", "Record", "SearchRecord", "read_searches", "refusal", "search_name"]


Number = Annotated[float, Field(allow_inf_nan=False)]
VERSION: Final = 4
Network = tuple[str, int | None]  # a backbone and the length of the embeddings; None for its features without a head


class Record(BaseModel):
    """Settings, scores and cost of one run.

    Attributes:
        version: Version of this format; records of other versions are rejected.
        key: Hash of everything that defines the run; the name of its folder in a comparison.
        name: Name in tables: the method, or the name of its recipe's file.
        role: "run" for a trained method; "rung" for a trial of a learning rate; "baseline" for a method without
            training.
        status: "failed" runs have an error and no scores.
        error: Error of a failed run in one sentence, and how to see more.
        recipe: All settings, data and protocol included, as `Recipe` dumps them.
        data: Hash of the dataset's content; "" if it is unknown.
        split: Hash of the split.
        selected_on: Scores that selected the reported step: "validation", "test" (a leak) or "last" (no selection).
        distance: Distance between embeddings, "cosine" or "euclidean".
        gallery: Whether queries were searched in a gallery of other items.
        threads: Number of threads of torch.
        same_batches: Whether all losses of the comparison used the same batches, instead of those of their papers.
        demands: Settings from the method's paper that other methods do not use, in words: "1 item per class".
        notes: Notes for readers of the scores, a sentence each: smaller batches, a budget of less than one epoch,
            steps that were not selected on validation.
        tuning_trials: Number of trials that chose the settings; 0 if they were not tuned.
        tuning_images: Number of training images in those trials, in addition to those of the run.
        rates: Learning rates that were tried, and the validation score of each; None for a failed trial.
        validation: Scores on the validation classes: the score that chooses steps is cross-fitted (see `class_curve`),
            the others are those at the chosen step.
        validation_classes: Names of the validation classes.
        validation_queries: Number of scored queries of each validation class.
        validation_per_class: Cross-fitted score of each validation class: at the step, and the learning rate, that the
            other classes choose. None for a class without queries.
        twice_the_budget: Gain of the validation score from twice the budget, and its standard error over classes; None
            if it was not tested.
        class_curve: Score of each validation class at every evaluation; empty with more than 200 classes.
        test: Scores on the test classes.
        classes: Names of the test classes.
        per_class: For P@1, P@R and MAP@R the mean over each test class's queries, in the order of `classes`; None
            where a class has no query that could be scored.
        queries: Number of scored queries of each class, in the order of `classes`.
        steps: Number of steps taken.
        images: Number of training images.
        best_step: Step that is reported.
        curve: Number of images and the validation score that selects steps, at every evaluation.
        seconds: Training time in seconds.
        peak_memory_mib: Peak memory of the process in MiB.
        instances: Statistics of each converged instance of chance-constrained proxies.
        code: SHA-256 of the code that the recipe names and that does not come with vicinal, by its name.
        versions: Versions of Python and of the packages that affect results.
        command: Command that repeats the comparison.
        finished: Time of the end of the run, ISO 8601 in UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[4] = VERSION
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
    validation_classes: tuple[str, ...] = ()
    validation_queries: tuple[int, ...] = ()
    validation_per_class: tuple[Number | None, ...] = ()
    twice_the_budget: tuple[Number, Number] | None = None
    class_curve: tuple[tuple[Number | None, ...], ...] = ()
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
        """Name or path of the data in the recipe; "" for a dataset object without a name."""
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
        """The backbone, and the length of the embeddings: None for its features without a head."""
        return network_name(str(self.recipe["backbone"]), self.recipe.get("backbone_options") or {}), self.recipe["dim"]

    @property
    def score(self) -> str:
        """Name of the validation score that steps were chosen by."""
        return str(self.recipe["training"]["score"])

    @property
    def method(self) -> str:
        """The loss and its additions, independent of its name in tables: "contrastive+memory", "triplet+ccp"."""
        return method_name(self.recipe)

    @property
    def experiment(self) -> str:
        """The conditions that compared runs share: data, protocol, network, seed and fold."""
        backbone, dim = self.network
        fold = "" if self.fold is None else f", fold {self.fold}"
        return f"{self.dataset}, {self.protocol}, {backbone}-{dim}, seed {self.seed}{fold}"


def refusal(error: ValidationError) -> str:
    """Return the reason why something is not a valid record."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


# Results of the searches for settings of a comparison, saved beside its journal.

FOLDER = "tuning"


class SearchRecord(BaseModel):
    """One search for the settings of a method.

    Attributes:
        name: Name of the method in tables.
        backbone: Backbone of the search; None if it was not recorded.
        dim: Dimension of its embeddings.
        score: Name of the score that the search maximised.
        scores: Scores of all completed trials on the validation classes.
        importance: Share of each setting in the variance of these scores; empty with too few trials.
        given: Settings before the search.
        best: Best settings of the search.
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
        """Whether the search used a network; older records do not say which."""
        return self.backbone is None or (self.backbone, self.dim) == network

    def write(self, folder: Path) -> None:
        """Save the record in a comparison's folder."""
        path = folder / FOLDER / f"{search_name(self.name, self.backbone, self.dim)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self.model_dump_json(indent=2) + "\n")


def search_name(name: str, backbone: str | None, dim: int | None) -> str:
    """Return the name of the files of a search; each network has its own search.

    Example:
        >>> search_name("triplet+semi_hard", "convnet", 64), search_name("mine", "my_module:Net", None)
        ('triplet+semi_hard-convnet-64', 'mine-my_module_Net-own')
    """
    text = name.replace(" ", "") + ("" if backbone is None else f"-{backbone}-{'own' if dim is None else dim}")
    return re.sub(r"[^\w.+-]", "_", text)


def read_searches(folders: Sequence[Path]) -> list[SearchRecord]:
    """Read the searches of comparisons, one for each method and network."""
    searches: dict[tuple[str, str | None, int | None], SearchRecord] = {}
    for folder in folders:
        for path in sorted((folder / FOLDER).glob("*.json")):
            try:
                search = SearchRecord.model_validate_json(path.read_bytes())
            except (OSError, ValidationError):  # not a file of vicinal
                continue
            searches.setdefault((search.name, search.backbone, search.dim), search)
    return list(searches.values())
