"""From a recipe to a run, and from a split to a trained embedder."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch

from vicinal._util.code import allow_code as allow
from vicinal._util.code import told
from vicinal._util.machine import peak_memory_mib
from vicinal.backbones import small_images
from vicinal.data import PROTOCOLS, Dataset, Split, in_memory_once, load
from vicinal.data.dataset import need_one_label
from vicinal.data.splits import FEWEST_VALIDATION
from vicinal.embedder import Card, Embedder
from vicinal.embedder.lora import merge_lora
from vicinal.errors import DataError, InputError
from vicinal.evaluation import class_distances, covering_radius, spectral_decay
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
from vicinal.training.ccp import ChanceConstrainedProxies, CoverRefresh, embed_pool
from vicinal.training.engine import Outcome, Stream, run_training
from vicinal.training.frozen import FrozenEmbedder, Trainee, start_at_principal_axes, training_items
from vicinal.training.processes import start_processes
from vicinal.training.state import Hook

__all__ = ["assess", "fit", "train", "validation_scores"]


# What is written down of a run: its scores, its record, and the card of its embedder.

PACKAGES = ("vicinal", "torch", "numpy", "lightning-fabric")


@final
@dataclass(frozen=True)
class Fitted:
    """What training leaves: the embedder with its best weights, the model that was trained, and how it went."""

    embedder: Embedder
    model: Trainee
    outcome: Outcome
    identity: str
    instances: tuple[Mapping[str, float], ...]
    notes: tuple[str, ...]
    files: RunFiles | None
    writes: bool  # whether this process is the one that does


def encode(model: Trainee, data: Dataset) -> npt.NDArray[np.float32]:
    """Embed items by an engine that no measurement chooses: a run that was resumed then has the same scores."""
    return model.encode(data, engine="folded")


def embedded_items(model: Trainee, data: Dataset) -> EmbeddedItems:
    """Embed items, with who is searched for and who is searched in."""
    return EmbeddedItems(encode(model, data), data.labels, _search_roles(data))


def validation_scores(model: Trainee, data: Dataset, recipe: Recipe) -> dict[str, float]:
    """Score a model on the validation classes."""
    items = embedded_items(model, data)
    # Sets of labels belong together by the rule that the loss trains by.
    rule = {"overlap": recipe.loss_options.get("overlap", 0.0)} if data.has_sets else {}
    scores = score_test_items(items, model.distance, also=[], intervals=None, **rule)
    chosen = {name: scores[name] for name in SCORES}
    if recipe.ccp is not None:
        geometry = {"distance": model.distance}
        chosen["covering radius"] = covering_radius(items.embeddings, items.labels, **geometry)
        chosen["inter-class distance"] = class_distances(items.embeddings, items.labels, **geometry)[0]
    return chosen


def _search_roles(data: Dataset) -> npt.NDArray[Any] | None:
    """Return who is searched for and who is searched in; None where all items are both."""
    return np.asarray(data.roles, dtype=np.str_) if data.has_gallery else None


def facts_of_test(items: EmbeddedItems, test: Dataset, distance: str, ks: Sequence[int]) -> dict[str, Any]:
    """Return what a record says of the test classes."""
    scores = score_test_items(items, distance, k=ks, also=[], intervals=None)
    classes = len(test.class_names)
    return {
        "test": dict(scores.overall) | {"spectral decay": spectral_decay(items.embeddings)},
        "gallery": items.roles is not None,
        "classes": test.class_names,
        "per_class": {name: scores_by_class(scores, name, classes) for name in SCORES},
        "queries": queries_by_class(scores, classes),
    }


def record_of(fitted: Fitted, recipe: Recipe, split: Split, facts: Mapping[str, Any]) -> Record:
    """Return the record of a finished run; without validation classes nothing was chosen."""
    outcome = fitted.outcome
    chosen = {name: value for name, value in outcome.best_scores.items() if name in SCORES}
    known = {
        "name": recipe.method,
        "status": "done",
        "recipe": recipe.model_dump(mode="json") | {"data": recipe.data or split.train.name},
        "split": fitted.identity,
        "selected_on": "last" if split.chooser is None else "test" if recipe.select_on_test else "validation",
        "distance": fitted.model.distance,
        "threads": torch.get_num_threads(),
        "validation": {} if recipe.select_on_test else chosen,
        "steps": outcome.steps,
        "images": outcome.images,
        "best_step": outcome.best_step,
        "curve": () if recipe.select_on_test else outcome.curve,
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
    known["notes"] = (*known.get("notes", ()), *fitted.notes, *([] if little is None else [little]))
    return Record(**{"key": recipe.key(known.get("data", ""), known["name"]), **known})


def keep_run(fitted: Fitted, split: Split, record: Record, *, keep_model: bool = True) -> None:
    """Give the embedder its card, and write model and record where there is a folder."""
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
    tensorboard: bool = False,
    allow_code: Sequence[str] = (),
    **changes: Any,
) -> Embedder:
    """Train an embedder on the training classes of a split and choose its best step on the validation classes.

    Args:
        split: Classes to train on and to choose by; with fewer than three to choose by the last step is kept. The test
            classes are never looked at.
        recipe: What to train, all of it; by default the multi-similarity loss with a network that suits the data, and
            what a loss says of its own batches and proxies (see `vicinal.runs.draft`). The split counts, and not what
            the recipe says of data and protocol. Batches that the training classes cannot fill shrink.
        folder: Where the run goes (recipe, log, checkpoints, record, model); None keeps nothing on disk.
        resume: Go on with the run in that folder, bit for bit as if it had never stopped.
        hooks: Take part in training.
        on_score: Told the step and its validation scores after every evaluation; what it raises ends the training.
        workers: Processes that decode images.
        cache: Where frozen features are kept, by default the user's cache folder.
        progress: Whether to show progress.
        tensorboard: Whether to write TensorBoard events.
        allow_code: Modules or files whose code the recipe may name.
        **changes: Names of a recipe or of its training settings, on top of it: `loss="triplet", dim=64, steps=500`;
            losses, miners and networks may be your own functions and classes.

    Returns:
        The embedder with its best weights, in evaluation mode.

    Example:
        >>> from vicinal.data import digits, split
        >>> embedder = fit(split(digits(), "fixed-validation", validation=0.6), steps=5, progress=False,
        ...                classes_per_batch=3, evaluate_every=5, dim=8)
        >>> embedder.dim
        8
    """
    allow(*allow_code)
    told(*changes.values())
    settled = suited_recipe(split.train, changes) if recipe is None else Settled(recipe.changed(changes), ())
    asked = _about(split, settled.recipe)
    recipe = with_fitting_batches(asked, split.train)
    running = _Running(folder, resume, tuple(hooks), on_score, workers, cache, progress, tensorboard)
    with alone_in(folder):
        fitted = _fit(split.without_test(), recipe, split.hash(), running)
        notes = (*settled.notes, *_notes(asked, recipe, split), *_foreign(recipe, split))
        keep_run(fitted, split, record_of(fitted, recipe, split, {"notes": notes}))
    return fitted.embedder


def train(
    recipe: Recipe,
    *,
    data: Dataset | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    hooks: Sequence[Hook] = (),
    on_score: OnScore | None = None,
    workers: int = 0,
    cache: Path | None = None,
    progress: bool = True,
    tensorboard: bool = False,
    keep_model: bool = True,
    tests: bool = True,
    facts: Mapping[str, Any] | None = None,
    allow_code: Sequence[str] = (),
) -> Run:
    """Run a recipe: open and divide its data, train, embed the test classes, score them, and write all of it down.

    Args:
        recipe: Everything that defines the run.
        data: The recipe's data where it is open already, or where the recipe names none.
        folder: Where the run goes; None keeps nothing on disk.
        resume: Go on with the run in that folder, bit for bit as if it had never stopped.
        hooks: Take part in training.
        on_score: Told the step and its validation scores after every evaluation; what it raises ends the training.
        workers: Processes that decode images.
        cache: Where frozen features are kept, by default the user's cache folder.
        progress: Whether to show progress.
        tensorboard: Whether to write TensorBoard events.
        keep_model: Whether the trained embedder is kept in the folder.
        tests: False ends with the training: no test class is looked at, and the folder holds a run whose `resume` needs
            no training any more.
        facts: Fields of the record that the caller knows: the run's name in tables, the hash of the data, and so on.
        allow_code: Modules or files whose code the recipe may name.

    Returns:
        The run, with its record and its embedder.

    Example:
        >>> recipe = Recipe(data="digits", dim=8, classes_per_batch=2, validation=0.4).changed(steps=5)
        >>> train(recipe, progress=False).record.test["P@1"] > 0.2
        True
    """
    allow(*allow_code)
    if data is None and recipe.data is None:
        raise InputError('The recipe names no data: give it as data=, or in the recipe (data = "photos/").')
    whole = load(str(recipe.data), skip_bad=recipe.skip_bad) if data is None else data
    need_one_label(whole, "A run with test classes")
    known = {"data": "", **(facts or {})}
    known["data"] = known["data"] or whole.hash()
    asked, split = recipe, recipe.split(whole)
    recipe = with_fitting_batches(asked, split.train)
    notes = [*known.get("notes", ()), *_notes(asked, recipe, split)]
    notes += [] if "demands" in known else _foreign(recipe, split)  # a comparison says it of all its runs together
    known["notes"] = tuple(dict.fromkeys(notes))
    divided = _divide(recipe, whole, known["data"])
    running = _Running(folder, resume, tuple(hooks), on_score, workers, cache, progress, tensorboard)
    with alone_in(folder):
        fitted = _fit(divided.visible, recipe, divided.identity, running)
        if not (fitted.writes and tests):
            return Run(record_of(fitted, recipe, divided.visible, known), None, fitted.embedder)
        return _finish(fitted, recipe, divided, known, keep_model=keep_model)


def assess(
    recipe: Recipe,
    make: Callable[[Split], tuple[Embedder, Trainee]],
    *,
    data: Dataset,
    folder: str | Path | None = None,
    keep_model: bool = True,
    facts: Mapping[str, Any] | None = None,
) -> Run:
    """Score an embedder that no training made, as `train` does with a trained one, and write all of it down.

    Args:
        recipe: What the embedder is made of and how classes are divided; its loss and training do not count.
        make: From the split, without its test classes, to the embedder, and to what embeds items as it does.
        data: The recipe's data.
        folder: Where the run goes; None keeps nothing on disk.
        keep_model: Whether the embedder is kept in the folder.
        facts: Fields of the record that the caller knows.

    Example:
        >>> from vicinal.data import digits
        >>> recipe = Recipe(data="digits", dim=None)
        >>> def as_drawn(split):
        ...     embedder = build_embedder(recipe, split.train).eval()
        ...     return embedder, embedder
        >>> assess(recipe, as_drawn, data=digits()).record.steps
        0
    """
    known = {"data": "", **(facts or {})}
    known["data"] = known["data"] or data.hash()
    divided = _divide(recipe, data, known["data"])
    files = None if folder is None else RunFiles(Path(folder))
    with alone_in(folder):
        if files is not None:
            open_run(files, recipe, resume=True)
        began = time.perf_counter()
        embedder, model = make(divided.visible)
        validation = divided.visible.chooser
        scores = {} if validation is None else validation_scores(model, validation, recipe)
        outcome = Outcome(steps=0, images=0, best_step=0, best_scores=scores, seconds=time.perf_counter() - began)
        fitted = Fitted(embedder, model, outcome, divided.identity, (), (), files, writes=True)
        return _finish(fitted, recipe, divided, known, keep_model=keep_model)


@final
@dataclass(frozen=True)
class _Divided:
    """The split of a run: what training may see of it, what tests, and a hash of all of it."""

    visible: Split
    test: Dataset
    identity: str


def _divide(recipe: Recipe, data: Dataset, data_hash: str) -> _Divided:
    split = recipe.split(data)
    if split.test is None:
        raise DataError(f"{data.name} has no test classes under protocol {recipe.protocol!r}.")
    identity = split.hash(data=data_hash)
    split = recipe.split(_decoded(data, recipe))  # all views of it, decoded once
    assert split.test is not None  # as above, with its images decoded
    visible = replace(split, validation=split.test, test=None) if recipe.select_on_test else split.without_test()
    return _Divided(visible, split.test, identity)


def _finish(fitted: Fitted, recipe: Recipe, divided: _Divided, known: Mapping[str, Any], *, keep_model: bool) -> Run:
    """Embed and score the test classes, and write all of it down."""
    test = divided.test
    items = embedded_items(fitted.model, test)
    facts = {**known, **facts_of_test(items, test, fitted.model.distance, recall_at(test.name))}
    record = record_of(fitted, recipe, divided.visible, facts)
    run = Run(record, None if fitted.files is None else fitted.files.folder, fitted.embedder)
    if fitted.files is not None:
        run.save_test_items(items)
    keep_run(fitted, divided.visible, record, keep_model=keep_model)
    return run


def _notes(asked: Recipe, used: Recipe, split: Split) -> tuple[str, ...]:
    """Return what is to be said of a run before it has begun."""
    train = split.train
    notes = [
        batch_note(asked, used, train),
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
    """Return the recipe with what a split says of itself, so that the record tells how classes were divided."""
    if split.protocol not in PROTOCOLS:  # one that was made by hand
        return recipe.changed(select_on_test=False)
    folds = None if split.folds == PROTOCOLS[split.protocol] else split.folds
    return recipe.changed(protocol=split.protocol, fold=split.fold, folds=folds, select_on_test=False)


@final
@dataclass(frozen=True)
class _Running:
    """How a run is carried out, which its result does not depend on; the words are those of `fit`."""

    folder: str | Path | None
    resume: bool
    hooks: tuple[Hook, ...]
    on_score: OnScore | None
    workers: int
    cache: Path | None
    progress: bool
    tensorboard: bool


def _fit(split: Split, recipe: Recipe, identity: str, running: _Running) -> Fitted:
    """Train on a split without test classes: build everything that the recipe names, and run the loop."""
    settings = recipe.training
    if recipe.ccp is not None and split.chooser is None:
        raise InputError(
            "Chance-constrained proxies judge by the scores of validation classes when to move on, and need "
            f"{FEWEST_VALIDATION} of them (in every fold, where there are folds); got {split.held_out}. Choose a "
            "protocol that holds out more, fewer folds, or data with more classes."
        )
    fabric = start_processes(settings)
    data = _decoded(_numbered(split.train), recipe)
    validation = None if split.chooser is None else _decoded(split.chooser, recipe)

    with _memory_told(recipe):
        embedder = build_embedder(recipe, data).to(fabric.device)
        criterion, sampler = build_criterion(recipe, data, embedder.dim), build_sampler(recipe, data)
    if settings.warm_up and not [*embedder.head.parameters(), *criterion.parameters()]:
        raise InputError(
            f"warm_up = {settings.warm_up} trains the head and the loss alone, and neither has anything to train: "
            "give a dim, or leave warm_up out."
        )
    stands_still = bool(recipe.freeze) and embedder.backbone.input.pixels is not None
    kept: dict[str, Any] = {"cache": running.cache, "workers": running.workers, "progress": running.progress}
    files = None if running.folder is None else RunFiles(Path(running.folder))
    if files is not None and fabric.is_global_zero:  # no folder is left where something does not fit together
        open_run(files, recipe, running.resume)

    model: Trainee = FrozenEmbedder(embedder, **kept) if stands_still else embedder
    workers = 0 if stands_still else running.workers
    with fabric.rank_zero_first(local=True):  # of frozen features the others find what the first has computed
        items, transform = training_items(model, data, train_transform(recipe, embedder), recipe.copies)
        if validation is not None and stands_still:
            encode(model, validation)
        if _starts_at_principal_axes(recipe, embedder):
            start_at_principal_axes(model, data)

    stream = Stream(
        items,
        transform,
        sampler,
        workers=workers,
        seed=settings.seed,
        skip_bad=recipe.skip_bad,
        embed=lambda _: torch.from_numpy(encode(model, data)),
    )
    pooled: dict[str, Any] = {"recipe": recipe, "workers": workers}
    ccp, cover = [], []
    if recipe.ccp is not None:
        plain = recipe.ccp.pool_images == "plain"
        pool, drawn = training_items(model, data, embedder.transform) if plain else (items, transform)
        queued = recipe.ccp.pool_order == "queue"
        embed = partial(_pool, data=pool, transform=drawn, size=recipe.ccp.pool_size, queued=queued, **pooled)
        ccp = [ChanceConstrainedProxies(recipe.ccp, embed)]
    if recipe.cover:
        size = max(recipe.cover, recipe.cover_pool)
        embed = partial(_pool, data=items, transform=transform, size=size, queued=True, **pooled)
        cover = [CoverRefresh(embed, recipe.cover_every)]
    outcome = run_training(
        model,
        criterion,
        stream,
        settings,
        score=None if validation is None else partial(validation_scores, data=validation, recipe=recipe),
        on_score=running.on_score,
        hooks=[*ccp, *cover, *running.hooks],
        files=files,
        resume=running.resume,
        identity=identity,
        recipe=hashlib.sha256(recipe.toml().encode()).hexdigest(),
        progress=running.progress,
        tensorboard=running.tensorboard,
        fabric=fabric,
    )
    merge_lora(embedder.eval())
    instances = tuple(ccp[0].history) if ccp else ()
    notes = (proxies_note(ccp[0].first, ccp[0].history),) if ccp else ()
    return Fitted(embedder, model, outcome, identity, instances, notes, files, fabric.is_global_zero)


@contextmanager
def _memory_told(recipe: Recipe) -> Iterator[None]:
    """Say in the words of the recipe that it asks for more memory than there is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "alloc" not in str(error) and "storage" not in str(error).lower():
            raise
        raise InputError(
            f"The recipe asks for more memory than there is: dim = {recipe.dim}, memory = {recipe.memory}, "
            f"proxies_per_class = {recipe.proxies_per_class}, backbone_options = {recipe.backbone_options}."
        ) from None


def _starts_at_principal_axes(recipe: Recipe, embedder: Embedder) -> bool:
    """Whether the head starts as PCA: where that is asked for, or by default on a pretrained network's features."""
    if recipe.head_start is not None:
        return recipe.head_start == "pca"
    linear, pretrained = embedder.head.linear, recipe.pretrained and recipe.start is None
    narrows = linear is not None and linear.bias is not None and linear.out_features <= linear.in_features
    return pretrained and recipe.freeze is True and narrows and recipe.traits.usual != "one_hot"


def _numbered(data: Dataset) -> Dataset:
    """Return the items with classes from 0 on, where some classes of the data have no items in it."""
    return data if len(data.classes) == len(data.class_names) else data.of_classes(data.classes)


def _decoded(data: Dataset, recipe: Recipe) -> Dataset:
    """Return image files as images in memory where the network takes small ones: they are then decoded only once."""
    small = small_images(recipe.backbone, recipe.backbone_options)
    if data.kind != "paths" or small is None:
        return data
    side, channels = small
    return in_memory_once(data, side, mode="L" if channels == 1 else "RGB")


def _pool(
    model: Trainee, turn: int, *, data: Dataset, transform: Any, size: int, queued: bool, recipe: Recipe, workers: int
) -> torch.Tensor:
    """Embed the items of each class among which proxies, or the points of a cover, are looked for."""
    seed = recipe.training.seed
    return embed_pool(
        model,
        data,
        transform,
        size,
        seed=(seed,) if queued else (seed, turn),
        turn=turn if queued else None,
        workers=workers,
        skip_bad=recipe.skip_bad,
    )
