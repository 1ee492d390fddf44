"""Domains of points for audits: random points, landmarks to try first, and a parametrisation to optimise in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float64
from torch import Tensor

from vicinal.errors import InputError
from vicinal.pairs import to_sphere

__all__ = ["DOMAINS", "Domain", "cube", "simplex", "space", "sphere"]

Points = Float64[Tensor, "_ _"]


@final
@dataclass(frozen=True)
class Domain:
    """Set of points.

    Attributes:
        name: Name for use in a sentence.
        dim: Number of coordinates.
        landmarks: Points where the triangle inequality is likely to fail: lines, circles, centres.
        vertices: Points through which the triangle inequality may hold even if it fails through others: the labels.
        draw: Function from a number and a generator to that number of random points.
        place: Function from free parameters to points, with gradients.
        free: Function from points to free parameters, approximate where there are no exact ones.
    """

    name: str
    dim: int
    landmarks: Points
    vertices: Points
    draw: Callable[[int, torch.Generator], Tensor]
    place: Callable[[Tensor], Tensor]
    free: Callable[[Tensor], Tensor]


def cube(dim: int = 1) -> Domain:
    """Return the numbers between 0 and 1, or vectors of them; its vertices are the vectors of 0 and 1.

    Example:
        >>> cube(1).vertices.tolist()
        [[0.0], [1.0]]
    """
    _check(dim, 1)
    # All corners of the first 4 dimensions; the other coordinates are 0.
    corners = _rows(itertools.product((0.0, 1.0), repeat=min(dim, 4)), dim)
    line = torch.linspace(0, 1, 65, dtype=torch.float64)[:, None].expand(-1, dim)
    levels = _rows(itertools.product((0.0, 0.25, 0.5, 0.75, 1.0), repeat=min(dim, 2)), dim)
    return Domain(
        "the interval [0, 1]" if dim == 1 else f"the cube [0, 1]^{dim}",
        dim,
        _distinct(torch.cat([line, levels])),
        corners,
        lambda n, generator: torch.rand(n, dim, generator=generator, dtype=torch.float64),
        torch.sigmoid,
        lambda points: points.clamp(1e-6, 1 - 1e-6).logit(),
    )


def simplex(classes: int = 3) -> Domain:
    """Return the vectors of class probabilities; its vertices are the labels.

    Example:
        >>> simplex(2).vertices.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    _check(classes, 2)
    labels = torch.eye(classes, dtype=torch.float64)
    share = torch.linspace(0, 1, 65, dtype=torch.float64)[:, None]
    edge = share * labels[0] + (1 - share) * labels[1]
    few = labels[:8]
    halves = torch.stack([(first + second) / 2 for first, second in itertools.combinations(few, 2)])
    centre = torch.full((1, classes), 1 / classes, dtype=torch.float64)

    def draw(n: int, generator: torch.Generator) -> Tensor:
        # From nearly certain to nearly uniform, like soft-max outputs in the course of training.
        sharpness = 10 ** (2 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 0.5)
        return (sharpness * torch.randn(n, classes, generator=generator, dtype=torch.float64)).softmax(1)

    return Domain(
        f"the simplex of {classes} classes",
        classes,
        _distinct(torch.cat([edge, halves, centre])),
        few,
        draw,
        lambda free: free.softmax(1),
        lambda points: points.clamp_min(1e-9).log(),
    )


def sphere(dim: int = 3) -> Domain:
    """Return the vectors of length one; it has no vertices.

    Example:
        >>> sphere(2).landmarks.norm(dim=1).max().item()
        1.0
    """
    _check(dim, 2)
    angles = torch.linspace(0, 2 * math.pi, 65, dtype=torch.float64)[:-1]
    circle = torch.zeros(64, dim, dtype=torch.float64)
    circle[:, 0], circle[:, 1] = angles.cos(), angles.sin()
    circle[circle.abs() < 1e-12] = 0.0
    axes = torch.eye(dim, dtype=torch.float64)[2:]
    return Domain(
        f"the unit sphere in {dim} dimensions",
        dim,
        torch.cat([circle, axes, -axes]),
        torch.zeros(0, dim, dtype=torch.float64),
        lambda n, generator: to_sphere(torch.randn(n, dim, generator=generator, dtype=torch.float64)),
        to_sphere,
        lambda points: points,
    )


def space(dim: int = 3) -> Domain:
    """Return all vectors; there are no vertices.

    Example:
        >>> space(2).dim
        2
    """
    _check(dim, 1)
    line = torch.zeros(33, dim, dtype=torch.float64)
    line[:, 0] = torch.linspace(-2, 2, 33, dtype=torch.float64)
    axes = torch.eye(dim, dtype=torch.float64)[1:]
    return Domain(
        f"the space of {dim} dimensions",
        dim,
        torch.cat([line, axes, -axes, 2 * axes]),
        torch.zeros(0, dim, dtype=torch.float64),
        lambda n, generator: torch.randn(n, dim, generator=generator, dtype=torch.float64),
        lambda free: free,
        lambda points: points,
    )


DOMAINS: dict[str, Callable[[int], Domain]] = {"cube": cube, "simplex": simplex, "space": space, "sphere": sphere}


def _distinct(points: Tensor) -> Tensor:
    return torch.tensor(sorted({tuple(point) for point in points.tolist()}), dtype=torch.float64)


def _rows(short: itertools.product[tuple[float, ...]], dim: int) -> Tensor:
    """Return rows padded with zeros."""
    rows = torch.tensor(list(short), dtype=torch.float64)
    return torch.cat([rows, rows.new_zeros(len(rows), dim - rows.shape[1])], dim=1)


def _check(dim: int, least: int) -> None:
    if dim < least:
        raise InputError(f"Points of this domain need at least {least} coordinates; got {dim}.")
