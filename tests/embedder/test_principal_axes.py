"""Principal axes: those of scikit-learn, in a head that centres and projects."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from vicinal.embedder.head import principal_axes, principal_head
from vicinal.errors import InputError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("rows", [200, 5])
def test_the_head_is_the_projection_of_scikit_learn(rows, monkeypatch):
    monkeypatch.setattr("vicinal.embedder.head.ROWS", 64)
    rng = np.random.default_rng(0)
    features = (rng.normal(size=(rows, 8)) * np.arange(1, 9) + 3).astype(np.float32)
    head = principal_head(principal_axes(features), 3)
    expected = PCA(3, svd_solver="full").fit(features).transform(features)
    found = head.unnormalised(torch.from_numpy(features)).detach().numpy()
    assert np.abs(found) == pytest.approx(np.abs(expected), abs=1e-4)
    assert torch.linalg.norm(head(torch.from_numpy(features)), dim=1).detach().numpy() == pytest.approx(np.ones(rows))


def test_axes_are_a_basis_whatever_the_rows():
    axes = principal_axes(np.ones((2, 5), np.float32)).axes
    assert axes @ axes.T == pytest.approx(np.eye(5))
    with pytest.raises(InputError, match="at least one row"):
        principal_axes(np.empty((0, 5), np.float32))
    with pytest.raises(InputError, match="1 to 5 axes"):
        principal_head(principal_axes(np.ones((2, 5), np.float32)), 6)
