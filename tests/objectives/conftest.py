"""Random pairs for the tests of objectives, the naive oracles, and the comparison with another library."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from vicinal.objectives import OBJECTIVES, traits_of


@dataclass
class Pairs:
    """A matrix, its masks, and what a criterion would supply to the objective."""

    matrix: Tensor
    positive: Tensor
    negative: Tensor
    supplied: dict[str, Tensor] = field(default_factory=dict)

    def loss(self, name: str, **options: Any) -> Tensor:
        return OBJECTIVES[name](self.matrix, self.positive, self.negative, **self.supplied, **options)


def compare(geometry: str, a: Tensor, b: Tensor) -> Tensor:
    """The geometries from their definitions, by differences and explicit norms."""
    if geometry == "dot":
        return torch.einsum("nd,md->nm", a, b)
    if geometry == "cosine":
        return torch.einsum("nd,md->nm", a, b) / a.norm(dim=1)[:, None] / b.norm(dim=1)[None]
    a, b = a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True)
    squared = (a[:, None] - b[None]).square().sum(2)
    return squared if geometry == "squared_euclidean" else squared.sqrt()


def make_pairs(name: str, kind: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Pairs:
    """Pairs of a random batch (classes of 4, 3, 2 and 1) with itself, or with two proxies for each of 4 classes."""
    generator = torch.Generator().manual_seed(seed)
    traits = traits_of(OBJECTIVES[name])
    assert traits is not None
    labels = torch.tensor([0, 1, 0, 2, 3, 1, 0, 2, 1, 0])
    anchors = torch.randn(10, 3, generator=generator, dtype=dtype)
    if kind == "batch":
        references, reference_labels, itself = anchors, labels, torch.eye(10, dtype=torch.bool)
    else:
        anchors, labels = anchors[:7], labels[:7]
        reference_labels = torch.arange(4).repeat_interleave(2)
        references = torch.randn(8, 3, generator=generator, dtype=dtype)
        itself = torch.zeros(7, 8, dtype=torch.bool)
    same = labels[:, None] == reference_labels[None]
    offered = {
        "reference_labels": reference_labels,
        "reference_matrix": compare(traits.geometry, references, references),
    }
    return Pairs(
        compare(traits.geometry, anchors, references),
        same & ~itself,
        ~same,
        {need: offered[need] for need in traits.needs},
    )


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Turn the run-time check of shapes off, which is there in tests only and would speak before our own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def pairs() -> Callable[..., Pairs]:
    return make_pairs


@pytest.fixture(scope="session")
def oracles() -> ModuleType:
    """The module of naive loops beside this file."""
    spec = importlib.util.spec_from_file_location("objective_oracles", Path(__file__).with_name("oracles.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def naive(oracles: ModuleType) -> Callable[..., float]:
    """The value of an objective by the naive loops."""

    def value(name: str, pairs: Pairs, **options: Any) -> float:
        supplied = {key: tensor.tolist() for key, tensor in pairs.supplied.items()}
        rows, P, N = pairs.matrix.tolist(), pairs.positive.tolist(), pairs.negative.tolist()
        return float(oracles.ORACLES[name](rows, P, N, **supplied, **options))

    return value


def value_and_gradient(loss: Callable[..., Tensor], embeddings: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    leaf = embeddings.detach().clone().requires_grad_()
    value = loss(leaf, *arguments)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


@pytest.fixture(scope="session")
def same_as_peer() -> Callable[..., None]:
    """Compare value and gradient with respect to the embeddings of two losses, to 1e-5 of their size."""

    def check(ours: nn.Module, peer: Callable[..., Tensor], embeddings: Tensor, labels: Tensor) -> None:
        value, gradient = value_and_gradient(ours, embeddings, labels)
        peer_value, peer_gradient = value_and_gradient(peer, embeddings, labels)
        assert peer_gradient.abs().max() > 1e-6, "the case must not be trivial"
        torch.testing.assert_close(value, peer_value, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient, peer_gradient, rtol=1e-5, atol=1e-6)

    return check


@pytest.fixture(params=[0, 1, 2])
def batch(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    """Thirty embeddings of six classes, five of each, in float64."""
    generator = torch.Generator().manual_seed(request.param)
    return torch.randn(30, 8, generator=generator, dtype=torch.float64), torch.arange(6).repeat(5)
