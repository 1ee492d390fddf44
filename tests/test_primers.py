"""The primers do what the thesis says of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy.signal import correlate2d
from torch import nn

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def primers() -> ModuleType:
    path = Path(__file__).parents[1] / "examples" / "primers.py"
    described = importlib.util.spec_from_file_location("primers", path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def test_the_perceptron_converges_where_a_line_divides_and_not_on_xor(primers: ModuleType) -> None:
    rng = np.random.default_rng(1)
    points = np.vstack([rng.normal((-1, 0), 0.3, (40, 2)), rng.normal((1, 0), 0.3, (40, 2))])
    labels = np.repeat([-1, 1], 40)
    weights, passes = primers.perceptron(points, labels)
    assert passes is not None
    assert (labels * (points @ weights[:2] + weights[2]) > 0).all()
    assert primers.perceptron(primers.XOR, primers.ODD, passes=1000)[1] is None


def test_a_hidden_layer_solves_xor(primers: ModuleType) -> None:
    network = primers.mlp(primers.XOR, primers.ODD)
    with torch.no_grad():
        found = network(torch.from_numpy(primers.XOR).float())[:, 0].numpy()
    assert (np.sign(found) == primers.ODD).all()


def test_convolution_against_scipy(primers: ModuleType) -> None:
    rng = np.random.default_rng(0)
    image, kernel = rng.normal(size=(7, 9)), rng.normal(size=(3, 2))
    np.testing.assert_allclose(primers.convolve(image, kernel), correlate2d(image, kernel, mode="valid"), atol=1e-12)


def test_batch_norm_has_mean_zero_and_variance_one(primers: ModuleType) -> None:
    batch = 3 + 2 * torch.randn(64, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = primers.normalise_batch(batch)
    torch.testing.assert_close(found.mean(0), torch.zeros(5, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.var(0, unbiased=False), torch.ones(5, dtype=torch.float64), atol=1e-4, rtol=0)
    layer = nn.BatchNorm1d(5).double()
    torch.testing.assert_close(found, layer(batch).detach())


def test_the_gradient_of_shared_weights_is_the_sum_of_both_branches(primers: ModuleType) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    left, right = torch.randn(2, 8, 4, dtype=torch.float64)
    shared, one, other = primers.siamese_gradients(network, left, right)
    torch.testing.assert_close(shared, one + other)
    assert one.abs().sum() > 0


def test_the_picture(primers: ModuleType, tmp_path: Path) -> None:
    primers.picture().savefig(tmp_path / "primers.png", dpi=40)
    assert (tmp_path / "primers.png").stat().st_size > 1000
