"""Training runs: `train` runs a recipe, `fit` trains an embedder on a split."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from vicinal._util.code import Trust
from vicinal._util.machine import peak_memory_mib
from vicinal.backbones import small_images
from vicinal.criterion import Criterion
from vicinal.data import PROTOCOLS, Dataset, Split, in_memory_once, load
from vicinal.data.dataset import need_one_label
from vicinal.data.splits import FEWEST_VALIDATION
from vicinal.embedder import Card, Embedder
from vicinal.embedder.lora import merge_lora
from vicinal.errors import DataError, InputError
from vicinal.evaluation import Scores, spectral_decay
from vicinal.runs.build import build_criterion, build_embedder, build_sampler, train_transform, with_fitting_batches
from vicinal.runs.draft import Settled, suited_recipe
from vicinal.runs.notes import (
    batch_note,
    budget_note,
    colour_note,
    foreign_batch_note,
    proxies_note,
    random_network_note,
    share_note,
    undecided_note,
    validation_note,
)
from vicinal.runs.recipe import SCORES, Recipe
from vicinal.runs.record import Record
from vicinal.runs.run import (
    EmbeddedItems,
    Run,
    RunFiles,
    alone_in,
    open_run,
    queries_by_class,
    recall_at,
    score_test_items,
    scores_by_class,
)
from vicinal.runs.validation import Validation, distractors_of, embedded_items, encode, recorded, validation_scores
from vicinal.sampling import Sampler
from vicinal.training.ccp import ChanceConstrainedProxies, CoverRefresh, embed_pool
from vicinal.training.engine import Outcome, Stream, run_training
from vicinal.training.frozen import FrozenEmbedder, Trainee, TrainingItems, start_at_principal_axes, training_items
from vicinal.training.processes import start_processes
from vicinal.training.state import Checkpoints, Hook, TrainingState

__all__ = ["Bookkeeping", "assess", "fit", "train"]


# Output of a run: its scores, its record, and the card of its embedder.

PACKAGES = ("vicinal", "torch", "numpy", "lightning-fabric")


@final
@dataclass(frozen=True)
class Fitted:
    """Result of training: the embedder with its best weights, the trained model, and the training outcome."""

    embedder: Embedder
    model: Trainee
    outcome: Outcome
    identity: str
    instances: tuple[Mapping[str, float], ...]
    notes: tuple[str, ...]
    validated: Mapping[str, Any]  # fields of the record about the validation classes
    files: RunFiles | None
    writes: bool  # whether this process writes the files


def facts_of_test(scores: Scores, items: EmbeddedItems, test: Dataset) -> dict[str, Any]:
    """Return the fields of a record about the test classes, without scores of the full ranking."""
    classes = len(test.class_names)
    plain = {name: value for name, value in scores.overall.items() if name in SCORES or name.startswith("R@")}
    return {
        "test": plain | {"spectral decay": spectral_decay(items.embeddings)},
        "gallery": items.roles is not None,
        "classes": test.class_names,
        "per_class": {name: scores_by_class(scores, name, classes) for name in SCORES},
        "queries": queries_by_class(scores, classes),
    }


def record_of(fitted: Fitted, recipe: Recipe, split: Split, facts: Mapping[str, Any]) -> Record:
    """Return the record of a finished run; without validation classes, no step was selected."""
    outcome = fitted.outcome
    chosen = {name: value for name, value in outcome.best_scores.items() if name in SCORES}
    by_class = fitted.validated.get("validation_per_class", ())
    if by_class:
        chosen[recipe.training.score] = float(np.average(by_class, weights=fitted.validated["validation_queries"]))
    values = {
        "name": recipe.method,
        "status": "done",
        "recipe": recipe.model_dump(mode="json") | {"data": recipe.data or split.train.name},
        "split": fitted.identity,
        "selected_on": "last" if split.usable_validation is None else "test" if recipe.select_on_test else "validation",
        "distance": fitted.model.distance,
        "threads": torch.get_num_threads(),
        "validation": {} if recipe.select_on_test else chosen,
        "steps": outcome.steps,
        "images": outcome.images,
        "best_step": outcome.best_step,
        "curve": () if recipe.select_on_test else outcome.curve,
        **({} if recipe.select_on_test else fitted.validated),
        "seconds": outcome.seconds,
        "peak_memory_mib": peak_memory_mib(),
        "instances": [
            {name: value if np.isfinite(value) else None for name, value in instance.items()}
            for instance in fitted.instances
        ],
        "code": recipe.code(),
        "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
    }
    little = budget_note(outcome.images, split.train) if outcome.steps else None
    values["notes"] = (*values.get("notes", ()), *fitted.notes, *([] if little is None else [little]))
    return Record(**{"key": recipe.key(values.get("data", ""), values["name"]), **values})


def keep_run(fitted: Fitted, split: Split, record: Record, *, keep_model: bool = True) -> None:
    """Give the embedder its card, and write the model and the record if the run has a folder."""
    trained = record.role != "baseline"
    backbone, method = record.network[0], f"trained with {record.method}" if trained else f"({record.name})"
    fitted.embedder.card = Card(
        title=f"{backbone} {method} on {split.train.name}",
        data={
            "dataset": split.train.name,
            "classes": len(split.train.classes),
            "items": len(split.train),
            "protocol": split.protocol,
            "split": record.split,
        },
        recipe=Recipe.of(record.recipe).toml() if trained else "",
        scores={f"{name} (validation)": value for name, value in record.validation.items()}
        | {f"{name} (test)": record.test[name] for name in SCORES if name in record.test},
        trained_on=tuple(split.train.class_names[code] for code in split.train.classes) if trained else (),
    )
    if fitted.files is None or not fitted.writes:
        return
    if keep_model:
        fitted.embedder.save(fitted.files.model)
    Run(record, fitted.files.folder).save_record()


OnScore = Callable[[int, dict[str, float]], None]


@final
@dataclass(frozen=True)
class Bookkeeping:
    """Files, scores and facts to record for a run; mostly used by comparisons.

    Attributes:
        keep_model: Whether to save the trained embedder in the folder.
        tests: Whether to score the test classes. If False, the run ends after training; resuming it then scores them
            without training again.
        full_scores: Whether `Run.scores` includes the scores of the full ranking and intervals; the record never does.
        facts: Fields of the record that the caller provides, such as the run's name in tables or the hash of the data.
    """

    keep_model: bool = True
    tests: bool = True
    full_scores: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


PLAIN = Bookkeeping()


def fit(
    split: Split,
    recipe: Recipe | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    hooks: Sequence[Hook] = (),
    on_score: OnScore | None = None,
    workers: int = 0,
    cache: Path | None = None,
    progress: bool = True,
    allow_code: Sequence[str] = (),
    **changes: Any,
) -> Embedder:
    """Train an embedder on the training classes of a split and select its best step on the validation classes.

    Args:
        split: Classes to train and to validate on. With fewer than three validation classes, the last step is kept.
            The test classes are never used.
        recipe: Full recipe; by default the multi-similarity loss with a network that suits the data, and the batches
            and proxies of the loss's paper (see `vicinal.runs.draft`). The split overrides the recipe's data and
            protocol. Batches that the training classes cannot fill are made smaller.
        folder: Folder of the run (recipe, log, checkpoints, record, model); None writes nothing to disk.
        resume: Whether to resume the run in that folder, with the same result as an uninterrupted run, bit for bit.
        hooks: Training hooks, such as `vicinal.training.TensorBoard`.
        on_score: Function of the step and its validation scores, called after every evaluation; an exception that it
            raises ends training.
        workers: Number of processes that decode images.
        cache: Folder of cached features, by default the user's cache folder.
        progress: Whether to show progress.
        allow_code: Modules or files whose code the recipe may name.
        **changes: Settings of the recipe or of its training to change: `loss="triplet", dim=64, steps=500`. Losses,
            miners and networks may be your own functions and classes.

    Returns:
        The embedder with its best weights, in evaluation mode.

    Example:
        >>> from vicinal.data import digits, split
        >>> embedder = fit(split(digits(), "fixed-validation", validation=0.6), steps=5, progress=False,
        ...                classes_per_batch=3, evaluate_every=5, dim=8)
        >>> embedder.dim
        8
    """
    trust = Trust.of(allow_code) | Trust.typed(changes.values())
    if recipe is None:
        settled = suited_recipe(split.train, changes, trust)
    else:
        settled = Settled(recipe.trusting(trust).changed(changes), ())
    requested = _about(split, settled.recipe)
    recipe = with_fitting_batches(requested, split.train)
    watching = [] if on_score is None else [_Listener(on_score)]
    running = _Running(folder, resume, (*hooks, *watching), workers, cache, progress)
    with alone_in(folder):
        fitted = _fit(split.without_test(), recipe, split.hash(), running)
        notes = (*settled.notes, *_notes(requested, recipe, split), *_foreign(recipe, split))
        keep_run(fitted, split, record_of(fitted, recipe, split, {"notes": notes}))
    return fitted.embedder


def train(
    recipe: Recipe,
    *,
    data: Dataset | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    hooks: Sequence[Hook] = (),
    workers: int = 0,
    cache: Path | None = None,
    progress: bool = True,
    bookkeeping: Bookkeeping = PLAIN,
    allow_code: Sequence[str] = (),
) -> Run:
    """Run a recipe: load and split its data, train, embed and score the test classes, and record the results.

    Args:
        recipe: Recipe of the run.
        data: Data to use if it is already loaded, or if the recipe names none.
        folder: Folder of the run; None writes nothing to disk.
        resume: Whether to resume the run in that folder, with the same result as an uninterrupted run, bit for bit.
        hooks: Training hooks, such as `vicinal.training.TensorBoard`.
        workers: Number of processes that decode images.
        cache: Folder of cached features, by default the user's cache folder.
        progress: Whether to show progress.
        bookkeeping: Scores to compute, files to save and facts to record.
        allow_code: Modules or files whose code the recipe may name.

    Returns:
        The run, with its record, its scores and its embedder.

    Example:
        >>> recipe = Recipe(data="digits", dim=8, classes_per_batch=2, validation=0.4).changed(steps=5)
        >>> train(recipe, progress=False).record.test["P@1"] > 0.2
        True
    """
    recipe = recipe.trusting(Trust.of(allow_code))
    if data is None and recipe.data is None:
        raise InputError('The recipe names no data: pass data=, or add it to the recipe (data = "photos/").')
    if data is None:
        data = load(str(recipe.data), skip_bad=recipe.skip_bad, allow_code=recipe.trust.sources)
    need_one_label(data, "A run with test classes")
    facts = {"data": "", **bookkeeping.facts}
    facts["data"] = facts["data"] or data.hash()
    requested, split = recipe, recipe.split(data)
    recipe = with_fitting_batches(requested, split.train)
    notes = [*facts.get("notes", ()), *_notes(requested, recipe, split)]
    notes += [] if "demands" in facts else _foreign(recipe, split)  # a comparison notes it once for all its runs
    facts["notes"] = tuple(dict.fromkeys(notes))
    divided = _divide(recipe, split, data, facts["data"])
    running = _Running(folder, resume, tuple(hooks), workers, cache, progress)
    bookkeeping = replace(bookkeeping, facts=facts)
    with alone_in(folder):
        fitted = _fit(divided.visible, recipe, divided.identity, running)
        if not (fitted.writes and bookkeeping.tests):
            return Run(record_of(fitted, recipe, divided.visible, facts), None, fitted.embedder, recipe.trust)
        return _finish(fitted, recipe, divided, bookkeeping)


def assess(
    recipe: Recipe,
    make: Callable[[Split], tuple[Embedder, Trainee]],
    *,
    data: Dataset,
    folder: str | Path | None = None,
    keep_model: bool = True,
    facts: Mapping[str, Any] | None = None,
) -> Run:
    """Score an untrained embedder as `train` scores a trained one, and record the results.

    Args:
        recipe: Recipe of the embedder and of the split; its loss and training settings are ignored.
        make: Function of the split without its test classes that returns the embedder and the model that embeds items.
        data: Data of the recipe.
        folder: Folder of the run; None writes nothing to disk.
        keep_model: Whether to save the embedder in the folder.
        facts: Fields of the record that the caller provides.

    Example:
        >>> from vicinal.data import digits
        >>> recipe = Recipe(data="digits", dim=None)
        >>> def as_drawn(split):
        ...     embedder = build_embedder(recipe, split.train).eval()
        ...     return embedder, embedder
        >>> assess(recipe, as_drawn, data=digits()).record.steps
        0
    """
    facts = {"data": "", **(facts or {})}
    facts["data"] = facts["data"] or data.hash()
    divided = _divide(recipe, recipe.split(data), data, facts["data"])
    files = None if folder is None else RunFiles(Path(folder))
    with alone_in(folder):
        if files is not None:
            open_run(files, recipe, resume=True)
        began = time.perf_counter()
        embedder, model = make(divided.visible)
        validation = divided.visible.usable_validation
        scores, validated = dict[str, float](), dict[str, Any]()
        if validation is not None:
            # Features of an untrained network are cached, so that all training items are distractors.
            distractors = distractors_of(divided.visible, recipe, cheap=True)
            scores, by_class, queries = validation_scores(model, validation, recipe, distractors)
            validated = recorded(validation.class_names, queries, [by_class])
        outcome = Outcome(steps=0, images=0, best_step=0, best_scores=scores, seconds=time.perf_counter() - began)
        fitted = Fitted(embedder, model, outcome, divided.identity, (), (), validated, files, writes=True)
        return _finish(fitted, recipe, divided, Bookkeeping(keep_model=keep_model, facts=facts))


@final
@dataclass(frozen=True)
class _Divided:
    """Split of a run: the part that training may see, the test classes, and a hash of the whole split."""

    visible: Split
    test: Dataset
    identity: str


def _divide(recipe: Recipe, split: Split, data: Dataset, data_hash: str) -> _Divided:
    """Return the parts of a split as a run uses them, with small images decoded once for all runs on the data."""
    if split.test is None:
        raise DataError(f"{data.name} has no test classes under protocol {recipe.protocol!r}.")
    whole = _decoded(data, recipe)

    def decoded(view: Dataset) -> Dataset:
        names = set(view.class_names)
        return whole.of_classes([label for label, name in enumerate(whole.class_names) if name in names])

    test, visible = split.test, split.without_test()
    if whole is not data:
        held_out = None if split.validation is None else decoded(split.validation)
        test, visible = decoded(test), replace(visible, train=decoded(split.train), validation=held_out)
    if recipe.select_on_test:
        visible = replace(visible, validation=test)
    return _Divided(visible, test, split.hash(data=data_hash))


def _finish(fitted: Fitted, recipe: Recipe, divided: _Divided, bookkeeping: Bookkeeping) -> Run:
    """Embed and score the test classes, and record the results."""
    test, distance = divided.test, fitted.model.distance
    items = embedded_items(fitted.model, test)
    light: dict[str, Any] = {} if bookkeeping.full_scores else {"also": [], "intervals": None}
    scores = score_test_items(items, distance, k=recall_at(test.name), **light)
    facts = {**bookkeeping.facts, **facts_of_test(scores, items, test)}
    record = record_of(fitted, recipe, divided.visible, facts)
    folder = None if fitted.files is None else fitted.files.folder
    run = Run(record, folder, fitted.embedder, recipe.trust, scores)
    if folder is not None:
        run.save_test_items(items)
    keep_run(fitted, divided.visible, record, keep_model=bookkeeping.keep_model)
    return run


def _notes(requested: Recipe, used: Recipe, split: Split) -> tuple[str, ...]:
    """Return the notes on a run that are known before it starts."""
    train = split.train
    notes = [
        batch_note(requested, used, train),
        None if used.select_on_test else validation_note(split),
        share_note(used, split),
        random_network_note(used, train),
        colour_note(used, train),
        undecided_note(used, train),
    ]
    return tuple(note for note in notes if note is not None)


def _foreign(recipe: Recipe, split: Split) -> list[str]:
    note = foreign_batch_note(recipe, split.train)
    return [] if note is None else [note]


def _about(split: Split, recipe: Recipe) -> Recipe:
    """Return the recipe with the protocol and fold of a split, so that the record describes the split."""
    if split.protocol not in PROTOCOLS:  # a custom split
        return recipe.changed(select_on_test=False)
    folds = None if split.folds == PROTOCOLS[split.protocol] else split.folds
    return recipe.changed(protocol=split.protocol, fold=split.fold, folds=folds, select_on_test=False)


@final
@dataclass(frozen=True)
class _Running:
    """Options of a run that do not affect its result; named as in `fit`."""

    folder: str | Path | None
    resume: bool
    hooks: tuple[Hook, ...]
    workers: int
    cache: Path | None
    progress: bool


@final
class _Listener(Hook):
    """Calls the `on_score` of `fit`."""

    only_watches = True

    def __init__(self, on_score: OnScore) -> None:
        self._on_score = on_score

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> None:
        """Pass the scores on."""
        self._on_score(state.step, dict(scores))


@final
@dataclass(frozen=True)
class _Pool:
    """Embeds the items of each class from which proxies, or the points of a cover, are selected.

    Attributes:
        items: Training items and their transform, as the model takes them.
        size: Number of items per class.
        queued: Whether all items are used before any is used again; otherwise they are drawn at random in every turn.
        recipe: Recipe of the run.
        workers: Number of processes that decode images.
    """

    items: TrainingItems
    size: int
    queued: bool
    recipe: Recipe
    workers: int

    def __call__(self, model: Any, turn: int) -> Tensor:
        seed = self.recipe.training.seed
        return embed_pool(
            model,
            self.items.data,
            self.items.transform,
            self.size,
            seed=(seed,) if self.queued else (seed, turn),
            turn=turn if self.queued else None,
            workers=self.workers,
            skip_bad=self.recipe.skip_bad,
        )


def _fit(split: Split, recipe: Recipe, identity: str, running: _Running) -> Fitted:
    """Train on a split without test classes: build the parts that the recipe names, and run the training loop."""
    if recipe.ccp is not None and split.usable_validation is None:
        raise InputError(
            "Chance-constrained proxies judge by the scores of validation classes when to move on, and need "
            f"{FEWEST_VALIDATION} of them (in every fold, where there are folds); got {split.held_out}. Choose a "
            "protocol that holds out more, fewer folds, or data with more classes."
        )
    fabric = start_processes(recipe.training)
    data = _decoded(_numbered(split.train), recipe)
    validation = None if split.usable_validation is None else _decoded(split.usable_validation, recipe)
    embedder, criterion, sampler = _built(recipe, data, fabric.device)
    files = None if running.folder is None else RunFiles(Path(running.folder))
    if files is not None and fabric.is_global_zero:  # an invalid recipe leaves no folder behind
        open_run(files, recipe, running.resume)

    frozen = bool(recipe.freeze) and embedder.backbone.input.pixels is not None
    model: Trainee = embedder
    if frozen:
        model = FrozenEmbedder(embedder, cache=running.cache, workers=running.workers, progress=running.progress)
    with fabric.rank_zero_first(local=True):  # the first process computes frozen features, the others read them
        items = training_items(model, data, train_transform(recipe, embedder), recipe.copies)
        distractors = None
        if validation is not None:
            cheap = recipe.freeze is True or embedder.backbone.input.pixels is None
            distractors = distractors_of(split, recipe, cheap=cheap)
            distractors = None if distractors is None else _decoded(distractors, recipe)
            if frozen:
                encode(model, validation)
        if _starts_at_principal_axes(recipe, embedder):
            start_at_principal_axes(model, data)

    workers = 0 if frozen else running.workers
    hooks = list(running.hooks)
    if recipe.cover:
        cover = _Pool(items, max(recipe.cover, recipe.cover_pool), queued=True, recipe=recipe, workers=workers)
        hooks.insert(0, CoverRefresh(cover, recipe.cover_every))
    alternation = None
    if recipe.ccp is not None:
        plain = training_items(model, data, embedder.transform) if recipe.ccp.pool_images == "plain" else items
        pool = _Pool(plain, recipe.ccp.pool_size, recipe.ccp.pool_order == "queue", recipe, workers)
        alternation = ChanceConstrainedProxies(recipe.ccp, pool)
        hooks.insert(0, alternation)
    judge = None if validation is None else Validation(validation, recipe, distractors)
    outcome = run_training(
        model,
        criterion,
        Stream(
            items.data,
            items.transform,
            sampler,
            workers=workers,
            seed=recipe.training.seed,
            skip_bad=recipe.skip_bad,
            embed=lambda trained: torch.from_numpy(encode(trained, data)),
        ),
        recipe.training,
        score=None if judge is None else judge.score,
        hooks=hooks if judge is None else [*hooks, judge],
        checkpoints=None if files is None else Checkpoints(files, running.resume, identity, _hash(recipe)),
        progress=running.progress,
        fabric=fabric,
    )
    merge_lora(embedder.eval())
    instances: tuple[Mapping[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    if alternation is not None:
        instances, notes = tuple(alternation.history), (proxies_note(alternation.first, alternation.history),)
    validated = {} if judge is None else judge.recorded()
    return Fitted(embedder, model, outcome, identity, instances, notes, validated, files, fabric.is_global_zero)


def _built(recipe: Recipe, data: Dataset, device: torch.device) -> tuple[Embedder, Criterion, Sampler]:
    """Build the embedder, criterion and sampler of a recipe for the training items."""
    with _explaining_memory(recipe):
        embedder = build_embedder(recipe, data).to(device)
        criterion, sampler = build_criterion(recipe, data, embedder.dim), build_sampler(recipe, data)
    if recipe.training.warm_up and not [*embedder.head.parameters(), *criterion.parameters()]:
        raise InputError(
            f"warm_up = {recipe.training.warm_up} trains only the head and the loss, and neither has parameters "
            "to train: set dim, or remove warm_up."
        )
    return embedder, criterion, sampler


def _hash(recipe: Recipe) -> str:
    return hashlib.sha256(recipe.toml().encode()).hexdigest()


@contextmanager
def _explaining_memory(recipe: Recipe) -> Iterator[None]:
    """Replace memory errors by a message with the settings of the recipe that need memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "alloc" not in str(error) and "storage" not in str(error).lower():
            raise
        raise InputError(
            f"The recipe needs more memory than is available: dim = {recipe.dim}, memory = {recipe.memory}, "
            f"proxies_per_class = {recipe.proxies_per_class}, backbone_options = {recipe.backbone_options}."
        ) from None


def _starts_at_principal_axes(recipe: Recipe, embedder: Embedder) -> bool:
    """Whether the head starts as PCA: if requested, or by default on features of a pretrained network."""
    if recipe.head_start is not None:
        return recipe.head_start == "pca"
    linear, pretrained = embedder.head.linear, recipe.pretrained and recipe.start is None
    narrows = linear is not None and linear.bias is not None and linear.out_features <= linear.in_features
    return pretrained and recipe.freeze is True and narrows and recipe.traits.usual != "one_hot"


def _numbered(data: Dataset) -> Dataset:
    """Return the items with classes renumbered from 0 if some classes have no items."""
    return data if len(data.classes) == len(data.class_names) else data.of_classes(data.classes)


def _decoded(data: Dataset, recipe: Recipe) -> Dataset:
    """Return image files as images in memory if the network takes small images, so that they are decoded only once."""
    small = small_images(recipe.backbone, recipe.backbone_options)
    if data.kind != "paths" or small is None:
        return data
    side, channels = small
    return in_memory_once(data, side, mode="L" if channels == 1 else "RGB")
