"""Audits by name: of losses, of the geometries that they are written for, and of a few more distances."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from vicinal._util.files import write_atomically
from vicinal._util.reading import read_json
from vicinal.errors import DataError, InputError, UnknownName, look_up
from vicinal.objectives import OBJECTIVES, traits_or_default, without_alias
from vicinal.objectives.label_gap import SMALLEST
from vicinal.pairs import cosine, cosine_distance, dot, euclidean, squared_euclidean, to_sphere
from vicinal.spaces.axioms import Distance, Kind, MetricVerdict, Triple, audit_distance
from vicinal.spaces.condition import p_max
from vicinal.spaces.domains import DOMAINS
from vicinal.spaces.label_metric import LabelMetric, label_metric_of

__all__ = ["DISTANCES", "angular", "audit", "squared_sine"]


# Cache of verdicts: a search over triples takes seconds, and its result never changes.


def cached_verdict(
    folder: Path, inputs: Mapping[str, Any], subject: str, search: Callable[[], MetricVerdict]
) -> MetricVerdict:
    """Return the cached verdict for some inputs, or search for it and cache it.

    Args:
        folder: Folder of the cache, created if necessary; if it cannot be written to, every call searches again.
        inputs: Everything that the verdict depends on, apart from the versions of vicinal and torch.
        subject: Subject of the verdict: losses with the same distance share one search.
        search: Function that computes the verdict.
    """
    every = {**inputs, "vicinal": version("vicinal"), "torch": torch.__version__}
    key = json.dumps(every, sort_keys=True, default=repr)
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    try:
        verdict = _read(path)
    except (OSError, ValueError, KeyError, TypeError):  # missing or damaged
        verdict = search()
        with suppress(OSError, DataError):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(asdict(verdict), default=lambda tensor: tensor.tolist()))
    return replace(verdict, subject=subject)


def _read(path: Path) -> MetricVerdict:
    values = read_json(path)
    through = values["worst_through_vertices"]
    return MetricVerdict(
        **{
            **values,
            "faults": tuple(values["faults"]),
            "worst": _triple(values["worst"]),
            "worst_through_vertices": None if through is None else _triple(through),
        }
    )


def _triple(values: dict[str, Any]) -> Triple:
    points = {name: torch.tensor(values[name], dtype=torch.float64) for name in ("x", "y", "z")}
    return Triple(**{**values, **points})


def angular(anchors: Float[Tensor, "n d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Return the angle between every anchor and every reference, from 0 to pi, to full precision.

    Example:
        >>> angular(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0], [-1.0, 0.0]]))
        tensor([[1.5708, 3.1416]])
    """
    left, right = to_sphere(anchors)[:, None], to_sphere(references)[None]
    return 2.0 * torch.atan2((left - right).norm(dim=2), (left + right).norm(dim=2))


def squared_sine(anchors: Float[Tensor, "n d"], references: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Return one minus the squared cosine, which treats opposite vectors as equal.

    Example:
        >>> squared_sine(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0], [-1.0, 0.0]]))
        tensor([[1., 0.]])
    """
    return 1.0 - cosine(anchors, references).square()


def label_cross_entropy(anchors: Float[Tensor, "n c"], references: Float[Tensor, "m c"]) -> Float[Tensor, "n m"]:
    """Return the cross-entropy -sum y log x of class probabilities x under y.

    Example:
        >>> label_cross_entropy(torch.tensor([[0.5, 0.5]]), torch.eye(2))
        tensor([[0.6931, 0.6931]])
    """
    return -(anchors.clamp_min(SMALLEST).log() @ references.T)


@final
@dataclass(frozen=True)
class Named:
    """Distance with what is proved about it.

    Attributes:
        distance: Distance function.
        domains: Names in `DOMAINS`: the domain where it is used, then others in which the proof holds.
        proved: Kind that it is proved to be there.
        proof: Argument of the proof.
    """

    distance: Distance
    domains: tuple[str, ...]
    proved: Kind | None = None
    proof: str = ""


DISTANCES: dict[str, Named] = {
    "angular": Named(angular, ("sphere",), "metric", "it is the length of the shortest path on the sphere"),
    "cosine": Named(cosine_distance, ("sphere",)),
    "cosine_distance": Named(cosine_distance, ("sphere",)),
    "cross_entropy": Named(label_cross_entropy, ("simplex",)),
    "dot": Named(lambda anchors, references: 1.0 - dot(anchors, references), ("space",)),
    "euclidean": Named(euclidean, ("space", *DOMAINS), "metric", "Minkowski's inequality"),
    "squared_euclidean": Named(squared_euclidean, ("space",)),
    "squared_sine": Named(squared_sine, ("sphere",)),
}


def audit(
    what: str | LabelMetric | Callable[[Tensor, Tensor], Tensor],
    *,
    domain: str | None = None,
    dim: int = 3,
    triples: int = 3_000_000,
    seed: int = 0,
    cache: Path | None = None,
    **options: Any,
) -> MetricVerdict:
    """Determine whether a loss or a distance is a metric, a weak-metric or a semi-metric, with the worst triple.

    Args:
        what: Loss (its geometry is audited on the sphere, or its distance if it is a loss on class probabilities), name
            in `DISTANCES`, `LabelMetric`, or function from n and m points to an n x m matrix.
        domain: Domain of the points, a name in `DOMAINS`; by default where the distance is used. Required for a
            function.
        dim: Number of coordinates of the points.
        triples: Smallest number of triples to search.
        seed: Seed of the random triples.
        cache: Folder in which verdicts on named losses and distances are cached; None always searches.
        **options: Options of the loss: `audit("metric_cross_entropy", k=0.5, p=0.9)`.

    Example:
        >>> verdict = audit("metric_cross_entropy", p=0.9)
        >>> verdict.kind, verdict.proved
        ('weak-metric', 'weak-metric')
        >>> [round(value, 3) for value in verdict.worst.y.tolist()]
        [0.0, 0.5, 0.5]
    """
    name, named = _named(what, domain, options)
    where = domain or named.domains[0]
    points = look_up("domain", where, DOMAINS)(dim)
    proved, proof = (named.proved, named.proof) if where in named.domains else (None, "")

    def search() -> MetricVerdict:
        return audit_distance(named.distance, points, name=name, triples=triples, seed=seed, proved=proved, proof=proof)

    if cache is None or not isinstance(what, str):
        return search()
    distance = name.partition(" (of ")[0]
    inputs = {"distance": distance, "domain": where, "dim": dim, "triples": triples, "seed": seed, "proof": proof}
    return cached_verdict(cache, inputs, name, search)


def _named(what: Any, domain: str | None, options: dict[str, Any]) -> tuple[str, Named]:
    if isinstance(what, LabelMetric):
        _no_options(what, options)
        return str(what), _label_metric(what)
    if not isinstance(what, str):
        _no_options(what, options)
        if domain is None:
            raise InputError(f"A function needs a domain to be audited on: one of {', '.join(DOMAINS)}.")
        return getattr(what, "__name__", "distance"), Named(what, (domain,))
    loss = without_alias(what)
    if loss in ("metric_cross_entropy", "weak_metric_cross_entropy"):
        metric = label_metric_of(loss, options)
        chosen = "".join(f" {name}={value}" for name, value in options.items())
        return f"{loss}{chosen}", _label_metric(metric)
    _no_options(what, options)
    if loss in DISTANCES:
        return loss, DISTANCES[loss]
    if loss not in OBJECTIVES:
        raise UnknownName("loss or distance", what, [*OBJECTIVES, *DISTANCES])
    geometry = traits_or_default(OBJECTIVES[loss]).geometry
    named = DISTANCES[geometry]
    # A criterion first normalises embeddings to the sphere, unless they are compared by inner products.
    domains = named.domains if geometry == "dot" else ("sphere", *named.domains)
    return f"{geometry} (of {loss})", replace(named, domains=domains)


def _label_metric(metric: LabelMetric) -> Named:
    if not metric.is_metric:
        proof = "|x - z| <= max(x, z), so paths through labels are never shorter"
        return Named(metric, ("simplex", "cube"), "weak-metric", proof)
    limit = f"k = {metric.k:g}" + (f" smoothed by {metric.smoothing:g}" if metric.smoothing else "")
    proof = f"p = {metric.p:.4g} is not above {p_max(metric.k, metric.smoothing):.4g}, the limit for {limit}"
    return Named(metric, ("simplex", "cube"), "metric", proof)


def _no_options(what: Any, options: dict[str, Any]) -> None:
    if options:
        raise InputError(f"Options {', '.join(sorted(options))} do not change the distance of {what}; leave them out.")
