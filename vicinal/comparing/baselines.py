"""Baselines of every comparison, without training: the untrained network, its principal components, and chance."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from vicinal._util.text import counted
from vicinal.comparing.contestants import DEMANDS, OF_THE_LOSS, Contestant
from vicinal.comparing.grid import RunContestant
from vicinal.comparing.plan import Splits
from vicinal.comparing.progress import Shown
from vicinal.data import Dataset, Split
from vicinal.embedder import Embedder, Head
from vicinal.embedder.head import PrincipalAxes, principal_axes, principal_head
from vicinal.errors import Interrupted
from vicinal.evaluation import Scores, chance_scores
from vicinal.leaderboard.gain import CHANCE, UNTRAINED, reduced
from vicinal.runs import Journal, Record
from vicinal.runs._train import assess
from vicinal.runs.build import build_embedder
from vicinal.runs.journal import OpenJournal
from vicinal.runs.recipe import SCORES, Recipe
from vicinal.runs.run import queries_by_class, recall_at, scores_by_class
from vicinal.runs.validation import distractors_of, recorded, validation_scores
from vicinal.training.frozen import FrozenEmbedder, Trainee

__all__ = ["UntrainedNetworks", "run_baselines"]

# Settings that do not affect an untrained network.
OF_TRAINING = (*OF_THE_LOSS, *DEMANDS, "training", "head_start", "images", "copies")
PART = 1000  # items embedded between two progress updates
PCA_ITEMS = 20_000  # items, in whole training classes, beyond which the relevant axes no longer change


def run_baselines(
    grid: Sequence[Contestant],
    run: RunContestant,
    networks: UntrainedNetworks,
    splits: Splits,
    journal: OpenJournal,
    *,
    retry_failed: bool,
    progress: bool,
) -> list[str]:
    """Score the baselines that a comparison's journal lacks, each as a separate run with the role "baseline".

    For every backbone, seed and fold: the features of the network (pretrained, or randomly initialised by the seed),
    the same reduced to every compared dimension by PCA on the training classes, and chance.

    Args:
        grid: Runs of the comparison.
        run: Runner of the comparison, which holds data and folder.
        networks: Untrained networks.
        splits: Splits of all seeds and folds.
        journal: Journal of the comparison.
        retry_failed: Whether to retry baselines that failed before.
        progress: Whether to show progress.

    Returns:
        The keys of all baselines.
    """
    wanted = {run.key(baseline): baseline for contestant in grid for baseline in _baselines(contestant)}
    existing = {record.key: record for record in journal.records if record.status == "done" or not retry_failed}
    missing = [baseline for key, baseline in wanted.items() if key not in existing]
    with Shown("baselines", len(wanted), progress, completed=len(wanted) - len(missing)) as shown:
        networks.note = shown.note
        for baseline in missing:
            shown.started(baseline)
            untrained = existing.get(run.key(_named(baseline, UNTRAINED, None)))
            record = _record(baseline, run, networks, splits, untrained)
            if record is not None:
                journal.append(record)
                existing[record.key] = record
            shown.ended(baseline, record)
    return list(wanted)


def other_networks(grid: Sequence[Contestant], names: Sequence[str]) -> list[Contestant]:
    """Return contestants that stand for other networks, which are scored without training.

    Args:
        grid: Runs of the comparison.
        names: Pretrained networks.
    """
    return [
        Contestant(UNTRAINED, contestant.recipe.changed(backbone=name), role="baseline")
        for name in names
        for contestant in grid
    ]


def _baselines(contestant: Contestant) -> list[Contestant]:
    """Return the baselines of a contestant."""
    dim = contestant.recipe.dim
    if contestant.role == "baseline":  # of another network: chance is the same
        return [_named(contestant, UNTRAINED, None)]
    shared = [_named(contestant, UNTRAINED, None), _named(contestant, CHANCE, None)]
    return shared if dim is None else [*shared, _named(contestant, reduced(dim), dim)]


def _named(contestant: Contestant, name: str, dim: int | None) -> Contestant:
    recipe = contestant.recipe
    values = {setting: value for setting, value in recipe.model_dump().items() if setting not in OF_TRAINING}
    values |= {"dim": dim, "seed": recipe.training.seed, "score": recipe.training.score}
    return Contestant(name, Recipe.of(values, recipe.trust), role="baseline")


def _record(
    baseline: Contestant, run: RunContestant, networks: UntrainedNetworks, splits: Splits, untrained: Record | None
) -> Record | None:
    """Return the record of a baseline; None for more axes than the network has, or for chance without a network."""
    try:
        if baseline.name == CHANCE:
            if untrained is None or untrained.status == "failed":
                return None
            return _chance(baseline, run, splits.of(baseline.recipe), untrained)
        network = networks.of(baseline.recipe)
        dim = baseline.recipe.dim
        if dim is not None and dim >= network.length:
            return None
        make = network.as_it_is if dim is None else lambda split: network.reduced(split, dim)
        return assess(
            baseline.recipe,
            make,
            data=run.data,
            folder=Journal(run.out).run_folder(run.key(baseline)),
            keep_model=run.keep_models,
            facts={**run.facts(baseline), **_cross_validated(baseline.recipe, make, splits)},
        ).record
    except Interrupted:
        raise
    except Exception as error:  # the others continue in any case
        return run.failed(baseline, error)


def _cross_validated(
    recipe: Recipe, make: Callable[[Split], tuple[Embedder, Trainee]], splits: Splits
) -> dict[str, Any]:
    """Return the fields of a record that cross-validation determines; empty for other protocols."""
    if not recipe.cross_validated:
        return {}
    names, queries, by_class, means = list[str](), list[int](), list[float | None](), list[dict[str, float]]()
    for of_fold in recipe.by_fold():
        split = splits.of(of_fold).without_test()
        if split.validation is None:
            return {}
        model = make(split)[1]
        validated = validation_scores(model, split.validation, recipe, distractors_of(split, recipe, cheap=True))
        names += split.validation.class_names
        queries += validated.queries
        by_class += validated.by_class
        means.append(validated.scores)
    sizes = [len(splits.of(of_fold).validation or ()) for of_fold in recipe.by_fold()]
    scores = {name: float(np.average([mean[name] for mean in means], weights=sizes)) for name in SCORES}
    fields = recorded(names, queries, [by_class])
    score = recipe.training.score
    if fields:
        scores[score] = float(np.average(fields["validation_per_class"], weights=fields["validation_queries"]))
    return {"selected_on": "validation", "validation": scores, **fields, "class_curve": ()}


@final
class UntrainedNetworks:
    """The untrained network of each backbone, built once and cached as long as seeds share it.

    Args:
        data: The whole dataset.
        cache: Folder of cached frozen features.
        workers: Number of processes that decode images.

    Attributes:
        note: Callback that receives progress messages.
    """

    def __init__(self, data: Dataset, cache: Path | None, workers: int) -> None:
        self._data, self._cache, self._workers = data, cache, workers
        self._kept: dict[str, _Network] = {}
        self.note: Callable[[str], None] = lambda text: None

    def of(self, recipe: Recipe) -> _Network:
        """Return the network of a recipe, with the features that it has computed for earlier seeds and folds."""
        network = self._kept.get(recipe.network)
        if network is None or network.seed != recipe.training.seed:
            embedder = _untrained(recipe, self._data)
            if network is not None and _same_weights(network.embedder, embedder):
                network.seed = recipe.training.seed
            else:
                network = _Network(recipe, embedder, self._cache, self._workers, lambda text: self.note(text))
        self._kept[recipe.network] = network
        return network


@final
class _Network:
    """An untrained network, and the cached features of all classes requested so far."""

    def __init__(
        self, recipe: Recipe, embedder: Embedder, cache: Path | None, workers: int, note: Callable[[str], None]
    ) -> None:
        self.seed, self._note = recipe.training.seed, note
        self.embedder = embedder
        plain = _with_head(embedder, Head(self.length, None, pooling=embedder.head.pooling, normalisation="none"))
        self.plain = plain  # the network with a pooling head only; frozen as in the recipe
        is_frozen = bool(recipe.freeze) and embedder.backbone.input.pixels is not None
        if is_frozen:  # its features are cached on disk, where runs find them too
            plain.freeze(train_stages=0 if recipe.freeze is True else recipe.train_stages)
        self._encoder: Trainee = (
            FrozenEmbedder(plain, cache=cache, workers=workers, progress=False) if is_frozen else plain
        )
        self._features: dict[str, npt.NDArray[np.float32]] = {}
        self._axes: dict[tuple[tuple[str, ...], int], PrincipalAxes] = {}  # by training classes and dimension

    @property
    def length(self) -> int:
        """Dimension of the features."""
        return self.embedder.backbone.channels

    def features(self, data: Dataset) -> npt.NDArray[np.float32]:
        """Return the pooled features of items; each class is computed once."""
        names = {int(label): data.class_names[label] for label in data.classes}
        absent = [label for label, name in names.items() if name not in self._features]
        sizes = np.bincount(data.labels, minlength=len(data.class_names))
        done, total = 0, int(sizes[absent].sum())
        for classes in _in_parts(absent, sizes):  # to update the progress display
            part = data.of_classes(classes)
            rows = self._encoder.encode(part, engine="folded")
            self._features |= {name: rows[part.labels == index] for index, name in enumerate(part.class_names)}
            done += len(part)
            self._note(f"{done:,} of {counted(total, 'item')} embedded")
        features = np.empty((len(data), self.length), dtype=np.float32)
        for label, name in names.items():
            features[data.labels == label] = self._features[name]
        return features

    def as_it_is(self, split: Split) -> tuple[Embedder, FrozenEmbedder]:
        """Return the network without an extra head."""
        return self._known(_with_head(self.embedder, self.embedder.head))

    def reduced(self, split: Split, dim: int) -> tuple[Embedder, FrozenEmbedder]:
        """Return the network with a head that projects onto the principal axes of the training classes' features."""
        wanted = split.train.class_names, dim
        if wanted not in self._axes:
            self._axes[wanted] = principal_axes(self.features(_some_classes(split.train)), dim)
        head = principal_head(self._axes[wanted], dim, pooling=self.embedder.head.pooling)
        return self._known(_with_head(self.embedder, head))

    def _known(self, embedder: Embedder) -> tuple[Embedder, FrozenEmbedder]:
        """Return an embedder, and a copy that reuses the computed backbone features."""
        return embedder, FrozenEmbedder(embedder.freeze(train_stages=0), known=self.features)


def _untrained(recipe: Recipe, data: Dataset) -> Embedder:
    """Return the network that training starts from: the backbone without a head, or the recipe's start embedder."""
    if recipe.start is None:
        embedder = build_embedder(recipe.changed(dim=None), data)
    else:
        embedder = Embedder.load(recipe.start, allow_code=recipe.trust.sources)
    return embedder.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def _with_head(embedder: Embedder, head: Head) -> Embedder:
    result = copy.deepcopy(embedder)
    result.head = copy.deepcopy(head).to(embedder.device)
    return result.eval()


def _same_weights(one: Embedder, other: Embedder) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def _in_parts(classes: Sequence[int], sizes: npt.NDArray[np.int64]) -> Iterator[list[int]]:
    """Yield groups of consecutive classes that hold at least `PART` items each."""
    part: list[int] = []
    for label in classes:
        part.append(label)
        if sizes[part].sum() >= PART:
            yield part
            part = []
    if part:
        yield part


def _some_classes(data: Dataset) -> Dataset:
    """Return random whole classes that hold enough items to compute the principal axes."""
    if len(data) <= PCA_ITEMS:
        return data
    order = np.random.default_rng(0).permutation(data.classes)
    sizes = np.bincount(data.labels, minlength=len(data.class_names))[order].cumsum()
    return data.of_classes(np.sort(order[: int(np.searchsorted(sizes, PCA_ITEMS)) + 1]))


def _chance(baseline: Contestant, run: RunContestant, split: Split, untrained: Record) -> Record:
    """Return the untrained network's record with the expected scores of random neighbours."""
    assert split.test is not None  # the untrained network was tested on it
    ks = recall_at(untrained.dataset)
    scores, classes = _by_chance(split.test, ks), len(split.test.class_names)
    return untrained.model_copy(
        update={
            **run.facts(baseline),
            "validation": {},
            "validation_classes": (),
            "validation_queries": (),
            "validation_per_class": (),
            "test": dict(scores.overall),
            "per_class": {name: scores_by_class(scores, name, classes) for name in SCORES},
            "queries": queries_by_class(scores, classes),
            "seconds": 0.0,
        }
    )


def _by_chance(data: Dataset, ks: Sequence[int]) -> Scores:
    if not data.has_gallery:
        return chance_scores(data.labels, k=ks)
    query, gallery = data.with_role("query"), data.with_role("gallery")
    return chance_scores(query.labels, gallery_labels=gallery.labels, k=ks)
