"""The criterion: geometry, references, miner and objective in the one loss module that a training loop uses."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vicinal._util.code import Trust
from vicinal._util.warnings import warn_caller
from vicinal.distributed import gather_batch, world_size
from vicinal.errors import InputError, UnknownName, look_up
from vicinal.mining import MINERS, find_miner, pair_statistics
from vicinal.objectives import centre_merging, embedding_norm, find_objective, traits_or_default
from vicinal.objectives.traits import Traits, check_options, options_of
from vicinal.pairs import (
    GEOMETRIES,
    Geometry,
    as_labels,
    check_embeddings,
    check_finite,
    check_pairs,
    masks,
    to_ball,
    to_sphere,
    widen,
)
from vicinal.references import Batch, Cover, Hierarchy, Memory, OneHot, Proxies, View
from vicinal.references.proxies import check_labels

__all__ = [
    "REGULARISERS",
    "Criterion",
    "Learned",
    "check_geometry",
    "check_mining",
    "check_option_kinds",
    "check_option_names",
    "check_references",
]


# Checks that the parts of a criterion fit together.

KINDS: dict[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a word"}


def check_geometry(name: str, traits: Traits, geometry: Geometry, normalise: str) -> None:
    """Raise an error if a loss for similarities gets distances or vice versa, or the normalisation has no effect."""
    written_for = GEOMETRIES[traits.geometry]
    if written_for.similarity != geometry.similarity:
        fitting = [other.name for other in GEOMETRIES.values() if other.similarity == written_for.similarity]
        raise InputError(
            f"{name} is written for {'similarities' if written_for.similarity else 'distances'}; geometry "
            f"{geometry.name!r} is the opposite. Use one of: {', '.join(fitting)}."
        )
    if normalise not in ("sphere", "ball", "none"):
        raise UnknownName("normalisation", normalise, ("sphere", "ball", "none"))
    if normalise == "ball" and geometry.name.startswith("cosine"):
        raise InputError(
            f"geometry {geometry.name!r} puts every vector on the sphere: normalise='ball' would have no effect. Use "
            "geometry='dot' (or 'euclidean') with it."
        )


def check_mining(
    miner: Callable[..., Any] | None, options: Mapping[str, Any], geometry: Geometry, normalise: str
) -> None:
    """Raise an error for options that a miner does not have, and for a geometry that it does not support."""
    if miner is None:
        if options:
            raise InputError(f"mining_options {sorted(options)} were given, but no mining.")
        return
    name = getattr(miner, "__name__", "miner")
    for option in options:
        if option not in inspect.signature(miner).parameters:
            raise UnknownName(f"option of the miner {name}", option, options_of(miner))
    check_option_kinds(name, miner, options)
    check_options(name, dict(options))
    on_the_sphere = geometry.name in ("cosine", "euclidean") and normalise == "sphere"
    if miner is MINERS["distance_weighted"] and not on_the_sphere:
        raise InputError(
            "distance_weighted mining assumes the density of distances on the sphere: use geometry='euclidean' or "
            f"'cosine' with normalise='sphere'; got {geometry.name!r} with {normalise!r}."
        )


def check_references(name: str, traits: Traits, references: Sequence[nn.Module]) -> None:
    """Raise an error for references that a loss does not support, and for a hierarchy without its proxies."""
    if not references:
        raise InputError(f"{name} needs references to compare items with; got an empty list.")
    for module in references:
        kind = getattr(module, "kind", None)
        if kind not in traits.references:
            raise InputError(
                f"{name} does not run on {kind or type(module).__name__} references: {traits.why_not}. Use: "
                f"{', '.join(traits.references)}."
            )
        if isinstance(module, Hierarchy) and not any(other is module.proxies for other in references):
            raise InputError(
                "A Hierarchy groups proxies that must be references, too, or they are never trained: use "
                "references=hierarchical_proxies(classes, dim, groups=...)."
            )


def check_option_names(
    name: str, objective: Callable[..., Tensor], options: Iterable[str], per_class: Sequence[str]
) -> None:
    """Raise an error for options that a loss does not have, and for values per class where it takes one number."""
    parameters = inspect.signature(objective).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise UnknownName(f"option of {name}", option, options_of(objective))
        if option in per_class and parameters[option].annotation in ("float", float, "int", int):
            raise InputError(f"{option} of {name} is one number for all: use Learned without classes=.")


def check_option_kinds(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise an error for a value of another type than the option's default, such as a string for a number."""
    parameters = inspect.signature(function).parameters
    for option, value in options.items():
        if option not in parameters or isinstance(value, Tensor):
            continue
        usual, annotation = parameters[option].default, str(parameters[option].annotation)
        if value is None and "None" in annotation:
            continue
        wanted = next((words for kind, words in KINDS.items() if type(usual) is kind), None)
        fits = isinstance(value, type(usual)) if type(usual) in (bool, str) else is_number(value)
        if wanted is not None and not fits:
            raise InputError(f"{name}: {option} must be {wanted}, such as {usual!r}; got {value!r}.")


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and neither a bool nor NaN."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isnan(value)


REGULARISERS: dict[str, Callable[..., Tensor]] = {
    "centre_merging": centre_merging,
    "embedding_norm": embedding_norm,
}

PER_CLASS = ("proxies", "cover", "one_hot")

Normalise = Literal["sphere", "ball", "none"]


@dataclass(frozen=True)
class Learned:
    """Marks an option of an objective as learned with the network.

    Attributes:
        start: Initial value.
        classes: Number of classes, for a separate value per class of the anchor; None for one value.
        multiplier: Ratio of its learning rate to that of the network.

    Example:
        >>> Criterion("margin", boundary=Learned(1.2)).learned["boundary"]
        Parameter containing:
        tensor(1.2000, requires_grad=True)
    """

    start: float
    classes: int | None = None
    multiplier: float = 1.0


@final
class Criterion(nn.Module):
    """Computes the loss of a batch of embeddings and labels.

    The matrix of anchors x references is computed once and shared by the miner and the objective. Under DDP the
    batches of all processes are gathered first, and gradients have the scale of the single-process run.

    Args:
        objective: Name (see `vicinal losses`) or function of (matrix, positive, negative, **options).
        references: References that the batch is compared with: one of `Batch()`, `Proxies(...)`, `Memory(...)`,
            `Cover(...)`, `OneHot(...)`, or a list of them or of (references, weight). By default those of the
            objective's paper.
        mining: Name or function of (matrix, positive, negative); None for all pairs.
        mining_options: Options of the miner.
        geometry: Similarity or distance in the matrix; by default that of the objective's formula.
        normalise: Normalisation of embeddings and references: "sphere" projects them to length 1, "ball" clips
            longer ones to length 1, "none" leaves them unchanged.
        regularisers: Weights of terms on the embeddings or the first references alone; by default those of the
            objective's paper.
        classes: Number of classes, for default proxies or one-hot labels.
        dim: Dimension of the embeddings, for default proxies.
        seed: Seed of default proxies and of the miner's random draws.
        prefixes: Lengths of prefixes of embeddings and references that are trained too: the loss is the mean over
            these lengths and the full length, so that embeddings can be truncated (Matryoshka).
        past_anchors: Memory of past batches whose items are anchors too: for losses that compare items only with
            proxies, which cannot use a memory among their references.
        overlap: Jaccard index above which two sets of labels belong together; 0 requires one common label.
        **options: Options of the objective; `Learned(value)` makes one a parameter.

    Attributes:
        watch: Whether to compute `statistics` at each step (share of pairs kept, hardest pairs, on the first
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
        past_anchors: Memory | None = None,
        overlap: float = 0.0,
        prefixes: Sequence[int] = (),
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(objective, str):
            objective = find_objective(objective, Trust.typed([objective]))
        self.objective = objective
        self.name = getattr(objective, "__name__", type(objective).__name__)
        # A function without declared traits is assumed to work on cosines and on any references.
        self.traits = traits_or_default(objective, geometry or "cosine")
        self.geometry = look_up("geometry", geometry or self.traits.geometry, GEOMETRIES)
        self.normalise: Normalise = normalise or ("none" if self.geometry.name == "dot" else "sphere")
        check_geometry(self.name, self.traits, self.geometry, self.normalise)

        self.miner = find_miner(mining, Trust.typed([mining])) if isinstance(mining, str) else mining
        self.miner_asks = () if self.miner is None else tuple(inspect.signature(self.miner).parameters)
        self.mining_options = dict(mining_options or {})
        check_mining(self.miner, self.mining_options, self.geometry, self.normalise)

        terms = self._terms(references, classes, dim, seed)
        self.references = nn.ModuleList(module for module, _ in terms)
        self.term_weights = tuple(weight for _, weight in terms)
        check_references(self.name, self.traits, list(self.references))
        if not 0 <= overlap < 1:
            raise InputError(f"overlap is a share of labels, at least 0 and below 1; got {overlap}.")
        self.overlap = overlap
        self.prefixes = tuple(sorted(set(prefixes)))
        if self.prefixes and (self.prefixes[0] < 1 or any(module.kind == "one_hot" for module in self.references)):
            raise InputError(
                f"prefixes are lengths of at least 1, and one-hot labels have none to cut; got {self.prefixes}."
            )
        self.past_anchors = past_anchors
        if past_anchors is not None and any(module.kind not in PER_CLASS for module in self.references):
            raise InputError("past_anchors are compared with references that stand for classes: proxies or a cover.")

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
        self.multipliers = {name: value.multiplier for name, value in learned.items()}
        self.generator = torch.Generator().manual_seed(seed)
        self.watch = False
        self.statistics: dict[str, float] = {}

    def forward(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Any = None,
        references: Tensor | None = None,
        reference_labels: Any = None,
        *,
        ids: Int[Tensor, " n"] | None = None,
        positive: Tensor | None = None,
        negative: Tensor | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss of a batch.

        Args:
            embeddings: One row per item, before or after normalisation.
            labels: Integers of any size, as a tensor, an array or a list; 0 .. classes - 1 if there are references per
                class. Or sets of labels: a row of booleans for each item; two items belong together if they share a
                label, or if their `overlap` is large enough.
            references: Embeddings to compare the items with instead of each other: a second view, or keys for queries.
            reference_labels: Labels of the references.
            ids: Index of each item in the dataset, so that a memory never compares an item with itself.
            positive: Mask of pairs of items (or of items and references) that belong together, instead of labels.
            negative: Mask of pairs that do not; by default all that are not positive.
        """
        own_pairs = positive is not None or references is not None
        if own_pairs:
            self._check_own_pairs(labels, ids, positive)
        if labels is None:
            if positive is None:
                raise InputError("A loss needs labels, or the masks positive= and negative= of its pairs.")
            labels = embeddings.new_zeros(len(embeddings), dtype=torch.long)  # not used for masks
        labels = as_labels(labels, embeddings.device)
        check_embeddings(embeddings, labels, ids)
        if labels.ndim == 2:
            self.check_takes_sets()
        embeddings, labels, ids = gather_batch(embeddings, labels, ids)
        check_finite(embeddings)  # of all processes, so that all of them stop
        with torch.autocast(device_type=embeddings.device.type, enabled=False):
            embeddings = widen(embeddings)
            anchors = self._normalised(embeddings)
            if self.past_anchors is not None:
                past = self.past_anchors.past()
                self.past_anchors(anchors, labels, ids)
                anchors, labels = torch.cat([anchors, past.vectors.to(anchors)]), torch.cat([labels, past.labels])
            if own_pairs:
                views = [_own_view(anchors, references, reference_labels, positive, negative)]
            else:
                self._warn_of_one_class(labels)
                views = [module(anchors, labels, ids) for module in self.references]
            loss = embeddings.new_zeros(())
            for term, (view, weight) in enumerate(zip(views, self.term_weights, strict=True)):
                loss = loss + weight * self._over_prefixes(anchors, labels, view, watch=self.watch and term == 0)
            for name, weight in self.regularisers.items():
                loss = loss + weight * _regulariser(name, embeddings, views[0])
            return loss

    def _check_own_pairs(self, labels: Any, ids: Tensor | None, positive: Tensor | None) -> None:
        """Raise an error if custom masks or references do not fit the references of this criterion."""
        if [type(module) for module in self.references] != [Batch] or self.past_anchors is not None:
            kinds = ", ".join(type(module).__name__ for module in self.references)
            raise InputError(
                f"Custom masks and references replace the batch, but this {self.name} compares items with {kinds}: "
                "pass only labels, or create the criterion with references=Batch()."
            )
        if ids is not None:
            raise InputError("ids need labels and no references: exclude pairs with masks instead.")
        per_class = any(value.ndim for value in self.learned.values())
        if positive is not None and (labels is not None or per_class or world_size() > 1):
            raise InputError(
                "Masks replace labels: pass only one of the two, use no options learned per class, and train in "
                "one process, because masks do not include pairs between processes."
            )

    def check_takes_sets(self) -> None:
        """Raise an error if this criterion needs one label per item."""
        fitting = all(isinstance(module, Batch | Proxies | OneHot | Cover) for module in self.references)
        if not fitting or self.past_anchors is not None or any(value.ndim for value in self.learned.values()):
            raise InputError(
                "Sets of labels need a batch, proxies, a cover or one-hot labels, and no options learned per class."
            )

    def _warn_of_one_class(self, labels: Tensor) -> None:
        """Warn that a batch has no negative pairs, which means a zero loss and an unsuitable sampler."""
        alone = len(labels) > 1 and all(isinstance(module, Batch) for module in self.references)
        if not alone or labels.ndim == 2 or torch.compiler.is_compiling():
            return
        if bool((labels == labels[0]).all()):
            warn_caller(
                f"All {len(labels)} items of a batch are of one class: without a second one there is nothing to tell "
                "apart, and no negative pair. vicinal.sampling.class_sampler draws several classes."
            )

    def __repr__(self) -> str:
        """Return the loss and its settings in one line."""
        parts = [repr(self.name)]
        if self.miner is not None:
            parts.append(f"mining={getattr(self.miner, '__name__', self.miner)!r}")
        kinds = [type(module).__name__ for module in self.references]
        parts += [f"geometry={self.geometry.name!r}", f"references={kinds[0] if len(kinds) == 1 else kinds}"]
        parts += [f"{option}={value!r}" for option, value in self.options.items()]
        parts += [f"{option}=learned" for option in self.learned]
        return f"Criterion({', '.join(parts)})"

    def parameter_groups(self, learning_rate: float | None = None) -> list[dict[str, Any]]:
        """Return the learned references and options with their learning-rate multipliers, for an optimiser.

        Args:
            learning_rate: Learning rate of the network; if given, every group has its own rate (`lr`), for torch's
                optimisers:
                `torch.optim.AdamW([{"params": network.parameters()}, *criterion.parameter_groups(1e-4)], lr=1e-4)`.

        Example:
            >>> [group["lr"] for group in Criterion("proxy_anchor", classes=3, dim=2).parameter_groups(1e-4)]
            [0.01]
        """
        groups: list[dict[str, Any]] = []
        groups.extend(
            {"name": "options", "params": [value], "multiplier": self.multipliers[name]}
            for name, value in self.learned.items()
        )
        groups.extend(
            {"name": "proxies", "params": [module.vectors], "multiplier": module.learning_rate_multiplier}
            for module in self.references
            if isinstance(module, Proxies)
        )
        if learning_rate is not None:
            for group in groups:
                group["lr"] = learning_rate * group["multiplier"]
        return groups

    def get_extra_state(self) -> Tensor:
        """Return the state of the generator, so that the draws of miners resume exactly."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the state of the generator."""
        self.generator.set_state(state.cpu())

    def _over_prefixes(self, anchors: Tensor, labels: Tensor, view: View, *, watch: bool) -> Tensor:
        """Return the mean of a term over the prefixes and the full length of embeddings and references."""
        loss = self._term(anchors, labels, view, watch=watch)
        if self.prefixes and self.prefixes[-1] >= anchors.shape[1]:
            raise InputError(f"Prefixes are shorter than the embeddings' {anchors.shape[1]}; got {self.prefixes}.")
        for length in self.prefixes:
            part = self._normalised(anchors[:, :length])
            vectors = part if view.vectors is anchors else view.vectors[:, :length]
            loss = loss + self._term(part, labels, replace(view, vectors=vectors), watch=False)
        return loss / (1 + len(self.prefixes))

    def _term(self, anchors: Tensor, labels: Tensor, view: View, *, watch: bool) -> Tensor:
        seen = labels if view.anchor_labels is None else view.anchor_labels
        vectors = view.vectors if view.vectors is anchors else self._normalised(view.vectors.to(anchors.dtype))
        matrix = self.geometry.compare(anchors, vectors)
        if view.pairs is None:
            positive, negative = masks(seen, view.labels, view.itself, overlap=self.overlap)
        else:
            positive, negative = view.pairs
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
        loss = self.objective(matrix, kept_positive, kept_negative, **supplied, **learned, **self.options)
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            got = f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise InputError(f"A loss returns one number as a tensor; {self.name} returned {got}: .mean() makes one.")
        return loss

    def _normalised(self, vectors: Tensor) -> Tensor:
        if self.normalise == "none" or self.geometry.name.startswith("cosine"):
            return vectors  # the cosine geometries normalise themselves
        return to_ball(vectors) if self.normalise == "ball" else to_sphere(vectors)

    def _mine(self, matrix: Tensor, positive: Tensor, negative: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        if self.miner is None:
            return positive, negative
        offered = {"similarity": self.geometry.similarity, "generator": self.generator, "dim": dim}
        supplied = {name: value for name, value in offered.items() if name in self.miner_asks}
        mined = self.miner(matrix, positive, negative, **supplied, **self.mining_options)
        if not (isinstance(mined, tuple) and len(mined) == 2 and all(isinstance(mask, Tensor) for mask in mined)):
            raise InputError(
                f"A miner returns the two masks (positive, negative) with pairs taken out; "
                f"{getattr(self.miner, '__name__', 'this one')} returned {type(mined).__name__}."
            )
        return mined[0], mined[1]

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
                    f"{self.name} compares items with {self.traits.usual}: pass classes= and dim=, or references= such "
                    "as Proxies(classes, dim) or Batch()."
                )
            references = Proxies(classes, dim, seed=seed)
        several = [references] if isinstance(references, nn.Module) else list(references)
        return [term if isinstance(term, tuple) else (term, 1.0) for term in several]


def _own_view(
    anchors: Tensor,
    references: Tensor | None,
    reference_labels: Any,
    positive: Tensor | None,
    negative: Tensor | None,
) -> View:
    """Return the custom view to compare anchors with: other embeddings by labels or masks, or each other by masks."""
    if references is None:
        vectors = anchors
    else:
        unlabelled = torch.zeros(len(references), dtype=torch.long, device=references.device)
        labels = unlabelled if positive is not None else as_labels(reference_labels, references.device)
        check_embeddings(references, labels)
        vectors, labels, _ = gather_batch(widen(references).to(anchors.dtype), labels, None)
        check_finite(vectors)
        if vectors.shape[1] != anchors.shape[1]:
            raise InputError(f"Items have {anchors.shape[1]} dimensions and their references {vectors.shape[1]}.")
        if positive is None:
            return View(vectors, labels)
    assert positive is not None  # without references there are masks
    shape = (len(anchors), len(vectors))
    check_pairs(anchors.new_zeros(shape), positive, positive if negative is None else negative)
    negative = ~positive if negative is None else negative
    if references is None:  # an item is no pair with itself, whatever the masks say
        apart = ~torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
        positive, negative = positive & apart, negative & apart
    if not torch.compiler.is_compiling() and bool((positive & negative).any()):
        raise InputError("positive and negative overlap: a pair can be positive, negative or neither.")
    return View(vectors, torch.zeros(shape[1], dtype=torch.long, device=anchors.device), pairs=(positive, negative))


def _of_each_anchor(value: Tensor, labels: Tensor) -> Tensor:
    """Return a learned option unchanged, or one row per anchor if each class has its own value."""
    if value.ndim == 0:
        return value
    check_labels(labels, len(value))
    return value[labels][:, None]


def _regulariser(name: str, embeddings: Tensor, view: View) -> Tensor:
    function = REGULARISERS[name]
    offered = {"embeddings": embeddings, "references": view.vectors, "labels": view.labels}
    return function(**{argument: offered[argument] for argument in inspect.signature(function).parameters})
