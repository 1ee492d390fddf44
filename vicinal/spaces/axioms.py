"""Is a distance a metric, a weak-metric or a semi-metric? Search for what speaks against it."""

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


# The worst triangle: among all triples of some points, and by moving points.

Distance = Callable[[Tensor, Tensor], Tensor]

TOLERANCE = 1e-6  # rounding stays far below it


@final
@dataclass(frozen=True)
class Triple:
    """Two points and one between them.

    Attributes:
        x: Where the way begins.
        y: Where it passes.
        z: Where it ends.
        first: Distance of x and y.
        second: Distance of y and z.
        direct: Distance of x and z.
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
    """Return by how much the way through a third point is longer than the direct one.

    Below 0 the triangle inequality fails, and the number is a share of the direct way. Otherwise it is a multiple of
    the shorter of the two parts: 0 where y lies on the way, 2 where it is a detour. It is infinite where a side is too
    short to be told from rounding.

    Args:
        first: Distances of x and y.
        second: Distances of y and z.
        direct: Distances of x and z.
        floor: What is too short.
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
    """Return the smallest slack through each middle point over all ends, and where it is.

    Args:
        matrix: Distances of points to each other.
        middles: Which points to pass through.
        floor: Sides up to this length are left out.
    """
    size = len(matrix)
    slacks, places = [], []
    for y in middles.tolist():
        slack = relative_slack(matrix[:, y, None], matrix[None, y, :], matrix, floor).flatten()
        place = int(slack.argmin())
        slacks.append(slack[place])
        places.append(torch.tensor([place // size, y, place % size]))
    if not slacks:
        return matrix.new_zeros(0), torch.zeros(0, 3, dtype=torch.int64)
    return torch.stack(slacks), torch.stack(places)


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
    """Move triples down the slope of their slack, and return the smallest slack of each on its way.

    Args:
        distance: With gradients; one without is searched no further.
        domain: Where the points stay.
        starts: Triples x, y, z.
        hold_middle: Leave y where it is.
        floor: Sides up to this length do not count.
        steps: Of Adam.
        rate: Its learning rate.
    """
    count, _, dim = starts.shape
    free = domain.free(starts.flatten(0, 1)).view(count, 3, dim).clone().requires_grad_()
    optimiser = torch.optim.Adam([free], lr=rate)
    best, found = torch.full((count,), torch.inf, dtype=torch.float64), starts.clone()
    for _ in range(steps):
        points = domain.place(free.flatten(0, 1)).view(count, 3, dim)
        middle = starts[:, 1] if hold_middle else points[:, 1]
        ends = points[:, 0], points[:, 2]
        first, second, direct = (distance(*pair).diagonal() for pair in ((ends[0], middle), (middle, ends[1]), ends))
        slack = relative_slack(first, second, direct, floor)
        better = slack.detach() < best
        best = torch.where(better, slack.detach(), best)
        moved = torch.stack([ends[0], middle, ends[1]], dim=1).detach()
        found = torch.where(better[:, None, None], moved, found)
        if not slack.requires_grad:
            break
        (slope,) = torch.autograd.grad(torch.where(slack.isfinite(), slack, 0.0).sum(), free)
        free.grad = slope.nan_to_num(0.0, 0.0, 0.0)
        optimiser.step()
    return best, found


# What an audit found, in words that claim no more than was shown.

Kind = Literal["metric", "weak-metric", "semi-metric", "not a semi-metric"]


@final
@dataclass(frozen=True)
class MetricVerdict:
    """What is known of a distance.

    Attributes:
        subject: Its name.
        domain: Where points lay.
        kind: The strongest of the four that nothing found speaks against.
        proved: The strongest that is proved; None where there is only the search.
        proof: The argument.
        faults: What breaks the axioms of a semi-metric, one sentence each.
        pairs: How many pairs were tried for these.
        worst: The triple with the least slack.
        triples: How many were tried.
        worst_through_vertices: The same among those that pass through a vertex (a label); None where there are none.
        triples_through_vertices: How many of those.
        vertices: How many vertices were passed through.
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
        """The verdict in one sentence."""
        if self.kind == self.proved:
            other = "; not a metric: the worst triple breaks the triangle inequality" if self.kind != "metric" else ""
            return f"{self.kind}, proved: {self.proof}{other}."
        known = f" Proved: {self.proved} ({self.proof})." if self.proved else ""
        if self.kind == "metric":
            return f"no violation of a metric's axioms in {self.triples:,} triples, which is no proof of them.{known}"
        if self.kind == "weak-metric":
            return (
                f"not a metric; through the {self.vertices} vertices no violation in {self.triples_through_vertices:,} "
                f"triples (weak-metric), which is no proof.{known}"
            )
        if self.kind == "semi-metric":
            return f"not a metric; no violation of a semi-metric's axioms in {self.pairs:,} pairs, which is no proof."
        return f"not a semi-metric: {'; '.join(self.faults)}."

    def __str__(self) -> str:
        lines = [f"{self.subject} on {self.domain}: {self.sentence}"]
        if not self.faults:
            lines += ["", *_told("worst triple", self.worst)]
        if not self.faults and self.worst_through_vertices is not None:
            lines += ["", *_told("worst triple through a vertex", self.worst_through_vertices)]
        return "\n".join(lines)


def _told(title: str, triple: Triple) -> list[str]:
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
