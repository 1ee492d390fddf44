"""The training loop: one function, visible from the first step to the last."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from vicinal.criterion import Criterion
from vicinal.errors import InputError, Interrupted, NotFinite, look_up
from vicinal.training.ccp import ChanceConstrainedProxies
from vicinal.training.checkpoint import (
    load_checkpoint,
    random_state,
    remove_partial_files,
    restore_random_state,
    save_checkpoint,
)
from vicinal.training.log import Log
from vicinal.training.optimiser import build_optimiser, learning_rate_factor
from vicinal.training.processes import start_processes
from vicinal.training.settings import Settings
from vicinal.training.stop_signals import asked_to_stop
from vicinal.training.stream import Stream

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Interrupted", "Outcome", "train"]

LAST, BEST = "last.ckpt", "best.ckpt"


@dataclass(frozen=True)
class Outcome:
    """What training came to.

    Attributes:
        step: Steps taken.
        best_step: The step whose weights the model now has.
        best_score: Its score; NaN where nothing was scored.
        seconds: Time spent, over all parts of an interrupted run.
    """

    step: int
    best_step: int
    best_score: float
    seconds: float


def train(
    model: nn.Module,
    criterion: Criterion,
    stream: Stream,
    settings: Settings,
    *,
    score: Callable[[nn.Module], dict[str, float]] | None = None,
    on_score: Callable[[int, dict[str, float]], None] | None = None,
    ccp: ChanceConstrainedProxies | None = None,
    folder: Path | None = None,
    resume: bool = False,
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
        score: Scores the model, larger is better; `settings.metric` chooses the best step and stops early. Without it
            the last weights are kept.
        on_score: Told the step and its scores after every evaluation; what it raises ends the training.
        ccp: Alternates the criterion's proxies by that score.
        folder: Where checkpoints and the log go; None keeps nothing on disk.
        resume: Go on from `last.ckpt` in the folder: bit for bit as if the run had never stopped, on a CPU.
        progress: Whether to show a bar.
        tensorboard: Whether to write TensorBoard events.
        fabric: Devices, precision and processes; made from the settings where none is given.

    Raises:
        NotFinite: Where the loss is NaN or infinite; the last good checkpoint stays.
        Interrupted: After Ctrl-C or SIGTERM, when everything is saved.
    """
    if ccp is not None and (score is None or not settings.evaluate_every):
        raise InputError(
            "Chance-constrained proxies judge by scores when to move on: train with validation classes and "
            "evaluate_every above 0."
        )
    fabric = fabric or start_processes(settings)
    optimiser = build_optimiser(model, criterion, settings)
    criterion.to(fabric.device)
    network, steered = fabric.setup(model, optimiser)
    main = fabric.is_global_zero
    if folder is not None and main:
        folder.mkdir(parents=True, exist_ok=True)
        remove_partial_files(folder)
    step, seconds = 0, 0.0
    best: dict[str, Any] = {"step": 0, "score": -math.inf, "misses": 0}

    if resume and folder is not None and (folder / LAST).exists():
        state = load_checkpoint(folder / LAST)
        model.load_state_dict(state["model"])
        criterion.load_state_dict(state["criterion"])
        optimiser.load_state_dict(state["optimiser"])
        stream.sampler.load_state_dict(state["sampler"])
        fabric.strategy.precision.load_state_dict(state["precision"])
        restore_random_state(state["random"])
        step, seconds, best = state["step"], state["seconds"], state["best"]
        if ccp is not None:
            ccp.load_state_dict(state["ccp"], model)
    elif ccp is not None:
        ccp.start(fabric, model, criterion)

    def save(name: str) -> None:
        """Write a checkpoint; of all processes the first does."""
        if folder is None or not main:
            return
        weights = {"model": model.state_dict(), "criterion": criterion.state_dict()}
        rest = {
            "optimiser": optimiser.state_dict(),
            "sampler": stream.sampler.state_dict(),
            "precision": fabric.strategy.precision.state_dict(),  # how float16 training scales the loss
            "random": random_state(),
            "step": step,
            "seconds": seconds + time.perf_counter() - began,
            "best": best,
            "ccp": None if ccp is None else ccp.state_dict(),
        }
        save_checkpoint(folder / name, weights if name == BEST else {**weights, **rest})

    def evaluate() -> None:
        """Score the model, remember the best one, and count evaluations without improvement."""
        if score is None:
            return
        found = {name: float(value) for name, value in fabric.broadcast(score(model) if main else {}).items()}
        value = look_up("score", settings.metric, found)
        best["misses"] += 1
        if value > best["score"] + settings.min_improvement:
            best.update(step=step, score=value, misses=0)
            kept.clear()
            kept.update({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
            save(BEST)
        ended = None if ccp is None else ccp.observe(step, value, found, fabric, model, criterion)
        if ended is not None:
            log.write(step, ended)
        log.write(step, {"score": value, **found})
        if on_score is not None:
            on_score(step, found)

    kept: dict[str, torch.Tensor] = {}
    if best["step"] and folder is not None:
        kept = load_checkpoint(folder / BEST)["model"]
    began = marked = time.perf_counter()
    images, micro = 0, 0
    show = progress and main
    with (
        asked_to_stop() as stop,
        Log(folder if main else None, step=step, steps=settings.steps, progress=show, tensorboard=tensorboard) as log,
    ):
        network.train()
        criterion.train()
        late = settings.seconds is not None and seconds >= settings.seconds
        while step < settings.steps and not late and not _exhausted(best, settings):
            for batch in stream:
                due = (step + 1) % settings.log_every == 0
                criterion.watch = due
                embeddings = network(batch.images.to(fabric.device))
                with _explained(step, batch.indices, settings, folder):
                    loss = criterion(embeddings, batch.labels.to(fabric.device), batch.indices.to(fabric.device))
                    value = float(loss.detach())
                    if not math.isfinite(value):
                        raise NotFinite(f"The loss is {value}.")
                fabric.backward(loss / settings.accumulate)
                images += len(batch.images)
                micro += 1
                if micro < settings.accumulate:
                    continue

                micro = 0
                if ccp is not None:
                    ccp.pull(model, _loss_scale(fabric))
                _prepare_step(fabric, network, steered, step, settings)
                steered.step()
                steered.zero_grad()
                step += 1

                if due:
                    now = time.perf_counter()
                    rate = images / (now - marked)
                    log.write(step, {"loss": value, "images_per_second": rate, **criterion.statistics})
                    marked, images = now, 0
                stops = fabric.strategy.reduce_boolean_decision(stop(), all=False)
                if settings.seconds is not None:
                    spent = seconds + time.perf_counter() - began
                    late = fabric.strategy.reduce_boolean_decision(spent >= settings.seconds, all=False)
                ends = late or step == settings.steps
                evaluates = ends or _every(settings.evaluate_every, step)
                saves = evaluates or stops or _every(settings.checkpoint_every, step)
                if saves:
                    with _explained(step - 1, batch.indices, settings, folder):
                        _check_weights(model, criterion)
                if evaluates:
                    evaluate()
                    stream.observe(fabric.broadcast(stream.embeddings(model) if main else None))
                    network.train()
                    marked, images = time.perf_counter(), 0
                if saves:
                    save(LAST)
                log.advance(step)
                if stops:
                    where = f" It is saved in {folder}: go on with --resume (resume=True)." if folder else ""
                    raise Interrupted(f"Stopped at step {step} of {settings.steps}.{where}")
                if ends or _exhausted(best, settings):
                    break

    if kept:
        model.load_state_dict(kept)
    model.eval()
    found = best["score"] if best["step"] else math.nan
    return Outcome(step, best["step"] or step, found, seconds + time.perf_counter() - began)


def _prepare_step(fabric: Fabric, network: nn.Module, optimiser: Any, step: int, settings: Settings) -> None:
    """Set learning rates, hold back what is not trained in the warm-up, and clip gradients."""
    factor = learning_rate_factor(step, settings)
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * factor
        if step < settings.warm_up and not group["warms_up"]:
            for parameter in group["params"]:
                parameter.grad = None
    if settings.clip_norm is not None:
        fabric.clip_gradients(network, optimiser, max_norm=settings.clip_norm, error_if_nonfinite=False)
    elif settings.clip_value is not None:
        fabric.clip_gradients(network, optimiser, clip_val=settings.clip_value)


def _loss_scale(fabric: Fabric) -> float:
    """Return what float16 training has multiplied the loss by."""
    scaler = getattr(fabric.strategy.precision, "scaler", None)
    return 1.0 if scaler is None else float(scaler.get_scale())


def _every(steps: int, step: int) -> bool:
    return steps > 0 and step % steps == 0


def _exhausted(best: dict[str, Any], settings: Settings) -> bool:
    return settings.patience is not None and best["misses"] >= settings.patience


def _check_weights(model: nn.Module, criterion: nn.Module) -> None:
    """Raise `NotFinite` where weights are spoilt, so that no checkpoint is written over a good one."""
    for part in (model, criterion):
        for name, parameter in part.named_parameters():
            if not torch.isfinite(parameter.detach().sum(dtype=torch.float64)):
                raise NotFinite(f"The weights {name} hold NaN or infinity after a step whose loss was finite.")


@contextmanager
def _explained(step: int, items: torch.Tensor, settings: Settings, folder: Path | None) -> Iterator[None]:
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
        kept = folder is not None and (folder / LAST).exists()
        raise NotFinite(
            f"Training stopped at step {step + 1}, whose batch held items {shown}. {error} The likely reason: {reason}."
            + (f" The last good checkpoint is {folder / LAST}." if folder is not None and kept else "")
        ) from error
