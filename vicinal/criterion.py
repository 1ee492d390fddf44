"""The criterion: geometry + references + miner + objective, the only loss module a training loop sees."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vicinal.compatibility import (
    check_geometry,
    check_mining,
    check_option_kinds,
    check_option_names,
    check_references,
)
from vicinal.distributed import gather_batch
from vicinal.errors import InputError, look_up
from vicinal.mining import MINERS, pair_statistics
from vicinal.objectives import ALIASES, OBJECTIVES, Traits, centre_merging, embedding_norm, traits_of
from vicinal.objectives.traits import check_options
from vicinal.pairs import GEOMETRIES, check_embeddings, check_finite, masks, to_ball, to_sphere, widen
from vicinal.references import Batch, OneHot, Proxies, View
from vicinal.references.proxies import check_labels

__all__ = ["REGULARISERS", "Criterion", "Learned"]

REGULARISERS: dict[str, Callable[..., Tensor]] = {
    "centre_merging": centre_merging,
    "embedding_norm": embedding_norm,
}

Normalise = Literal["sphere", "ball", "none"]


@dataclass(frozen=True)
class Learned:
    """Marks an option of an objective as learned with the network.

    Attributes:
        start: Its first value.
        classes: Given, each class of anchors has a value of its own.

    Example:
        >>> Criterion("margin", boundary=Learned(1.2)).learned["boundary"]
        Parameter containing:
        tensor(1.2000, requires_grad=True)
    """

    start: float
    classes: int | None = None


@final
class Criterion(nn.Module):
    """Turns a batch of embeddings and labels into one number to minimise.

    The matrix of anchors x references is computed once and shared by the miner and the objective. Under DDP the
    batches of all processes are gathered first, and gradients have the scale of the single-process run.

    Args:
        objective: A name (see `vicinal losses`) or a function of (matrix, positive, negative, **options).
        references: What the batch is compared with: one of `Batch()`, `Proxies(...)`, `Memory(...)`, `Cover(...)`,
            `OneHot(...)`, or several as a list of them or of (references, weight). By default those of the objective's
            paper.
        mining: A name or a function of (matrix, positive, negative), or None for all pairs.
        mining_options: Options of the miner.
        geometry: How the matrix is filled, by default as the objective's formula is written.
        normalise: Brings embeddings and references to the "sphere", or clips them to the "ball", first.
        regularisers: Weights of terms on the embeddings or the first references alone, by default those of the
            objective's paper.
        classes: Number of classes, for making proxies or one-hot labels where none are given.
        dim: Dimension of the embeddings, for the same.
        seed: Of proxies made here, and of what miners draw.
        **options: Options of the objective; `Learned(value)` makes one a parameter.

    Attributes:
        watch: Set it to True to have `statistics` filled at each step (share of pairs kept, hardest pairs, on the first
            references).

    Example:
        >>> criterion = Criterion("multi_similarity", mining="valid_triplets")
        >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], requires_grad=True)
        >>> loss = criterion(embeddings, torch.tensor([0, 0, 1]))
        >>> loss.backward()
        >>> round(loss.item(), 4)
        0.1997
    """

    def __init__(
        self,
        objective: str | Callable[..., Tensor],
        *,
        references: nn.Module | Sequence[nn.Module | tuple[nn.Module, float]] | None = None,
        mining: str | Callable[..., Any] | None = None,
        mining_options: Mapping[str, Any] | None = None,
        geometry: str | None = None,
        normalise: Normalise | None = None,
        regularisers: Mapping[str, float] | None = None,
        classes: int | None = None,
        dim: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(objective, str):
            objective = look_up("loss", ALIASES.get(objective, objective), OBJECTIVES)
        self.objective = objective
        self.name = getattr(objective, "__name__", type(objective).__name__)
        # A function that declares nothing about itself is taken to work on cosines and on any references.
        self.traits = traits_of(objective) or Traits(geometry or "cosine", paper="")
        self.geometry = look_up("geometry", geometry or self.traits.geometry, GEOMETRIES)
        self.normalise: Normalise = normalise or ("none" if self.geometry.name == "dot" else "sphere")
        check_geometry(self.name, self.traits, self.geometry, self.normalise)

        self.miner = look_up("miner", mining, MINERS) if isinstance(mining, str) else mining
        self.mining_options = dict(mining_options or {})
        check_mining(self.miner, self.mining_options, self.geometry, self.normalise)

        terms = self._terms(references, classes, dim, seed)
        self.references = nn.ModuleList(module for module, _ in terms)
        self.term_weights = tuple(weight for _, weight in terms)
        check_references(self.name, self.traits, list(self.references))

        self.regularisers = dict(self.traits.regularisers if regularisers is None else regularisers)
        for name in self.regularisers:
            look_up("regulariser", name, REGULARISERS)

        learned = {k: v for k, v in options.items() if isinstance(v, Learned)}
        self.options = {k: v for k, v in options.items() if k not in learned}
        per_class = [k for k, v in learned.items() if v.classes is not None]
        check_option_names(self.name, self.objective, options, per_class)
        check_option_kinds(self.name, self.objective, self.options)
        check_options(self.name, self.options)
        self.learned = nn.ParameterDict(
            {
                name: nn.Parameter(torch.full(() if value.classes is None else (value.classes,), value.start))
                for name, value in learned.items()
            }
        )
        self.generator = torch.Generator().manual_seed(seed)
        self.watch = False
        self.statistics: dict[str, float] = {}

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Int[Tensor, " n"], ids: Int[Tensor, " n"] | None = None
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch.

        Args:
            embeddings: One row per item, before or after normalisation.
            labels: Integers of any size; 0 .. classes - 1 where references are made per class.
            ids: Which item of the dataset each one is, so that a memory never compares an item with itself.
        """
        check_embeddings(embeddings, labels, ids)
        embeddings, labels, ids = gather_batch(embeddings, labels.long(), ids)
        check_finite(embeddings)  # of all processes at once, so that all of them stop
        with torch.autocast(device_type=embeddings.device.type, enabled=False):
            embeddings = widen(embeddings)
            anchors = self._normalised(embeddings)
            views = [references(anchors, labels, ids) for references in self.references]
            loss = embeddings.new_zeros(())
            for term, (view, weight) in enumerate(zip(views, self.term_weights, strict=True)):
                loss = loss + weight * self._term(anchors, labels, view, watch=self.watch and term == 0)
            for name, weight in self.regularisers.items():
                loss = loss + weight * _regulariser(name, embeddings, views[0])
            return loss

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the learned references and options with their learning-rate multipliers, for an optimiser."""
        groups: list[dict[str, Any]] = []
        if self.learned:
            groups.append({"name": "options", "params": list(self.learned.values()), "multiplier": 1.0})
        groups.extend(
            {"name": "proxies", "params": [module.vectors], "multiplier": module.learning_rate_multiplier}
            for module in self.references
            if isinstance(module, Proxies)
        )
        return groups

    def get_extra_state(self) -> Tensor:
        """Return the state of the generator, so that what miners draw resumes exactly."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the state of the generator."""
        self.generator.set_state(state.cpu())

    def _term(self, anchors: Tensor, labels: Tensor, view: View, *, watch: bool) -> Tensor:
        seen = labels if view.anchor_labels is None else view.anchor_labels
        vectors = view.vectors if view.vectors is anchors else self._normalised(view.vectors.to(anchors.dtype))
        matrix = self.geometry.compare(anchors, vectors)
        positive, negative = masks(seen, view.labels, view.itself)
        kept_positive, kept_negative = self._mine(matrix, positive, negative, anchors.shape[1])
        if watch:
            self.statistics = pair_statistics(
                matrix, positive, negative, kept_positive, kept_negative, similarity=self.geometry.similarity
            )
        supplied: dict[str, Tensor] = {}
        if "reference_labels" in self.traits.needs:
            supplied["reference_labels"] = view.labels
        if "reference_matrix" in self.traits.needs:
            supplied["reference_matrix"] = self.geometry.compare(vectors, vectors)
        learned = {name: _of_each_anchor(value, seen) for name, value in self.learned.items()}
        return self.objective(matrix, kept_positive, kept_negative, **supplied, **learned, **self.options)

    def _normalised(self, vectors: Tensor) -> Tensor:
        if self.normalise == "none" or self.geometry.name.startswith("cosine"):
            return vectors  # the cosine geometries normalise by themselves
        return to_ball(vectors) if self.normalise == "ball" else to_sphere(vectors)

    def _mine(self, matrix: Tensor, positive: Tensor, negative: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if self.miner is None:
            return positive, negative
        offered = {"similarity": self.geometry.similarity, "generator": self.generator, "dim": dim}
        asked = inspect.signature(self.miner).parameters
        supplied = {name: value for name, value in offered.items() if name in asked}
        kept: tuple[Tensor, Tensor] = self.miner(matrix, positive, negative, **supplied, **self.mining_options)
        return kept

    def _terms(
        self,
        references: nn.Module | Sequence[nn.Module | tuple[nn.Module, float]] | None,
        classes: int | None,
        dim: int | None,
        seed: int,
    ) -> list[tuple[nn.Module, float]]:
        if references is None and self.traits.usual == "batch":
            references = Batch()
        elif references is None and self.traits.usual == "one_hot" and classes is not None:
            references = OneHot(classes)
        elif references is None:
            if classes is None or dim is None:
                raise InputError(
                    f"{self.name} compares items with {self.traits.usual}: give classes= and dim=, or references= such "
                    "as Proxies(classes, dim) or Batch()."
                )
            references = Proxies(classes, dim, seed=seed)
        several = [references] if isinstance(references, nn.Module) else list(references)
        return [term if isinstance(term, tuple) else (term, 1.0) for term in several]


def _of_each_anchor(value: Tensor, labels: Tensor) -> Tensor:
    """Return a learned option as it is, or one row per anchor where each class has its own value."""
    if value.ndim == 0:
        return value
    check_labels(labels, len(value))
    return value[labels][:, None]


def _regulariser(name: str, embeddings: Tensor, view: View) -> Tensor:
    function = REGULARISERS[name]
    offered = {"embeddings": embeddings, "references": view.vectors, "labels": view.labels}
    return function(**{argument: offered[argument] for argument in inspect.signature(function).parameters})
