"""Chance-constrained proxies: a sequence of proxy problems, each close to the solution of the previous one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vicinal.criterion import Criterion
from vicinal.data import Dataset, batches
from vicinal.errors import DataError, InputError
from vicinal.pairs import to_ball, to_sphere
from vicinal.references import Cover, Proxies, greedy_k_center
from vicinal.training.frozen import Trainee
from vicinal.training.settings import CCP
from vicinal.training.state import Hook, TrainingState

__all__ = [
    "ChanceConstrainedProxies",
    "CoverRefresh",
    "draw_pool",
    "embed_pool",
    "mutual_cosine",
    "proxy_radius",
    "proxy_spread",
    "queued_pool",
    "unseen_batch_norm",
]


# Batch norm without statistics: it is the identity, and embeddings of a deep network are all alike.


def unseen_batch_norm(model: nn.Module) -> list[_BatchNorm]:
    """Return the layers that still have their initial statistics: mean zero, variance one.

    Example:
        >>> layer = nn.BatchNorm1d(2)
        >>> len(unseen_batch_norm(layer))
        1
        >>> _ = layer(torch.tensor([[0.0, 1.0], [2.0, 5.0]]))
        >>> len(unseen_batch_norm(layer))
        0
    """
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and _untouched(layer)]


def _untouched(layer: _BatchNorm) -> bool:
    mean, variance = layer.running_mean, layer.running_var
    return (
        mean is not None
        and variance is not None
        and not mean.any()
        and torch.equal(variance, torch.ones_like(variance))
    )


@torch.no_grad()
def show_batches(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Initialise batch norm without statistics with the mean statistics of batches; frozen parts are not changed.

    Args:
        model: Model whose training mode is restored afterwards.
        batches: Batches to read; none is read if every layer already has statistics.
    """
    layers = unseen_batch_norm(model)
    if not layers:
        return
    was_training, momenta = model.training, [layer.momentum for layer in layers]
    model.train()
    for layer in layers:
        layer.momentum = None  # a plain mean over batches
    for batch in batches:
        model(batch)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    model.train(was_training)


# The pool of embeddings of each class from which new proxies are selected.

BATCH_SIZE = 64
CALIBRATION_BATCHES = 16  # for the first statistics of batch norm in a network from scratch


def draw_pool(labels: npt.NDArray[np.integer[Any]], size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw `size` items of every class; all items are used before any is used again.

    Returns:
        Positions of the items, one row per class.

    Example:
        >>> draw_pool(np.array([0, 1, 1, 0]), 2, np.random.default_rng(0)).tolist()
        [[0, 3], [1, 2]]
    """
    rounds = (
        np.concatenate([rng.permutation(mine) for _ in range(-(-size // len(mine)))]) for mine in _of_each(labels)
    )
    return np.stack([order[:size] for order in rounds])


def queued_pool(
    labels: npt.NDArray[np.integer[Any]], size: int, turn: int, seed: tuple[int, ...] = (0,)
) -> npt.NDArray[np.int64]:
    """Take the next `size` items of every class from its own queue, which is reshuffled whenever it ends.

    Args:
        labels: Class of each item, from 0.
        size: Number of items per class.
        turn: Number of earlier calls with the same size.
        seed: Seed of the shuffling.

    Returns:
        Positions of the items, one row per class.

    Example:
        >>> [queued_pool(np.zeros(4, int), 2, turn).tolist() for turn in (0, 1, 2)]
        [[[1, 0]], [[3, 2]], [[0, 3]]]
    """
    taken = (turn + 1) * size
    own = np.random.default_rng(seed).spawn(int(labels.max()) + 1)
    return np.stack(
        [
            np.concatenate([rng.permutation(mine) for _ in range(-(-taken // len(mine)))])[taken - size : taken]
            for rng, mine in zip(own, _of_each(labels), strict=True)
        ]
    )


def _of_each(labels: npt.NDArray[np.integer[Any]]) -> list[npt.NDArray[np.int64]]:
    """Return the positions of the items of each class."""
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])


@torch.no_grad()
def embed_pool(
    model: Trainee,
    data: Dataset,
    transform: Callable[..., Tensor] | None,
    size: int,
    *,
    seed: tuple[int, ...] = (0,),
    turn: int | None = None,
    workers: int = 0,
    skip_bad: bool = False,
) -> Float[Tensor, "classes size d"]:
    """Embed items of every class, in evaluation mode and before normalisation.

    Batch norm without statistics is initialised with these items first. Otherwise all embeddings of a network from
    scratch, and proxies selected from them, would point in one direction.

    Args:
        model: Embedder, frozen or not.
        data: Training items.
        transform: Function that turns an item into a tensor.
        size: Number of items per class.
        seed: Seed of the draw and of the transform.
        turn: Number of earlier turns of the queue that items are taken from; None draws them at random.
        workers: Number of processes that decode images.
        skip_bad: Whether to replace unreadable items by other items of their class.
    """
    rng = np.random.default_rng(seed if turn is None else (*seed, turn))
    rows = draw_pool(data.labels, size, rng) if turn is None else queued_pool(data.labels, size, turn, seed)
    chosen = rows.ravel()
    plan = [chosen[first : first + BATCH_SIZE] for first in range(0, len(chosen), BATCH_SIZE)]
    options: dict[str, Any] = {"workers": workers, "seed": int(rng.integers(2**31)), "skip_bad": skip_bad}
    mixed = rng.permutation(chosen)
    shown = [mixed[first : first + BATCH_SIZE] for first in range(0, len(mixed), BATCH_SIZE)][:CALIBRATION_BATCHES]
    show_batches(model, (batch.images.to(model.device) for batch in batches(data, transform, shown, **options)))
    model.eval()
    vectors, labels = [], []
    for batch in batches(data, transform, plan, **options):
        vectors.append(model.unnormalised(batch.images.to(model.device)))
        labels.append(batch.labels)
    order = torch.arange(len(chosen)) if not skip_bad else _repeated(torch.cat(labels), data, size)
    return torch.cat(vectors).float()[order].view(-1, size, model.head.dim)


def _repeated(labels: Int[Tensor, " n"], data: Dataset, size: int) -> Int[Tensor, " rows"]:
    """Return `size` rows of each class, class by class; rows of a class repeat if some are missing."""
    counts = torch.bincount(labels, minlength=len(data.classes))
    if not counts.all():
        names = [data.class_names[label] for label in (counts == 0).nonzero().flatten().tolist()]
        raise DataError(
            f"{data.name}: none of the items that were drawn for the proxies of these classes can be read.", names
        )
    starts = counts.cumsum(0) - counts
    return (starts[:, None] + torch.arange(size) % counts[:, None]).flatten()


# A cover of the data as references: selected when training starts, and updated every few steps.


@final
class CoverRefresh(Hook):
    """Updates the `Cover` among the references of a criterion, whose points are embeddings of items.

    Args:
        pool: Function of the model and a turn that embeds items of each training class, [classes, items, dimensions].
        every: Steps between two turns.
    """

    def __init__(self, pool: Callable[[nn.Module, int], Tensor], every: int) -> None:
        self.pool, self.every = pool, every

    def start(self, state: TrainingState) -> None:
        """Select the first points."""
        self._choose(state, 0)

    def before_step(self, state: TrainingState) -> None:
        """Select new points, which the next step uses first."""
        turn, rest = divmod(state.step, self.every)
        if turn and not rest:
            self._choose(state, turn)
            state.model.train()

    def _choose(self, state: TrainingState, turn: int) -> None:
        cover = next((module for module in state.criterion.references if isinstance(module, Cover)), None)
        if cover is None:
            raise InputError("CoverRefresh needs a Cover among the criterion's references: Cover(classes, dim).")
        embedded = self.pool(state.model, turn) if state.fabric.is_global_zero else torch.empty(0)
        cover.choose(state.fabric.broadcast(embedded).to(cover.vectors))


Pool = Callable[[nn.Module, int], Tensor]


@final
class ChanceConstrainedProxies(Hook):
    """Alternates proxy problems while a network is trained.

    An instance minimises the loss on its proxies plus half the proximal weight times the squared distance of the
    network's weights to those of the last converged instance. It has converged when its score has not improved for
    some evaluations; the proxies are then put on items that are far from them, and the next instance begins.

    Formula:
        theta_k, rho_k = argmin L(theta, rho) + (lambda / 2) |theta - theta_(k-1)|^2, with lambda = 0 in the first
        instance and times the proximal decay from each instance to the next; rho starts at greedy k-Center picks of
        each class, with rho_(k-1) as centres picked already.

    Args:
        settings: Settings of the alternation.
        pool: Function of the model and the number of an instance that embeds items of each training class, [classes,
            items, dimensions].

    Attributes:
        instance: Number of the current instance, from 0.
        history: Statistics of each converged instance.
        first: Geometry of the first proxies.

    Reference:
        Gurbuz, Can and Alatan, "Deep metric learning with chance constraints", WACV 2024, Algorithm 1.
    """

    def __init__(self, settings: CCP, pool: Pool) -> None:
        self.settings, self.pool = settings, pool
        self.instance = 0
        self.history: list[dict[str, float]] = []
        self.first: dict[str, float] = {}
        self._anchor: dict[str, Tensor] = {}
        self._weights: dict[str, Tensor] = {}
        self._best: dict[str, float] = {}
        self._misses = 0
        self._latest: float | None = None

    def start(self, state: TrainingState) -> None:
        """Put the proxies of the first instance on items that cover their classes, far from the origin.

        Batch norm needs statistics before the pool is embedded; `embed_pool` initialises them.
        """
        if not state.scored:
            raise InputError(
                "Chance-constrained proxies need scores to decide when an instance has converged: train with "
                "validation classes."
            )
        if not state.settings.evaluate_every:
            raise InputError(
                "Chance-constrained proxies need scores to decide when an instance has converged; got "
                "evaluate_every = 0, which evaluates only at the end: set a number of steps."
            )
        about = self._place(state, torch.zeros_like(_proxies(state.criterion).vectors))
        self.first = {name.removeprefix("next "): value for name, value in about.items() if name.startswith("next ")}

    @property
    def proximal_weight(self) -> float:
        """Lambda of the current instance."""
        return self.settings.proximal_weight * self.settings.proximal_decay**self.instance if self._anchor else 0.0

    def before_step(self, state: TrainingState) -> None:
        """Add the gradient of the proximal term, lambda (theta - theta_prev), to that of the loss."""
        weight = self.proximal_weight * state.loss_scale
        for name, parameter in state.model.named_parameters() if self._anchor else ():
            if parameter.grad is not None and name in self._anchor:
                parameter.grad.add_(parameter.detach() - self._anchor[name], alpha=weight)

    def after_evaluation(self, state: TrainingState, scores: Mapping[str, float]) -> Mapping[str, float] | None:
        """Process an evaluation; end the instance if it has converged, and start the next one.

        Returns:
            Statistics of the instance if it has converged; otherwise None.
        """
        score = scores[state.settings.score]
        seen, self._latest = (self._latest if self.settings.monitor == "stale" else score), score
        if seen is None:  # the first evaluation has none before it
            return None
        self._misses += 1
        if seen > self._best.get("score", -math.inf) + state.settings.min_improvement:
            self._misses = 0
            self._best = {"score": seen, "best step": float(state.step), **scores}
            moving = _moving(state.model)
            self._weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in moving.items()}
        return self._end(state) if self._misses >= self.settings.patience else None

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming within an instance, except for the proxies, which the criterion saves."""
        names = ("instance", "history", "first", "_anchor", "_weights", "_best", "_misses", "_latest")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, values: dict[str, Any], state: TrainingState) -> None:
        """Restore the state that `state_dict` returned."""
        for name, value in values.items():
            setattr(self, name, value)
        devices = {name: parameter.device for name, parameter in state.model.named_parameters()}
        self._anchor = {name: tensor.to(devices[name]) for name, tensor in self._anchor.items()}

    def _end(self, state: TrainingState) -> dict[str, float]:
        moving = _moving(state.model)
        converged = self._weights or {name: tensor.detach().clone() for name, tensor in moving.items()}
        steps_taken = [float((converged[name].to(was) - was).square().sum()) for name, was in self._anchor.items()]
        moved = math.sqrt(sum(steps_taken))
        pulled = {"distance moved": moved, "proximal pull": self.proximal_weight * moved} if self._anchor else {}
        self._anchor = {
            name: converged[name].to(parameter.device, copy=True)
            for name, parameter in state.model.named_parameters()
            if parameter.requires_grad
        }
        if self.settings.restart == "best":
            with torch.no_grad():
                for name, tensor in moving.items():
                    tensor.copy_(converged[name])
        self.instance += 1
        about = self._place(state, _proxies(state.criterion).vectors.detach().clone())
        steps = {"instance": float(self.instance), "last step": float(state.step)}
        self.history.append({**steps, **self._best, **pulled, **about})
        self._best, self._weights, self._misses = {}, {}, 0
        return self.history[-1]

    @torch.no_grad()
    def _place(self, state: TrainingState, former: Tensor) -> dict[str, float]:
        """Put the proxies on pool items that are far from the former ones; return the geometry of both."""
        criterion = state.criterion
        proxies = _proxies(criterion)
        embedded = self.pool(state.model, self.instance) if state.fabric.is_global_zero else torch.empty(0)
        pool = state.fabric.broadcast(embedded).to(proxies.vectors)
        if self.settings.selection == "normalised":
            pool, former = _normalised(pool, criterion), _normalised(former, criterion)
        centres = former.view(proxies.classes, proxies.per_class, -1)
        picks = greedy_k_center(pool, proxies.per_class, centres=centres)
        chosen = torch.take_along_dim(pool, picks[:, :, None], dim=1)
        proxies.assign(chosen.flatten(0, 1))
        pool, centres, chosen = (_normalised(vectors, criterion) for vectors in (pool, centres, chosen))
        return {
            "proxy spread": proxy_spread(centres),
            "proxy cosine": mutual_cosine(centres),
            "proxy radius": proxy_radius(pool, centres),
            "next proxy spread": proxy_spread(chosen),
            "next proxy cosine": mutual_cosine(chosen),
            "next proxy radius": proxy_radius(pool, chosen),
        }


def proxy_spread(proxies: Float[Tensor, "c k d"]) -> float:
    """Return the mean distance of two proxies of one class; NaN where each class has one.

    Near zero, the proxies of a class have collapsed into one.

    Example:
        >>> proxy_spread(torch.tensor([[[0.0], [1.0]], [[0.0], [3.0]]]))
        2.0
    """
    k = proxies.shape[1]
    return float(torch.cdist(proxies, proxies).sum(dim=(1, 2)).mean() / (k * (k - 1))) if k > 1 else math.nan


def mutual_cosine(proxies: Float[Tensor, "c k d"]) -> float:
    """Return the mean cosine of two proxies of different classes; NaN for a single class.

    Near one, all classes point in one direction and cannot be distinguished.

    Example:
        >>> mutual_cosine(torch.tensor([[[2.0, 0.0]], [[0.0, 1.0]]]))
        0.0
    """
    c, k, _ = proxies.shape
    units = to_sphere(proxies.flatten(0, 1))
    own = units.view(c, k, -1).sum(1)
    between = units.sum(0).square().sum() - own.square().sum()
    return float(between / (c * (c - 1) * k * k)) if c > 1 else math.nan


def proxy_radius(pool: Float[Tensor, "c b d"], proxies: Float[Tensor, "c k d"]) -> float:
    """Return the largest distance of an item of a class to its nearest proxy, averaged over classes.

    Example:
        >>> proxy_radius(torch.tensor([[[0.0], [4.0]]]), torch.tensor([[[1.0]]]))
        3.0
    """
    return float(torch.cdist(pool, proxies).amin(2).amax(1).mean())


def _proxies(criterion: Criterion) -> Proxies:
    proxies = next((module for module in criterion.references if isinstance(module, Proxies)), None)
    if proxies is None:
        raise InputError(
            "Chance-constrained proxies need proxies among the references: pass the criterion "
            "references=[(Proxies(classes, dim, per_class=8), 1.0), (Batch(), 0.1)], for example."
        )
    return proxies


def _normalised(vectors: Tensor, criterion: Criterion) -> Tensor:
    if criterion.normalise == "none":
        return vectors
    flat = vectors.flatten(0, -2)
    return (to_ball(flat) if criterion.normalise == "ball" else to_sphere(flat)).view_as(vectors)


def _moving(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that training changes: trainable parameters, and buffers such as batch norm statistics."""
    free = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {**free, **dict(model.named_buffers())}
