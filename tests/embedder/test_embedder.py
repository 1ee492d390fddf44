"""The embedder: freezing, features, encoding."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from vicinal.backbones import build_backbone
from vicinal.data import CentreCrop, Dataset, Fit
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError

pytestmark = pytest.mark.unit


def norms(embedder):
    return [module for module in embedder.modules() if isinstance(module, nn.BatchNorm2d)]


def test_the_transform_is_the_backbones_own_unless_given():
    assert Embedder("mobilenet_v2", dim=8).transform == CentreCrop(224, 256, "imagenet")
    assert Embedder("bn_inception", dim=8).transform == CentreCrop(227, 256, "bn_inception")
    assert Embedder("convnet", dim=8).transform == Fit(32, "grey")
    assert Embedder("linear", dim=8, options={"features": 4}).transform is None
    assert Embedder("convnet", dim=8, transform=Fit(28, "ink")).transform == Fit(28, "ink")


def test_embeddings_are_the_heads_view_of_the_features(embedder):
    batch = torch.randn(4, 3, 16, 16)
    embedder.eval()
    assert embedder.features(batch).shape == (4, 8)
    torch.testing.assert_close(embedder.head(embedder.features(batch)), embedder(batch))
    assert embedder(batch).shape == (4, embedder.dim) == (4, 5)


def test_frozen_batch_norm_survives_train_and_a_copy(embedder):
    embedder.freeze(batch_norm=True)
    for model in (embedder, copy.deepcopy(embedder)):
        before = copy.deepcopy(model.state_dict())
        model.train()
        assert model.training
        model(torch.randn(8, 3, 16, 16)).sum().backward()
        assert not any(norm.training for norm in norms(model))
        assert not any(parameter.requires_grad for norm in norms(model) for parameter in norm.parameters())
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        assert model.backbone.get_submodule("blocks.0.0").weight.grad is not None


def test_batch_norm_moves_when_it_is_not_frozen(embedder):
    embedder.train()
    before = norms(embedder)[0].running_mean.clone()
    embedder(torch.randn(8, 3, 16, 16))
    assert not torch.equal(norms(embedder)[0].running_mean, before)


def test_only_the_last_stages_are_trained(embedder):
    embedder.freeze(train_stages=1).train()
    embedder(torch.randn(8, 3, 16, 16)).sum().backward()
    first, last = (list(embedder.backbone.get_submodule(f"blocks.{i}").parameters()) for i in (0, 1))
    assert all(parameter.grad is None for parameter in first)
    assert all(parameter.grad is not None for parameter in last)
    assert [norm.training for norm in norms(embedder)] == [False, True]
    assert embedder.head.linear.weight.grad is not None


def test_a_frozen_backbone_leaves_the_head_to_train_and_can_be_freed_again(embedder):
    embedder.freeze(train_stages=0)
    assert [name for name, p in embedder.named_parameters() if p.requires_grad] == [
        "head.linear.weight",
        "head.linear.bias",
    ]
    embedder.freeze().train()
    assert all(parameter.requires_grad for parameter in embedder.parameters())
    assert all(norm.training for norm in norms(embedder))


def test_all_kinds_of_input_give_the_same_embeddings(embedder, images, paths):
    expected = embedder.encode(paths)
    assert expected.shape == (7, 5)
    assert expected.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, rtol=1e-6)
    dataset = Dataset(tuple(map(str, paths)), np.zeros(7, np.int64), ("a",))
    tensors = torch.stack([embedder.transform(Image.fromarray(image)) for image in images])
    for inputs in (
        [str(path) for path in paths],
        [Image.fromarray(image) for image in images],
        images,
        list(images),
        [paths[0], Image.fromarray(images[1]), *images[2:]],
        tensors,
        dataset,
    ):
        assert np.array_equal(embedder.encode(inputs), expected)
    for one in (paths[0], str(paths[0]), Image.fromarray(images[0]), images[0], tensors[0]):
        np.testing.assert_allclose(embedder.encode(one), expected[:1], atol=1e-6)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_batches_and_workers_do_not_change_order_or_values(embedder, images, workers, batch_size):
    expected = embedder.encode(images, workers=0)
    found = embedder.encode(images, workers=workers, batch_size=batch_size)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_bfloat16_stays_close(embedder, images):
    expected = embedder.encode(images)
    half = embedder.encode(images, precision="bfloat16")
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, expected, atol=0.05)
    assert not np.array_equal(half, expected)


def test_encoding_leaves_the_mode_and_running_statistics_alone(embedder, images):
    embedder.train()
    before = copy.deepcopy(embedder.state_dict())
    embedder.encode(images)
    assert embedder.training
    assert all(torch.equal(value, before[key]) for key, value in embedder.state_dict().items())


def test_nothing_gives_no_embeddings(embedder):
    assert embedder.encode([]).shape == (0, 5)
    assert embedder.encode(np.empty((0, 20, 20, 3), np.uint8)).shape == (0, 5)


def test_grey_stacks_are_images_and_grey_files_fit_colour_networks(embedder, images):
    grey = Embedder("convnet", dim=5)
    assert grey.encode(images[..., 0]).shape == (7, 5)
    assert grey.encode(images[0, :, :, 0]).shape == (1, 5)
    assert grey.encode(images[0, :, :, :1]).shape == (1, 5)
    assert embedder.encode(images[..., 0]).shape == (7, 5)


def test_vectors_go_through_one_linear_map():
    torch.manual_seed(0)
    embedder = Embedder("linear", dim=2, normalisation="none", options={"features": 3})
    vectors = np.random.default_rng(0).normal(size=(4, 3))
    weight, bias = (p.detach().numpy() for p in embedder.head.linear.parameters())
    np.testing.assert_allclose(embedder.encode(vectors), vectors @ weight.T + bias, rtol=1e-5, atol=1e-6)
    assert embedder.encode(vectors[0]).shape == (1, 2)
    raw = Embedder("linear", dim=None, normalisation="none", options={"features": 3})
    np.testing.assert_array_equal(raw.encode(vectors), vectors.astype(np.float32))
    with pytest.raises(InputError, match=r"vectors of 3 numbers; got float64 \[4\]"):
        embedder.encode(np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"vectors of 3 numbers; got bird\.jpg"):
        embedder.encode("bird.jpg")


def test_any_callable_is_a_transform_and_gets_rgb(paths):
    seen = []

    def transform(image):
        seen.append(image.mode)
        return torch.full((3, 16, 16), 0.5)

    backbone = {"in_channels": 3, "widths": [4], "size": 16}
    Embedder("convnet", dim=5, transform=transform, options=backbone).encode([paths[0], Image.new("LA", (9, 9))])
    assert seen == ["RGB", "RGB"]


@pytest.mark.parametrize("workers", [0, 2])
def test_files_that_cannot_be_read_are_named(embedder, paths, tmp_path, workers):
    (tmp_path / "broken.png").write_bytes(paths[0].read_bytes()[:300])
    (tmp_path / "text.png").write_text("no image")
    for name in ("broken.png", "text.png", "absent.png"):
        with pytest.raises(DataError, match=f"{name} cannot be read as an image"):
            embedder.encode([*paths, tmp_path / name], workers=workers)


def test_a_dataset_is_embedded_within_its_boxes_and_names_its_bad_files(embedder, images, paths, tmp_path):
    (tmp_path / "broken.png").write_bytes(paths[0].read_bytes()[:300])
    files = (str(paths[0]), str(paths[1]), str(tmp_path / "broken.png"))
    boxes = np.array([[2, 3, 12, 13], [np.nan] * 4, [np.nan] * 4])
    dataset = Dataset(files, np.zeros(3, np.int64), ("a",), boxes=boxes)
    expected = embedder.encode([images[0, 3:13, 2:12], images[1]])
    np.testing.assert_allclose(embedder.encode(dataset.subset([0, 1])), expected, atol=1e-6)
    for bad in (dataset, Dataset(files, np.zeros(3, np.int64), ("a",))):
        with pytest.raises(DataError, match=r"broken\.png cannot be read as an image"):
            embedder.encode(bad)


def test_arrays_that_are_no_images_are_refused(embedder):
    with pytest.raises(InputError, match=r"uint8 \[h, w\] or .* got float32 \[8, 8, 3\]"):
        embedder.encode(np.zeros((8, 8, 3), np.float32))
    with pytest.raises(InputError, match=r"got uint8 \[8, 8, 7\]"):
        embedder.encode([np.zeros((8, 8, 7), np.uint8)])


def test_tensors_of_two_sizes_and_bad_numbers_are_refused(embedder):
    with pytest.raises(InputError, match=r"one shape after the transform; got \[\(3, 16, 16\), \(3, 20, 20\)\]"):
        embedder.encode([torch.zeros(3, 16, 16), torch.zeros(3, 20, 20)])
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        embedder.encode([torch.zeros(3, 16, 16)], batch_size=0)


def test_a_backbone_of_ones_own_works_but_takes_no_options(images):
    own = build_backbone("convnet", in_channels=3, size=16)
    assert Embedder(own, dim=5).encode(images).shape == (7, 5)
    with pytest.raises(InputError, match="built already"):
        Embedder(own, dim=5, options={"size": 16})


@pytest.mark.real
def test_published_features_retrieve_birds_they_never_saw(real_data):
    """Ten of the hundred test classes of CUB, 12 photographs each; chance is about 9 %."""
    embedder = Embedder("mobilenet_v2", dim=None, weights=real_data / "weights" / "mobilenet_v2-b0353104.pth")
    classes = sorted((real_data / "CUB_200_2011" / "images").iterdir())[100:200:10]
    photographs = [path for folder in classes for path in sorted(folder.glob("*.jpg"))[:12]]
    labels = np.repeat(np.arange(10), 12)
    embeddings = embedder.encode(photographs)
    assert embeddings.shape == (120, 1280)
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -np.inf)
    assert (labels[similarity.argmax(axis=1)] == labels).mean() > 0.6
