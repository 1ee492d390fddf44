"""Several models joined."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vicinal.errors import InputError
from vicinal.evaluation import concatenate

pytestmark = pytest.mark.unit


def test_the_joined_similarity_is_the_mean_of_the_models_similarities():
    rng = np.random.default_rng(0)
    models = [rng.standard_normal((7, d)) * 10**d for d in (2, 3, 5)]
    joined = concatenate(models)
    assert joined.shape == (7, 10)
    units = [model / np.linalg.norm(model, axis=1, keepdims=True) for model in models]
    mean = sum(unit @ unit.T for unit in units) / 3
    assert (joined @ joined.T).numpy() == pytest.approx(mean, abs=1e-6)


def test_one_model_alone_is_normalised():
    assert torch.allclose(concatenate([[[3.0, 4.0]]]), torch.tensor([[0.6, 0.8]]))


def test_bad_input():
    with pytest.raises(InputError, match="at least one model, got none"):
        concatenate([])
    with pytest.raises(InputError, match=r"same items in the same order; got \[2, 3\]"):
        concatenate([np.eye(2), np.eye(3)])
    with pytest.raises(InputError, match="embeddings of model 1 are empty"):
        concatenate([np.eye(2), np.zeros((0, 2))])
