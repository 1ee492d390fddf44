"""The networks: published sizes and names, shapes, gradients."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch import nn

from vicinal.backbones import BACKBONES, Backbone, build_backbone
from vicinal.backbones.layers import IMAGENET_MEAN, IMAGENET_STD, renormalise
from vicinal.errors import InputError, UnknownName

pytestmark = pytest.mark.unit

PUBLISHED = ["resnet18", "resnet50", "googlenet", "bn_inception", "mobilenet_v2", "efficientnet_lite0"]


@pytest.fixture(scope="module")
def built() -> dict[str, Backbone]:
    torch.manual_seed(0)
    return {name: build_backbone(name).eval() for name in PUBLISHED}


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("googlenet", 6_624_904),
        ("bn_inception", 11_295_240),
        ("mobilenet_v2", 3_504_872),
        ("efficientnet_lite0", 4_652_008),
    ],
)
def test_parameters_and_a_1000_way_classifier_make_the_published_total(built, name, total):
    assert parameters(built[name]) + 1000 * (built[name].channels + 1) == total


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("resnet18", {"layer2.0.downsample.0.weight": (128, 64, 1, 1), "layer4.1.bn2.running_var": (512,)}),
        ("resnet50", {"layer1.0.conv3.weight": (256, 64, 1, 1), "layer3.5.conv2.weight": (256, 256, 3, 3)}),
        ("googlenet", {"inception3a.branch3.1.conv.weight": (32, 16, 3, 3), "conv1.bn.weight": (64,)}),
        ("bn_inception", {"conv1_7x7_s2.weight": (64, 3, 7, 7), "inception_3a_1x1.weight": (64, 192, 1, 1)}),
        ("mobilenet_v2", {"features.1.conv.0.0.weight": (32, 1, 3, 3), "features.18.0.weight": (1280, 320, 1, 1)}),
        ("efficientnet_lite0", {"_blocks.3._depthwise_conv.weight": (144, 1, 5, 5), "_bn1.running_var": (1280,)}),
    ],
)
def test_known_parameters_have_their_published_names_and_shapes(built, name, known):
    state = built[name].state_dict()
    assert {key: tuple(state[key].shape) for key in known} == known


@pytest.mark.parametrize(
    ("name", "entries", "digest"),
    [("resnet18", 122, "46bd7814ec81a02c"), ("resnet50", 320, "eeb21a877a7592d7")],
)
def test_every_name_and_shape_of_the_residual_networks(built, name, entries, digest):
    """The digest is of a listing written out separately after torchvision's source, classifier included."""
    state = {key: tuple(value.shape) for key, value in built[name].state_dict().items()}
    state |= {"fc.weight": (1000, built[name].channels), "fc.bias": (1000,)}
    listing = "".join(f"{key} {shape}\n" for key, shape in sorted(state.items()))
    assert len(state) == entries
    assert hashlib.sha256(listing.encode()).hexdigest().startswith(digest)


def test_every_name_and_shape_of_googlenet(built):
    """The digest is of a listing written out separately after torchvision's source, all classifiers included."""
    state = {key: tuple(value.shape) for key, value in built["googlenet"].state_dict().items()}
    state |= {"fc.weight": (1000, 1024), "fc.bias": (1000,)}
    for aux, channels in (("aux1", 512), ("aux2", 528)):
        state |= {f"{aux}.conv.conv.weight": (128, channels, 1, 1), f"{aux}.conv.bn.num_batches_tracked": ()}
        state |= {f"{aux}.conv.bn.{part}": (128,) for part in ("weight", "bias", "running_mean", "running_var")}
        state |= {f"{aux}.fc1.weight": (1024, 2048), f"{aux}.fc1.bias": (1024,)}
        state |= {f"{aux}.fc2.weight": (1000, 1024), f"{aux}.fc2.bias": (1000,)}
    listing = "".join(f"{key} {shape}\n" for key, shape in sorted(state.items()))
    assert len(state) == 364
    assert hashlib.sha256(listing.encode()).hexdigest().startswith("0fe788ca7bc9fae0")


# Every convolution of BN-Inception, read off the source that its weights were published with:
# name, channels in, channels out, kernel, stride.
BN_INCEPTION = """
conv1_7x7_s2 3 64 7 2
conv2_3x3_reduce 64 64 1 1
conv2_3x3 64 192 3 1
3a_1x1 192 64 1 1 | 3a_3x3_reduce 192 64 1 1 | 3a_3x3 64 64 3 1 | 3a_double_3x3_reduce 192 64 1 1
3a_double_3x3_1 64 96 3 1 | 3a_double_3x3_2 96 96 3 1 | 3a_pool_proj 192 32 1 1
3b_1x1 256 64 1 1 | 3b_3x3_reduce 256 64 1 1 | 3b_3x3 64 96 3 1 | 3b_double_3x3_reduce 256 64 1 1
3b_double_3x3_1 64 96 3 1 | 3b_double_3x3_2 96 96 3 1 | 3b_pool_proj 256 64 1 1
3c_3x3_reduce 320 128 1 1 | 3c_3x3 128 160 3 2 | 3c_double_3x3_reduce 320 64 1 1
3c_double_3x3_1 64 96 3 1 | 3c_double_3x3_2 96 96 3 2
4a_1x1 576 224 1 1 | 4a_3x3_reduce 576 64 1 1 | 4a_3x3 64 96 3 1 | 4a_double_3x3_reduce 576 96 1 1
4a_double_3x3_1 96 128 3 1 | 4a_double_3x3_2 128 128 3 1 | 4a_pool_proj 576 128 1 1
4b_1x1 576 192 1 1 | 4b_3x3_reduce 576 96 1 1 | 4b_3x3 96 128 3 1 | 4b_double_3x3_reduce 576 96 1 1
4b_double_3x3_1 96 128 3 1 | 4b_double_3x3_2 128 128 3 1 | 4b_pool_proj 576 128 1 1
4c_1x1 576 160 1 1 | 4c_3x3_reduce 576 128 1 1 | 4c_3x3 128 160 3 1 | 4c_double_3x3_reduce 576 128 1 1
4c_double_3x3_1 128 160 3 1 | 4c_double_3x3_2 160 160 3 1 | 4c_pool_proj 576 128 1 1
4d_1x1 608 96 1 1 | 4d_3x3_reduce 608 128 1 1 | 4d_3x3 128 192 3 1 | 4d_double_3x3_reduce 608 160 1 1
4d_double_3x3_1 160 192 3 1 | 4d_double_3x3_2 192 192 3 1 | 4d_pool_proj 608 128 1 1
4e_3x3_reduce 608 128 1 1 | 4e_3x3 128 192 3 2 | 4e_double_3x3_reduce 608 192 1 1
4e_double_3x3_1 192 256 3 1 | 4e_double_3x3_2 256 256 3 2
5a_1x1 1056 352 1 1 | 5a_3x3_reduce 1056 192 1 1 | 5a_3x3 192 320 3 1 | 5a_double_3x3_reduce 1056 160 1 1
5a_double_3x3_1 160 224 3 1 | 5a_double_3x3_2 224 224 3 1 | 5a_pool_proj 1056 128 1 1
5b_1x1 1024 352 1 1 | 5b_3x3_reduce 1024 192 1 1 | 5b_3x3 192 320 3 1 | 5b_double_3x3_reduce 1024 192 1 1
5b_double_3x3_1 192 224 3 1 | 5b_double_3x3_2 224 224 3 1 | 5b_pool_proj 1024 128 1 1
"""


def test_every_layer_of_bn_inception(built):
    expected = {}
    for row in BN_INCEPTION.replace("|", "\n").split("\n"):
        if row.strip():
            name, *numbers = row.split()
            expected[name if name.startswith("conv") else f"inception_{name}"] = tuple(map(int, numbers))
    found = {}
    for name, layer in built["bn_inception"].named_children():
        if isinstance(layer, nn.Conv2d):
            found[name] = (layer.in_channels, layer.out_channels, layer.kernel_size[0], layer.stride[0])
            assert layer.bias is not None
            assert layer.padding[0] == layer.kernel_size[0] // 2
            norm = built["bn_inception"].get_submodule(f"{name}_bn")
            assert (norm.num_features, norm.eps) == (layer.out_channels, 1e-5)
    assert found == expected
    assert len(list(built["bn_inception"].children())) == 2 * len(expected)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize(("side", "left"), [(64, 2), (224, 7), (227, 8)])
def test_feature_maps_are_a_32nd_of_the_image(built, name, side, left):
    if side == 227 and name in ("googlenet", "bn_inception"):
        left = 7  # their pooling is not padded: it takes 57 to 28, where padding gives 29
    with torch.inference_mode():
        maps = built[name](torch.zeros(1, 3, side, side))
    assert maps.shape == (1, built[name].channels, left, left)
    assert built[name].input.channels == 3


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_gradient_reaches_every_parameter_and_stages_hold_each_once(name):
    torch.manual_seed(0)
    network = build_backbone(name)
    network(torch.randn(2, 3, 64, 64)).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())
    held = [
        f"{module}.{key}"
        for stage in network.stages.values()
        for module in stage
        for key, _ in network.get_submodule(module).named_parameters()
    ]
    assert sorted(held) == sorted(key for key, _ in network.named_parameters())


def test_googlenet_turns_imagenets_scaling_into_minus_one_to_one():
    pixels = torch.rand(2, 3, 4, 5)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (IMAGENET_MEAN, IMAGENET_STD))
    scaled = renormalise((pixels - mean) / std, mean=(0.5,) * 3, std=(0.5,) * 3)
    torch.testing.assert_close(scaled, 2 * pixels - 1)


@pytest.mark.parametrize(("side", "left"), [(28, 1), (32, 2), (64, 4)])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_convnet_takes_small_images_grey_or_colour(side, left, in_channels):
    network = build_backbone("convnet", in_channels=in_channels)
    maps = network(torch.randn(2, in_channels, side, side))
    assert maps.shape == (2, 256, left, left)
    assert network.input.pixels == {1: "grey", 3: "unit"}[in_channels]
    maps.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("in_channels", [1, 3])
def test_convnet_is_convolution_batch_norm_relu_and_pooling_and_so_are_its_gradients(in_channels):
    network = build_backbone("convnet", in_channels=in_channels, widths=(4, 8)).double()
    images = torch.rand(5, in_channels, 28, 28, dtype=torch.float64)
    plain = images
    for conv, norm in network.blocks:
        plain = nn.functional.max_pool2d(torch.relu(norm(conv(plain))), 2)
    maps = network(images)
    torch.testing.assert_close(maps, plain)
    # In the order of memory in which batch norm and pooling are fastest.
    assert maps.is_contiguous(memory_format=torch.channels_last)
    weights = torch.randn_like(plain)
    ours, theirs = (torch.autograd.grad((out * weights).sum(), list(network.parameters())) for out in (maps, plain))
    torch.testing.assert_close(ours, theirs)


def test_convnet_refuses_what_it_cannot_halve():
    with pytest.raises(InputError, match="at least 16"):
        build_backbone("convnet", size=8)
    with pytest.raises(InputError, match="in_channels=2"):
        build_backbone("convnet", in_channels=2)


def test_linear_passes_vectors_and_checks_their_length():
    network = build_backbone("linear", features=3)
    vectors = torch.randn(4, 3)
    assert network(vectors) is vectors
    assert network.input.pixels is None
    with pytest.raises(InputError, match="3 features; got 5"):
        network(torch.randn(4, 5))
    with pytest.raises(InputError, match="features=0"):
        build_backbone("linear", features=0)


def test_names_and_options_are_checked():
    with pytest.raises(UnknownName, match="did you mean 'resnet50'"):
        build_backbone("resnet51")
    with pytest.raises(InputError, match=r"'convnet' takes in_channels, widths, size; got .*colours"):
        build_backbone("convnet", colours=3)
    with pytest.raises(InputError, match="takes no options"):
        build_backbone("resnet18", width=2)
    with pytest.raises(InputError, match="no published ImageNet weights; these have: resnet18"):
        build_backbone("convnet", weights="imagenet")


def test_published_weights_carry_their_hash():
    published = {name: facts.weights for name, facts in BACKBONES.items() if facts.weights}
    assert sorted(published) == sorted(PUBLISHED)
    assert published["bn_inception"].endswith("/bn_inception-52deb4733.pth")
    assert all(address.startswith(("https://", "package:")) for address in published.values())
