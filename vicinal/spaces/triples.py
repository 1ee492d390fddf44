"""The worst triangle: among all triples of some points, and by moving points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vicinal.spaces.domains import Domain

__all__ = ["TOLERANCE", "Distance", "Triple", "descend", "relative_slack", "worst_triples"]

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
