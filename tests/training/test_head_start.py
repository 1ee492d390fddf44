"""A head that starts at the principal axes of the features embeds as PCA does before any training."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from vicinal.data import Split, arrays
from vicinal.errors import InputError
from vicinal.runs._train import fit
from vicinal.runs.build import build_embedder
from vicinal.runs.recipe import Recipe
from vicinal.training.frozen import FrozenEmbedder, start_at_principal_axes

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def drawings():
    images = np.random.default_rng(0).integers(0, 255, size=(60, 16, 16), dtype=np.uint8)
    return arrays(images, np.repeat(np.arange(6), 10))


@pytest.mark.parametrize("freeze", [False, True])
def test_the_head_is_the_projection_of_scikit_learn(drawings, freeze, tmp_path):
    options = {"widths": (8, 16), "size": 16}
    recipe = Recipe(dim=5, backbone_options=options, freeze=freeze, normalisation=None)
    features = build_embedder(recipe.changed(dim=None), drawings).encode(drawings)
    embedder = build_embedder(recipe, drawings)
    model = FrozenEmbedder(embedder, cache=tmp_path, progress=False) if freeze else embedder
    start_at_principal_axes(model, drawings)
    ours, theirs = embedder.encode(drawings), PCA(5, svd_solver="full").fit_transform(features)
    signs = np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours, theirs * signs, atol=1e-4)


def test_a_head_that_widens_is_refused(drawings):
    embedder = build_embedder(Recipe(dim=17, backbone_options={"widths": (8, 16), "size": 16}), drawings)
    with pytest.raises(InputError, match="16 to 17: use a smaller dim"):
        start_at_principal_axes(embedder, drawings)


def test_it_is_where_training_starts_and_pretrained_features_have_it_by_default(drawings, tmp_path):
    small = {
        "backbone_options": {"widths": (8, 16), "size": 16}, "dim": 5, "steps": 1, "classes_per_batch": 2,
        "learning_rate": 1e-12, "weight_decay": 0.0, "progress": False, "cache": tmp_path, "freeze": True,
    }  # fmt: skip
    split = Split(train=drawings, validation=None, test=None, protocol="by hand")
    heads = {start: fit(split, head_start=start, **small).head.linear.weight for start in (None, "random", "pca")}
    rows = heads["pca"] @ heads["pca"].T
    assert torch.allclose(rows, torch.eye(5), atol=1e-4)
    assert torch.equal(heads[None], heads["random"])  # a network that starts from nothing has no features yet
    weights = tmp_path / "weights.pth"
    whole = build_embedder(Recipe.of({name: small[name] for name in ("backbone_options", "dim")}), drawings)
    torch.save(whole.backbone.state_dict(), weights)
    pretrained = fit(split, weights=str(weights), **small).head.linear.weight
    assert torch.allclose(pretrained @ pretrained.T, torch.eye(5), atol=1e-4)
    # Without a bias nothing can be centred.
    without = fit(split, weights=str(weights), head_bias=False, **small).head.linear.weight
    assert not torch.allclose(without @ without.T, torch.eye(5), atol=1e-4)
    with pytest.raises(InputError, match="without a bias"):
        fit(split, weights=str(weights), head_bias=False, head_start="pca", **small)
