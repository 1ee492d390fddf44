"""Audits of distances: search for counterexamples to a distance being a metric, a weak-metric or a semi-metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vicinal.errors import InputError, NotFinite
from vicinal.spaces.domains import Domain

__all__ = [
    "Distance",
    "Kind",
    "MetricVerdict",
    "Triple",
    "audit_distance",
    "descend",
    "relative_slack",
    "worst_triples",
]


# Search for the worst triple: over all triples of some points, then by gradient descent on the points.

Distance = Callable[[Tensor, Tensor], Tensor]

TOLERANCE = 1e-6  # far above rounding errors


@final
@dataclass(frozen=True)
class Triple:
    """Two points and a third point between them.

    Attributes:
        x: First end point.
        y: Middle point.
        z: Second end point.
        first: Distance from x to y.
        second: Distance from y to z.
        direct: Distance from x to z.
    """

    x: Float64[Tensor, " d"]
    y: Float64[Tensor, " d"]
    z: Float64[Tensor, " d"]
    first: float
    second: float
    direct: float

    @property
    def slack(self) -> float:
        """See `relative_slack`."""
        first, second, direct = torch.tensor([self.first, self.second, self.direct], dtype=torch.float64)
        return float(relative_slack(first, second, direct, floor=0.0))


def relative_slack(first: Tensor, second: Tensor, direct: Tensor, floor: float) -> Tensor:
    """Return by how much the path through a third point is longer than the direct one.

    Below 0 the triangle inequality fails, and the number is a share of the direct distance. Otherwise it is a multiple
    of the shorter of the two parts: 0 if y is on the direct path, 2 if it is a pure detour. It is infinite if a side is
    so short that rounding errors matter.

    Args:
        first: Distances from x to y.
        second: Distances from y to z.
        direct: Distances from x to z.
        floor: Length up to which a side is too short.
    """
    through, shorter = first + second, torch.minimum(first, second)
    excess = through - direct
    detour = torch.where(shorter > floor, excess.clamp_min(0.0) / shorter, torch.inf)
    fails = (excess < -TOLERANCE * direct) & (direct > floor)
    slack = torch.where(fails, excess / direct, detour)
    slack = torch.where(direct.isinf(), -torch.inf, slack)
    return torch.where(through.isinf(), torch.inf, slack)


def worst_triples(
    matrix: Float64[Tensor, "m m"], middles: Int64[Tensor, " k"], floor: float
) -> tuple[Float64[Tensor, " k"], Int64[Tensor, "k 3"]]:
    """Return the smallest slack through each middle point over all end points, and the triple that attains it.

    Args:
        matrix: Distances between all points.
        middles: Indices of the points to pass through.
        floor: Length up to which sides are left out.
    """
    size = len(matrix)
    slacks, triples = [], []
    for y in middles.tolist():
        slack = relative_slack(matrix[:, y, None], matrix[None, y, :], matrix, floor).flatten()
        flat = int(slack.argmin())
        slacks.append(slack[flat])
        triples.append(torch.tensor([flat // size, y, flat % size]))
    if not slacks:
        return matrix.new_zeros(0), torch.zeros(0, 3, dtype=torch.int64)
    return torch.stack(slacks), torch.stack(triples)


def descend(
    distance: Distance,
    domain: Domain,
    starts: Float64[Tensor, "k 3 d"],
    *,
    hold_middle: bool,
    floor: float,
    steps: int = 150,
    rate: float = 0.05,
) -> tuple[Float64[Tensor, " k"], Float64[Tensor, "k 3 d"]]:
    """Minimise the slack of triples by gradient descent, and return the smallest slack and points of each.

    Args:
        distance: Distance function; without gradients, the descent stops after one step.
        domain: Domain that the points stay in.
        starts: Triples x, y, z to start from.
        hold_middle: Whether y stays fixed.
        floor: Length up to which sides do not count.
        steps: Number of Adam steps.
        rate: Learning rate of Adam.
    """
    count, _, dim = starts.shape
    free = domain.free(starts.flatten(0, 1)).view(count, 3, dim).clone().requires_grad_()
    optimiser = torch.optim.Adam([free], lr=rate)
    best, best_points = torch.full((count,), torch.inf, dtype=torch.float64), starts.clone()
    for _ in range(steps):
        points = domain.place(free.flatten(0, 1)).view(count, 3, dim)
        middle = starts[:, 1] if hold_middle else points[:, 1]
        ends = points[:, 0], points[:, 2]
        first, second, direct = (distance(*pair).diagonal() for pair in ((ends[0], middle), (middle, ends[1]), ends))
        slack = relative_slack(first, second, direct, floor)
        better = slack.detach() < best
        best = torch.where(better, slack.detach(), best)
        moved = torch.stack([ends[0], middle, ends[1]], dim=1).detach()
        best_points = torch.where(better[:, None, None], moved, best_points)
        if not slack.requires_grad:
            break
        (slope,) = torch.autograd.grad(torch.where(slack.isfinite(), slack, 0.0).sum(), free)
        free.grad = slope.nan_to_num(0.0, 0.0, 0.0)
        optimiser.step()
    return best, best_points


# Result of an audit, with a wording that separates proofs from searches.

Kind = Literal["metric", "weak-metric", "semi-metric", "not a semi-metric"]


@final
@dataclass(frozen=True)
class MetricVerdict:
    """Result of the audit of a distance.

    Attributes:
        subject: Name of the distance.
        domain: Domain of the points.
        kind: Strongest kind without a counterexample.
        proved: Strongest kind that is proved; None if there is only the search.
        proof: Argument of the proof.
        faults: Violations of the axioms of a semi-metric, one sentence each.
        pairs: Number of pairs searched for these.
        worst: Triple with the smallest slack.
        triples: Number of triples searched.
        worst_through_vertices: Worst triple that passes through a vertex (a label); None if there are no vertices.
        triples_through_vertices: Number of triples through vertices searched.
        vertices: Number of vertices passed through.
    """

    subject: str
    domain: str
    kind: Kind
    proved: Kind | None
    proof: str
    faults: tuple[str, ...]
    pairs: int
    worst: Triple
    triples: int
    worst_through_vertices: Triple | None
    triples_through_vertices: int
    vertices: int

    @property
    def sentence(self) -> str:
        """Verdict in one sentence."""
        if self.kind == self.proved:
            other = "; not a metric: the worst triple breaks the triangle inequality" if self.kind != "metric" else ""
            return f"{self.kind}, proved: {self.proof}{other}."
        proof = f" Proved: {self.proved} ({self.proof})." if self.proved else ""
        if self.kind == "metric":
            return f"no violation of a metric's axioms in {self.triples:,} triples, which is not a proof.{proof}"
        if self.kind == "weak-metric":
            return (
                f"not a metric; through the {self.vertices} vertices no violation in {self.triples_through_vertices:,} "
                f"triples (weak-metric), which is not a proof.{proof}"
            )
        if self.kind == "semi-metric":
            return (
                f"not a metric; no violation of a semi-metric's axioms in {self.pairs:,} pairs, which is not a proof."
            )
        return f"not a semi-metric: {'; '.join(self.faults)}."

    def __str__(self) -> str:
        lines = [f"{self.subject} on {self.domain}: {self.sentence}"]
        if not self.faults:
            lines += ["", *_described("worst triple", self.worst)]
        if not self.faults and self.worst_through_vertices is not None:
            lines += ["", *_described("worst triple through a vertex", self.worst_through_vertices)]
        return "\n".join(lines)


def _described(title: str, triple: Triple) -> list[str]:
    points = zip("xyz", (triple.x, triple.y, triple.z), strict=True)
    sides = f"{triple.first:.4f} + {triple.second:.4f} = {triple.first + triple.second:.4f}"
    relation = f"d(x,z) = {triple.direct:.4f}"
    return [
        f"{title}:",
        *(f"  {name} = {_shown(point.tolist())}" for name, point in points),
        f"  d(x,y) + d(y,z) = {sides}, {f'less than {relation}: it fails' if triple.slack < 0 else relation}",
    ]


def _shown(point: list[float]) -> str:
    shown = ", ".join(f"{value:.4g}" for value in point[:8])
    return f"({shown}{', ...' if len(point) > 8 else ''})"


POINTS = 96  # points in a random set, of which all triples are searched
STARTS = 32  # triples that gradient descent starts from
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
    """Search for points that violate the axioms, and return the strongest kind of distance that remains.

    A semi-metric is 0 for equal points, above 0 for others, and symmetric. In a metric no path through a third point is
    shorter than the direct one. In a weak-metric this holds at least for paths through some points: here, through all
    vertices of the domain.

    The search covers all triples of the domain's landmarks (grids, lines and vertices) and of sets of random points and
    points half-way between them. Then gradient descent reduces the slack of the worst triples, and of as many through
    vertices.

    Args:
        distance: Function from n and m points to an n x m matrix.
        domain: Domain of the points.
        name: Name of the distance.
        triples: Smallest number of triples to search.
        seed: Seed of the random points.
        proved: Kind that is proved.
        proof: Argument of the proof.

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
        slack, worst_indices = worst_triples(matrix, torch.arange(len(points)), 1e-3 * scale)
        candidates = list(zip(slack.tolist(), points[worst_indices], strict=True))
        worst = sorted([*worst, *candidates], key=lambda pair: pair[0])[:STARTS]
        worst_through = sorted([*worst_through, *candidates[:corners]], key=lambda pair: pair[0])[:STARTS]
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
    """Yield sets of points, each with the vertices first, until they have the requested number of triples."""
    landmarks = torch.cat([domain.vertices, _others(domain.landmarks, domain.vertices)])
    yield landmarks
    left = triples - len(landmarks) ** 3
    while left > 0:
        drawn = domain.draw(POINTS // 2, generator)
        near = 10.0 ** (-2 * torch.rand(POINTS // 4, 1, generator=generator, dtype=torch.float64))
        # Points on the line between two others, and close to one of them: where y of a bad triple tends to be.
        halves = domain.place(_mean(domain, drawn[: POINTS // 4], drawn[POINTS // 4 :], near))
        points = torch.cat([domain.vertices, drawn, halves])
        yield points
        left -= len(points) ** 3


def _mean(domain: Domain, first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Return the free parameters of points between two others: on a convex set, those of the weighted mean."""
    return domain.free((1 - share / 2) * first + share / 2 * second)


def _others(points: Tensor, existing: Tensor) -> Tensor:
    if not len(existing):
        return points
    return points[(points[:, None] - existing[None]).abs().amax(2).amin(1) > 0]


def _distances(distance: Distance, points: Tensor, name: str) -> Tensor:
    with torch.no_grad():
        matrix = distance(points, points.clone())
    if matrix.shape != (len(points), len(points)):
        raise InputError(
            f"{name} must map n and m points to an n x m matrix; for {len(points)} and {len(points)} points it has "
            f"the shape {list(matrix.shape)}."
        )
    if matrix.isnan().any():
        row, column = matrix.isnan().nonzero()[0].tolist()
        raise NotFinite(f"{name} is NaN between {points[row].tolist()} and {points[column].tolist()}.")
    if not (matrix.isfinite() & (matrix > 0)).any():
        raise InputError(f"{name} is nowhere above 0 and finite, so it is not a distance.")
    return matrix.double()


def _faults(points: Tensor, matrix: Tensor) -> dict[str, str]:
    """Return the violations of the axioms of a semi-metric."""
    scale = float(matrix[matrix.isfinite()].abs().max())
    apart = (points[:, None] - points[None]).norm(dim=2)
    faults: dict[str, str] = {}

    def note(kind: str, amount: Tensor, limit: float, words: str) -> None:
        flat = int(amount.argmax())
        if float(amount.flatten()[flat]) > limit:
            row, column = divmod(flat, len(points))
            faults[kind] = words.format(
                d=float(matrix[row, column]),
                back=float(matrix[column, row]),
                x=_short(points[row]),
                y=_short(points[column]),
            )

    note("negative", -matrix, TOLERANCE * scale, "d(x,y) = {d:.4g} is below 0 for x = {x}, y = {y}")
    note("itself", torch.diag(matrix.diagonal()), TOLERANCE * scale, "d(x,x) = {d:.4g}, not 0, for x = {x}")
    clearly = apart > 0.1 * float(apart.max())
    zero = torch.where(clearly & (matrix.abs() <= 1e-12 * scale), 1.0, 0.0)
    note("zero", zero, 0.5, "d(x,y) = 0 for the different points x = {x}, y = {y}")
    both = matrix.isfinite() & matrix.T.isfinite()
    askew = torch.where(both, (matrix - matrix.T).abs(), torch.where(matrix == matrix.T, 0.0, math.inf))
    note("symmetry", askew, TOLERANCE * scale, "d(x,y) = {d:.4g} but d(y,x) = {back:.4g} for x = {x}, y = {y}")
    return faults


def _short(point: Tensor) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in point[:6].tolist()) + (", ...)" if len(point) > 6 else ")")


def _triple(distance: Distance, points: Tensor) -> Triple:
    with torch.no_grad():
        matrix = distance(points, points.clone())
    x, y, z = points
    return Triple(x, y, z, float(matrix[0, 1]), float(matrix[1, 2]), float(matrix[0, 2]))
