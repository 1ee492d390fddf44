"""The training loop, in one function."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from vicinal._util.files import remove_partial_files
from vicinal.criterion import Criterion
from vicinal.data import Dataset, ItemBatch, batches
from vicinal.errors import InputError, Interrupted, NotFinite, look_up
from vicinal.sampling import Sampler
from vicinal.training.checkpoint import (
    load_best,
    load_checkpoint,
    random_state,
    restore_random_state,
    save_best,
    save_checkpoint,
)
from vicinal.training.log import TIME_USED, Log
from vicinal.training.optimiser import build_optimiser, learning_rate_factor
from vicinal.training.processes import start_processes, stop_requested
from vicinal.training.settings import Settings
from vicinal.training.state import Best, Checkpoints, Hook, TrainingFiles, TrainingState

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Outcome", "Stream", "run_training"]


# Batches of the training loop: data, transform and sampler.


@final
@dataclass(frozen=True)
class Stream:
    """Batches of training items; iterating yields the rest of the sampler's current pass.

    Attributes:
        data: Training items.
        transform: Function that turns an item into a tensor; None for vectors.
        sampler: Sampler of the items of each batch.
        workers: Number of processes that decode images.
        seed: Seed of random transforms.
        skip_bad: Whether to leave out unreadable items.
        embed: Function of the model that embeds the training items, for samplers that search for hard classes.
    """

    data: Dataset
    transform: Callable[..., Tensor] | None
    sampler: Sampler
    workers: int = 0
    seed: int = 0
    skip_bad: bool = False
    embed: Callable[[Any], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.sampler.wants_embeddings and self.embed is None:
            raise InputError(
                "This sampler searches for hard classes: pass embed=, a function of the model, to the stream."
            )

    def __iter__(self) -> Iterator[ItemBatch]:
        return batches(
            self.data, self.transform, self.sampler, workers=self.workers, seed=self.seed, skip_bad=self.skip_bad
        )

    def embeddings(self, model: nn.Module) -> Tensor | None:
        """Embed the training items if the sampler searches for hard classes; None if it does not."""
        return self.embed(model) if self.sampler.wants_embeddings and self.embed is not None else None

    def observe(self, embeddings: Tensor | None) -> None:
        """Update the nearest classes of the sampler; every process must pass the same embeddings."""
        if embeddings is not None:
            self.sampler.update(embeddings, torch.from_numpy(self.data.labels))


@dataclass(frozen=True)
class Outcome:
    """Result of training.

    Attributes:
        steps: Number of steps taken.
        images: Number of training items, over all processes.
        best_step: Step whose weights the model now has.
        best_scores: Scores of that step; empty without evaluations.
        seconds: Training time in seconds, over all parts of an interrupted run.
        curve: Number of images and the score that selects steps, at every evaluation.
    """

    steps: int
    images: int
    best_step: int
    best_scores: dict[str, float]
    seconds: float
    curve: tuple[tuple[int, float], ...] = ()


@dataclass
class _Session:
    """Working state of one call of `run_training`.

    Attributes:
        state: State of the run, which is passed to hooks.
        parts: Objects whose `state_dict` a checkpoint saves, by name.
        hooks: Hooks to call.
        checkpoints: Files and identity of the run; None writes nothing to disk.
        best_weights: Weights of the model at the best evaluation so far; empty before the first one.
    """

    state: TrainingState
    parts: Mapping[str, Any]
    hooks: Sequence[Hook]
    checkpoints: Checkpoints | None
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    @property
    def files(self) -> TrainingFiles | None:
        """Paths that this process writes to; None for all processes except the first."""
        if self.checkpoints is None or not self.state.fabric.is_global_zero:
            return None
        return self.checkpoints.files


def run_training(
    model: nn.Module,
    criterion: Criterion,
    stream: Stream,
    settings: Settings,
    *,
    score: Callable[[Any], dict[str, float]] | None = None,
    hooks: Sequence[Hook] = (),
    checkpoints: Checkpoints | None = None,
    progress: bool = True,
    fabric: Fabric | None = None,
) -> Outcome:
    """Train a model in place and load its best weights at the end.

    Args:
        model: Model that maps a batch of the stream to embeddings; its `head`, if it has one, is a separate parameter
            group.
        criterion: The loss.
        stream: Batches of training items.
        settings: Settings of the training loop.
        score: Function that scores the model, larger is better; `settings.score` selects the best step and stops early.
            Without it, the last weights are kept.
        hooks: Training hooks.
        checkpoints: Files of checkpoints and the log, and whether to resume from the last checkpoint. On a CPU, the
            result of a resumed run equals that of an uninterrupted one, bit for bit. None writes nothing to disk.
        progress: Whether to show a bar.
        fabric: Devices, precision and processes; by default created from the settings.

    Raises:
        NotFinite: If the loss is NaN or infinite; the last good checkpoint is kept.
        Interrupted: After Ctrl-C or SIGTERM, when everything is saved.
    """
    fabric = fabric or start_processes(settings)
    optimiser = build_optimiser(model, criterion, settings)
    criterion.to(fabric.device)
    network, steered = fabric.setup(model, optimiser)
    state = TrainingState(fabric, model, criterion, settings, scored=score is not None)
    # The precision holds the scale of the loss in float16 training.
    parts = {"model": model, "criterion": criterion, "optimiser": optimiser, "sampler": stream.sampler}
    session = _Session(state, {**parts, "precision": fabric.strategy.precision}, hooks, checkpoints)
    threads = _begin(session)

    main, files = fabric.is_global_zero, session.files
    marked, seen = time.perf_counter(), 0
    micro = 0
    with (
        _threads(threads),
        stop_requested() as stop,
        _ended(hooks, state),
        Log(files, step=state.step, steps=settings.steps, seconds=settings.seconds, progress=progress and main) as log,
    ):
        network.train()
        criterion.train()
        late = settings.seconds is not None and state.elapsed >= settings.seconds
        while not state.complete and not late and not state.exhausted:
            for batch in stream:
                due = (state.step + 1) % settings.log_every == 0
                criterion.watch = due
                embeddings = network(batch.images.to(fabric.device))
                with _explained(state.step, batch.indices, settings, files):
                    loss = criterion(embeddings, batch.labels.to(fabric.device), ids=batch.indices.to(fabric.device))
                    state.loss = float(loss.detach())
                    if not math.isfinite(state.loss):
                        raise NotFinite(f"The loss is {state.loss}.")
                fabric.backward(loss / settings.accumulate)
                seen += len(batch.images)
                state.images += len(batch.images) * fabric.world_size
                micro += 1
                if micro < settings.accumulate:
                    continue

                micro = 0
                for hook in hooks:
                    hook.before_step(state)
                used = state.time_used
                _prepare_step(network, steered, state, used)
                steered.step()
                steered.zero_grad()
                state.step += 1

                if due:
                    now = time.perf_counter()
                    values = {"loss": state.loss, "images_per_second": seen / (now - marked), **criterion.statistics}
                    _write(log, session, values if used is None else {**values, TIME_USED: used})
                    marked, seen = now, 0
                stops = fabric.strategy.reduce_boolean_decision(stop(), all=False)
                if settings.seconds is not None:
                    late = fabric.strategy.reduce_boolean_decision(state.elapsed >= settings.seconds, all=False)
                ends = late or state.complete
                evaluates = ends or _every(settings.evaluate_every, state.step)
                saves = evaluates or stops or _every(settings.checkpoint_every, state.step)
                if saves:
                    with _explained(state.step - 1, batch.indices, settings, files):
                        _check_weights(model, criterion)
                if evaluates:
                    if score is not None:
                        scores = fabric.broadcast(score(model) if main else {})
                        _evaluate(session, {name: float(value) for name, value in scores.items()}, log)
                    stream.observe(fabric.broadcast(stream.embeddings(model) if main else None))
                    network.train()
                    marked, seen = time.perf_counter(), 0
                if saves:
                    _save(session)
                log.advance(state.step, state.elapsed)
                # An evaluation takes long, and a request to stop during one must not wait for the next.
                if evaluates and not stops:
                    stops = fabric.strategy.reduce_boolean_decision(stop(), all=False)
                if stops:
                    planned = "" if settings.steps is None else f" of {settings.steps}"
                    where = ""
                    if checkpoints is not None:
                        where = f" It is saved in {checkpoints.files.folder}; continue with --resume (resume=True)."
                    raise Interrupted(f"Stopped at step {state.step}{planned}.{where}")
                if ends or state.exhausted:
                    break

    if session.best_weights:
        model.load_state_dict(session.best_weights)
    model.eval()
    return Outcome(
        state.step,
        state.images,
        state.best.step or state.step,
        state.best.scores,
        state.elapsed,
        tuple(state.curve),
    )


def _begin(session: _Session) -> int:
    """Start a run, or resume it from its last checkpoint; return its number of threads."""
    if session.files is not None:
        session.files.folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(session.files.folder)
    checkpoints, state = session.checkpoints, session.state
    if checkpoints is None or not checkpoints.resume or not checkpoints.files.last.exists():
        for hook in session.hooks:
            hook.start(state)
        return torch.get_num_threads()
    files = checkpoints.files
    former = load_checkpoint(files.last)
    resumed = [hook for hook in session.hooks if not hook.only_watches]
    _check_same_run(former, checkpoints, len(resumed))
    for name, part in session.parts.items():
        part.load_state_dict(former[name])
    restore_random_state(former["random"])
    state.restore(former["progress"])
    for hook, values in zip(resumed, former["hooks"], strict=True):
        hook.load_state_dict(values, state)
    for hook in session.hooks:
        if hook.only_watches:
            hook.start(state)
    if state.best.step:
        with state.fabric.rank_zero_first():  # which may restore the file
            session.best_weights.update(load_best(files, step=state.best.step, run=state.run)["model"])
    threads: int = former["threads"]  # another number would change the rounding of sums
    return threads


def _check_same_run(former: Mapping[str, Any], checkpoints: Checkpoints, hooks: int) -> None:
    """Raise an error if a checkpoint belongs to another run than the one to resume."""
    folder = checkpoints.files.folder
    if former["identity"] != checkpoints.identity:
        raise InputError(
            f"The run in {folder} was trained on other data, or on another split of it: use the same data, protocol, "
            "fold and seed to resume it, or start a new run in another folder."
        )
    if former["recipe"] != checkpoints.recipe:
        raise InputError(
            f"The run in {folder} was started with other settings than its recipe.toml has now: restore that file, or "
            "start a new run in another folder."
        )
    if len(former["hooks"]) != hooks:
        raise InputError(
            f"The run in {folder} was started with {len(former['hooks'])} hooks; got {hooks}: pass the same ones, in "
            "the same order, to resume it."
        )


def _save(session: _Session) -> None:
    """Write the last checkpoint, in the first process only."""
    files, checkpoints = session.files, session.checkpoints
    if files is None or checkpoints is None:
        return
    rest = {
        "identity": checkpoints.identity,
        "recipe": checkpoints.recipe,
        "threads": torch.get_num_threads(),
        "random": random_state(),
        "progress": session.state.progress(),
        "hooks": [hook.state_dict() for hook in session.hooks if not hook.only_watches],
    }
    save_checkpoint(files.last, {name: part.state_dict() for name, part in session.parts.items()} | rest)
    files.former_best.unlink(missing_ok=True)


def _evaluate(session: _Session, scores: Mapping[str, float], log: Log) -> None:
    """Process new scores: save the weights if they are the best so far, and call hooks."""
    state, settings = session.state, session.state.settings
    value = look_up("score", settings.score, scores)
    state.curve.append((state.images, value))
    state.best.misses += 1
    if value > state.best.value(settings.score) + settings.min_improvement:
        state.best = Best(state.step, dict(scores))
        session.best_weights.clear()
        session.best_weights.update({name: part.detach().clone() for name, part in state.model.state_dict().items()})
        if session.files is not None:
            weights = {"model": session.best_weights, "criterion": state.criterion.state_dict()}
            save_best(session.files, weights, step=state.step, run=state.run)
    for hook in session.hooks:
        facts = hook.after_evaluation(state, scores)
        if facts is not None:
            _write(log, session, facts)
    _write(log, session, {"score": value, **scores})


def _write(log: Log, session: _Session, values: Mapping[str, float]) -> None:
    log.write(session.state.step, values)
    for hook in session.hooks:
        hook.on_log(session.state, values)


@contextmanager
def _ended(hooks: Sequence[Hook], state: TrainingState) -> Iterator[None]:
    """Call the `end` of hooks when training ends, even with an error."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.end(state)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Use the number of threads that the run was started with."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _prepare_step(network: nn.Module, optimiser: Any, state: TrainingState, time_used: float | None) -> None:
    """Set learning rates, drop gradients that the warm-up does not use, add weight decay, and clip gradients."""
    settings, fabric = state.settings, state.fabric
    factor = learning_rate_factor(state.step, settings, [value for _, value in state.curve], time_used)
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * factor
        for parameter in group["params"]:
            if state.step < settings.warm_up and not group["warms_up"]:
                parameter.grad = None
            elif group["decay"] and parameter.grad is not None:
                parameter.grad.add_(parameter.detach(), alpha=group["decay"] * state.loss_scale)
    if settings.clip_norm is not None:
        fabric.clip_gradients(network, optimiser, max_norm=settings.clip_norm, error_if_nonfinite=False)
    if settings.clip_value is not None:
        fabric.clip_gradients(network, optimiser, clip_val=settings.clip_value)


def _every(steps: int, step: int) -> bool:
    return steps > 0 and step % steps == 0


def _check_weights(model: nn.Module, criterion: nn.Module) -> None:
    """Raise `NotFinite` if weights are not finite, so that no good checkpoint is overwritten."""
    for part in (model, criterion):
        for name, parameter in part.named_parameters():
            if not torch.isfinite(parameter.detach().sum(dtype=torch.float64)):
                raise NotFinite(f"The weights {name} hold NaN or infinity after a step whose loss was finite.")


@contextmanager
def _explained(step: int, items: torch.Tensor, settings: Settings, files: TrainingFiles | None) -> Iterator[None]:
    """Add the step, the likely reason and the last good checkpoint to `NotFinite` errors."""
    try:
        yield
    except NotFinite as error:
        reason = (
            "float16 overflows easily: try precision='bf16-mixed'"
            if settings.precision == "16-mixed"
            else f"most often the learning rate ({settings.learning_rate:g}) is too high, or an input is not finite"
        )
        shown = ", ".join(map(str, items[:8].tolist())) + (", ..." if len(items) > 8 else "")
        raise NotFinite(
            f"Training stopped at step {step + 1}, whose batch held items {shown}. {error} The likely reason: {reason}."
            + (f" The last good checkpoint is {files.last}." if files is not None and files.last.exists() else "")
        ) from error
