"""Is a distance a metric, a weak-metric or a semi-metric? Search for what speaks against it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from vicinal.errors import InputError, NotFinite
from vicinal.spaces.domains import Domain
from vicinal.spaces.metric_verdict import Kind, MetricVerdict
from vicinal.spaces.triples import TOLERANCE, Distance, Triple, descend, worst_triples

__all__ = ["audit_distance"]

POINTS = 96  # of a random set; all of its triples are tried
STARTS = 32  # triples moved down the slope
ORDER: tuple[Kind, ...] = ("not a semi-metric", "semi-metric", "weak-metric", "metric")


def audit_distance(
    distance: Distance,
    domain: Domain,
    *,
    name: str = "distance",
    triples: int = 3_000_000,
    seed: int = 0,
    proved: Kind | None = None,
    proof: str = "",
) -> MetricVerdict:
    """Search for points that break the axioms, and say what is left.

    A semi-metric is 0 for equal points, above 0 for others, and symmetric. In a metric no way through a third point is
    shorter than the direct one. In a weak-metric this holds for ways through some points at least: here, through all
    vertices of the domain.

    All triples are tried of the domain's landmarks (grids, lines and vertices) and of sets of random points with points
    half way between them; then the worst of them, and as many through vertices, are moved down the slope of the slack.

    Args:
        distance: From n and m points to an n x m matrix.
        domain: Where points may lie.
        name: What to call the distance.
        triples: How many triples to try at least.
        seed: Of the random points.
        proved: What is known beforehand.
        proof: Why.

    Example:
        >>> from vicinal.pairs import euclidean, squared_euclidean
        >>> from vicinal.spaces import simplex, space
        >>> audit_distance(euclidean, space(2)).kind, audit_distance(squared_euclidean, space(2)).kind
        ('metric', 'semi-metric')
        >>> audit_distance(squared_euclidean, simplex(3)).kind
        'weak-metric'
    """
    if triples < 1:
        raise InputError(f"An audit needs at least one triple; got {triples}.")
    generator = torch.Generator().manual_seed(seed)
    corners = len(domain.vertices)
    faults: dict[str, str] = {}
    pairs = tried = tried_through = 0
    floor = 0.0
    worst: list[tuple[float, Tensor]] = []
    worst_through: list[tuple[float, Tensor]] = []
    for points in _sets(domain, triples, generator):
        matrix = _distances(distance, points, name)
        faults = _faults(points, matrix) | faults
        scale = float(matrix[matrix.isfinite()].max())
        floor = max(floor, 1e-3 * scale)
        slack, places = worst_triples(matrix, torch.arange(len(points)), 1e-3 * scale)
        found = list(zip(slack.tolist(), points[places], strict=True))
        worst = sorted([*worst, *found], key=lambda pair: pair[0])[:STARTS]
        worst_through = sorted([*worst_through, *found[:corners]], key=lambda pair: pair[0])[:STARTS]
        pairs += len(points) ** 2
        tried += len(points) ** 3
        tried_through += corners * len(points) ** 2

    for which, hold_middle in ((worst, False), (worst_through, True)):
        if which:
            starts = torch.stack([triple for _, triple in which])
            slack, moved = descend(distance, domain, starts, hold_middle=hold_middle, floor=floor)
            which[:] = sorted([*which, *zip(slack.tolist(), moved, strict=True)], key=lambda pair: pair[0])
    worst = sorted([*worst, *worst_through], key=lambda pair: pair[0])

    kind: Kind = "metric"
    if faults:
        kind = "not a semi-metric"
    elif worst[0][0] < 0:
        passes = corners > 0 and worst_through[0][0] >= 0
        kind = "weak-metric" if passes else "semi-metric"
    if proved is not None and ORDER.index(kind) < ORDER.index(proved):
        raise AssertionError(f"{name}: found a counterexample to a proof ({proof}): {worst[0]}")
    return MetricVerdict(
        subject=name,
        domain=domain.name,
        kind=kind,
        proved=proved,
        proof=proof,
        faults=tuple(faults.values()),
        pairs=pairs,
        worst=_triple(distance, worst[0][1]),
        triples=tried,
        worst_through_vertices=_triple(distance, worst_through[0][1]) if worst_through else None,
        triples_through_vertices=tried_through,
        vertices=corners,
    )


def _sets(domain: Domain, triples: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Return sets of points, each with the vertices first, until all their triples are as many as asked for."""
    landmarks = torch.cat([domain.vertices, _others(domain.landmarks, domain.vertices)])
    yield landmarks
    left = triples - len(landmarks) ** 3
    while left > 0:
        drawn = domain.draw(POINTS // 2, generator)
        near = 10.0 ** (-2 * torch.rand(POINTS // 4, 1, generator=generator, dtype=torch.float64))
        # Between two points, and on the line from one towards another: where y of a bad triple lies.
        halves = domain.place(_mean(domain, drawn[: POINTS // 4], drawn[POINTS // 4 :], near))
        points = torch.cat([domain.vertices, drawn, halves])
        yield points
        left -= len(points) ** 3


def _mean(domain: Domain, one: Tensor, other: Tensor, share: Tensor) -> Tensor:
    """Return free numbers of points between two: on a convex set those of the mean."""
    return domain.free((1 - share / 2) * one + share / 2 * other)


def _others(points: Tensor, known: Tensor) -> Tensor:
    if not len(known):
        return points
    return points[(points[:, None] - known[None]).abs().amax(2).amin(1) > 0]


def _distances(distance: Distance, points: Tensor, name: str) -> Tensor:
    with torch.no_grad():
        matrix = distance(points, points.clone())
    if matrix.shape != (len(points), len(points)):
        raise InputError(
            f"{name} must map n and m points to an n x m matrix; from {len(points)} and {len(points)} points it made "
            f"{list(matrix.shape)}."
        )
    if matrix.isnan().any():
        one, other = matrix.isnan().nonzero()[0].tolist()
        raise NotFinite(f"{name} is NaN between {points[one].tolist()} and {points[other].tolist()}.")
    if not (matrix.isfinite() & (matrix > 0)).any():
        raise InputError(f"{name} is nowhere above 0 and finite: it is no distance.")
    return matrix.double()


def _faults(points: Tensor, matrix: Tensor) -> dict[str, str]:
    """Return what breaks the axioms of a semi-metric."""
    scale = float(matrix[matrix.isfinite()].abs().max())
    apart = (points[:, None] - points[None]).norm(dim=2)
    found: dict[str, str] = {}

    def note(kind: str, amount: Tensor, limit: float, words: str) -> None:
        place = int(amount.argmax())
        if float(amount.flatten()[place]) > limit:
            one, other = divmod(place, len(points))
            found[kind] = words.format(
                d=float(matrix[one, other]),
                back=float(matrix[other, one]),
                x=_short(points[one]),
                y=_short(points[other]),
            )

    note("negative", -matrix, TOLERANCE * scale, "d(x,y) = {d:.4g} is below 0 for x = {x}, y = {y}")
    note("itself", torch.diag(matrix.diagonal()), TOLERANCE * scale, "d(x,x) = {d:.4g}, not 0, for x = {x}")
    clearly = apart > 0.1 * float(apart.max())
    zero = torch.where(clearly & (matrix.abs() <= 1e-12 * scale), 1.0, 0.0)
    note("zero", zero, 0.5, "d(x,y) = 0 for the different points x = {x}, y = {y}")
    both = matrix.isfinite() & matrix.T.isfinite()
    askew = torch.where(both, (matrix - matrix.T).abs(), torch.where(matrix == matrix.T, 0.0, math.inf))
    note("symmetry", askew, TOLERANCE * scale, "d(x,y) = {d:.4g} but d(y,x) = {back:.4g} for x = {x}, y = {y}")
    return found


def _short(point: Tensor) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in point[:6].tolist()) + (", ...)" if len(point) > 6 else ")")


def _triple(distance: Distance, points: Tensor) -> Triple:
    with torch.no_grad():
        matrix = distance(points, points.clone())
    x, y, z = points
    return Triple(x, y, z, float(matrix[0, 1]), float(matrix[1, 2]), float(matrix[0, 2]))
