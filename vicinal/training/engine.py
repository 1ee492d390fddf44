"""The training loop: one function, visible from the first step to the last."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from vicinal.training.processes import asked_to_stop, start_processes
from vicinal.training.settings import Settings
from vicinal.training.state import Best, Hook, TrainingFiles, TrainingState

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Outcome", "Stream", "run_training"]


# Where a training loop's batches come from: data, transform and sampler in one.


@final
@dataclass(frozen=True)
class Stream:
    """Iterating yields the rest of the sampler's present pass.

    Attributes:
        data: The training items.
        transform: What makes a tensor of one; None for vectors as they are.
        sampler: Which items form a batch, and where the run is.
        workers: Processes that decode.
        seed: Of random transforms.
        skip_bad: Leave out items that cannot be read.
        embed: Embeds items of the training set as the sampler's search for hard classes needs them.
    """

    data: Dataset
    transform: Callable[..., Tensor] | None
    sampler: Sampler
    workers: int = 0
    seed: int = 0
    skip_bad: bool = False
    embed: Callable[[nn.Module], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.sampler.wants_embeddings and self.embed is None:
            raise InputError("This sampler searches for hard classes: give the stream embed=, a function of the model.")

    def __iter__(self) -> Iterator[ItemBatch]:
        return batches(
            self.data, self.transform, self.sampler, workers=self.workers, seed=self.seed, skip_bad=self.skip_bad
        )

    def embeddings(self, model: nn.Module) -> Tensor | None:
        """Embed the training items where the sampler searches for hard classes; None where it does not."""
        return self.embed(model) if self.sampler.wants_embeddings and self.embed is not None else None

    def observe(self, embeddings: Tensor | None) -> None:
        """Let the sampler look for the nearest classes anew; every process must give the same embeddings."""
        if embeddings is not None:
            self.sampler.update(embeddings, torch.from_numpy(self.data.labels))


@dataclass(frozen=True)
class Outcome:
    """What training came to.

    Attributes:
        steps: Taken.
        images: Items seen, over all processes.
        best_step: The step whose weights the model now has.
        best_scores: Its scores; empty where nothing was scored.
        seconds: Time spent, over all parts of an interrupted run.
        curve: Images seen and the score to choose by, at every evaluation.
    """

    steps: int
    images: int
    best_step: int
    best_scores: dict[str, float]
    seconds: float
    curve: tuple[tuple[int, float], ...] = ()


def run_training(
    model: nn.Module,
    criterion: Criterion,
    stream: Stream,
    settings: Settings,
    *,
    score: Callable[[nn.Module], dict[str, float]] | None = None,
    on_score: Callable[[int, dict[str, float]], None] | None = None,
    hooks: Sequence[Hook] = (),
    files: TrainingFiles | None = None,
    resume: bool = False,
    identity: str = "",
    recipe: str = "",
    progress: bool = True,
    tensorboard: bool = False,
    fabric: Fabric | None = None,
) -> Outcome:
    """Train a model in place and leave it with its best weights.

    Args:
        model: From a batch of the stream to embeddings; its `head`, if it has one, is a parameter group of its own.
        criterion: The loss.
        stream: Where batches come from.
        settings: How to train.
        score: Scores the model, larger is better; `settings.score` chooses the best step and stops early. Without it
            the last weights are kept.
        on_score: Told the step and its scores after every evaluation; what it raises ends the training.
        hooks: Take part.
        files: Where checkpoints and the log go; None keeps nothing on disk.
        resume: Go on from the last checkpoint: bit for bit as if the run had never stopped, on a CPU.
        identity: Names the data that the run is about; a checkpoint of other data is refused.
        recipe: Names the settings that the run is made of; a checkpoint of others is refused.
        progress: Whether to show a bar.
        tensorboard: Whether to write TensorBoard events.
        fabric: Devices, precision and processes; made from the settings where none is given.

    Raises:
        NotFinite: Where the loss is NaN or infinite; the last good checkpoint stays.
        Interrupted: After Ctrl-C or SIGTERM, when everything is saved.
    """
    fabric = fabric or start_processes(settings)
    optimiser = build_optimiser(model, criterion, settings)
    criterion.to(fabric.device)
    network, steered = fabric.setup(model, optimiser)
    main = fabric.is_global_zero
    state = TrainingState(fabric, model, criterion, settings, scored=score is not None)
    # The precision knows how float16 training scales the loss.
    parts: dict[str, Any] = {"model": model, "criterion": criterion, "optimiser": optimiser, "sampler": stream.sampler}
    parts |= {"precision": fabric.strategy.precision}
    kept: dict[str, torch.Tensor] = {}
    threads = torch.get_num_threads()
    if files is not None and main:
        files.folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(files.folder)

    if resume and files is not None and files.last.exists():
        former = load_checkpoint(files.last)
        if former["identity"] != identity:
            raise InputError(
                f"The run in {files.folder} was trained on other data, or on another split of it: give the same data, "
                "protocol, fold and seed to go on with it, or start a new run in another folder."
            )
        if former["recipe"] != recipe:
            raise InputError(
                f"The run in {files.folder} was started with other settings than its recipe.toml has now: put back "
                "that file, or start a new run in another folder."
            )
        if len(former["hooks"]) != len(hooks):
            raise InputError(
                f"The run in {files.folder} was started with {len(former['hooks'])} hooks; got {len(hooks)}: give the "
                "same ones, in the same order, to go on with it."
            )
        for name, part in parts.items():
            part.load_state_dict(former[name])
        restore_random_state(former["random"])
        threads = former["threads"]  # sums over other parts of a batch round otherwise
        state.go_on_from(former["progress"])
        for hook, values in zip(hooks, former["hooks"], strict=True):
            hook.load_state_dict(values, state)
        if state.best.step:
            with fabric.rank_zero_first():  # which puts them in their place
                kept = load_best(files, step=state.best.step, run=state.run)["model"]
    else:
        for hook in hooks:
            hook.start(state)

    def save() -> None:
        """Write the last checkpoint; of all processes the first does."""
        if files is not None and main:
            rest = {
                "identity": identity,
                "recipe": recipe,
                "threads": torch.get_num_threads(),
                "random": random_state(),
                "progress": state.progress(),
                "hooks": [hook.state_dict() for hook in hooks],
            }
            save_checkpoint(files.last, {name: part.state_dict() for name, part in parts.items()} | rest)
            files.former_best.unlink(missing_ok=True)

    def evaluate() -> None:
        """Score the model, remember the best one, and let hooks look."""
        if score is None:
            return
        scores = {name: float(value) for name, value in fabric.broadcast(score(model) if main else {}).items()}
        value = look_up("score", settings.score, scores)
        state.curve.append((state.images, value))
        state.best.misses += 1
        if value > state.best.value(settings.score) + settings.min_improvement:
            state.best = Best(state.step, scores)
            kept.clear()
            kept.update({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
            if files is not None and main:
                weights = {"model": kept, "criterion": criterion.state_dict()}
                save_best(files, weights, step=state.step, run=state.run)
        for hook in hooks:
            said = hook.after_evaluation(state, scores)
            if said is not None:
                log.write(state.step, said)
        log.write(state.step, {"score": value, **scores})
        if on_score is not None:
            on_score(state.step, scores)

    marked, seen = time.perf_counter(), 0
    micro = 0
    shown = {"progress": progress and main, "tensorboard": tensorboard}
    with (
        _threads(threads),
        asked_to_stop() as stop,
        Log(files if main else None, step=state.step, steps=settings.steps, seconds=settings.seconds, **shown) as log,
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
                    rate = seen / (now - marked)
                    told = {"loss": state.loss, "images_per_second": rate, **criterion.statistics}
                    log.write(state.step, told if used is None else {**told, TIME_USED: used})
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
                    evaluate()
                    stream.observe(fabric.broadcast(stream.embeddings(model) if main else None))
                    network.train()
                    marked, seen = time.perf_counter(), 0
                if saves:
                    save()
                log.advance(state.step, state.elapsed)
                # An evaluation takes long: who asked to stop during one must not wait for the next.
                if evaluates and not stops:
                    stops = fabric.strategy.reduce_boolean_decision(stop(), all=False)
                if stops:
                    planned = "" if settings.steps is None else f" of {settings.steps}"
                    where = f" It is saved in {files.folder}: go on with --resume (resume=True)." if files else ""
                    raise Interrupted(f"Stopped at step {state.step}{planned}.{where}")
                if ends or state.exhausted:
                    break

    if kept:
        model.load_state_dict(kept)
    model.eval()
    return Outcome(
        state.step,
        state.images,
        state.best.step or state.step,
        state.best.scores,
        state.elapsed,
        tuple(state.curve),
    )


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Compute with as many threads as the run was begun with."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _prepare_step(network: nn.Module, optimiser: Any, state: TrainingState, time_used: float | None) -> None:
    """Set learning rates, hold back what is not trained in the warm-up, add weight decay, and clip gradients."""
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
    """Raise `NotFinite` where weights are spoilt, so that no checkpoint is written over a good one."""
    for part in (model, criterion):
        for name, parameter in part.named_parameters():
            if not torch.isfinite(parameter.detach().sum(dtype=torch.float64)):
                raise NotFinite(f"The weights {name} hold NaN or infinity after a step whose loss was finite.")


@contextmanager
def _explained(step: int, items: torch.Tensor, settings: Settings, files: TrainingFiles | None) -> Iterator[None]:
    """Say where and most likely why a number was not finite, and what is left."""
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
