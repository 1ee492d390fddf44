"""Stages run one after the other, layers in any order of memory, batch norm that stands still: the same numbers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vicinal.backbones import Backbone, build_backbone, channels_last, cut
from vicinal.backbones.layers import conv_norm, relu6
from vicinal.embedder import Embedder
from vicinal.errors import InputError

pytestmark = pytest.mark.unit

OPTIONS = {
    "convnet": {"in_channels": 3, "widths": (4, 8, 16)},
    **{
        name: {} for name in ("mobilenet_v2", "efficientnet_lite0", "resnet18", "resnet50", "googlenet", "bn_inception")
    },
}


@pytest.fixture(params=OPTIONS)
def network(request: pytest.FixtureRequest) -> Backbone:
    torch.manual_seed(0)
    backbone = build_backbone(request.param, **OPTIONS[request.param])
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after some training, each channel another
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return backbone


@torch.inference_mode()
def test_both_sides_of_every_cut_make_the_whole(network: Backbone) -> None:
    network.eval()
    images = torch.randn(1, 3, 64, 64)
    expected = network(images)
    parameters = {id(parameter): name for name, parameter in network.named_parameters()}
    for train_stages in range(len(network.stages) + 1):
        trunk, rest = cut(network, train_stages)
        assert len(rest.names) == train_stages
        torch.testing.assert_close(rest(trunk(images)), expected, rtol=0, atol=0)
        held = [id(parameter) for part in (trunk, rest) for parameter in part.parameters()]
        assert sorted(held) == sorted(parameters)
        named = {name.removeprefix("layers."): id(p) for part in (trunk, rest) for name, p in part.named_parameters()}
        assert named == {name: key for key, name in parameters.items()}


@pytest.mark.parametrize(("train_stages", "channels"), [(2, 96), (3, 64)])
def test_mobilenets_last_stages_begin_at_14_pixels(train_stages: int, channels: int) -> None:
    trunk, rest = cut(build_backbone("mobilenet_v2").eval(), train_stages)
    assert rest.names == ("row5", "row6", "row7")[-train_stages:]
    with torch.inference_mode():
        assert trunk(torch.zeros(1, 3, 224, 224)).shape == (1, channels, 14, 14)


def test_what_cannot_be_cut_is_refused() -> None:
    class Whole(Backbone):
        pass

    whole = Whole()
    whole.stages = {"first": (), "second": ()}
    with pytest.raises(InputError, match="Whole has no stages to cut at"):
        cut(whole, 1)
    with pytest.raises(InputError, match=r"between 0 and 4 \(block0, .*\); got 5"):
        cut(build_backbone("convnet"), 5)


def gradients(network: nn.Module, images: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    maps = network(images)
    (maps * torch.linspace(-1, 1, maps.numel()).view(maps.shape)).sum().backward()
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None} | {
        "maps": maps.detach()
    }


def test_frozen_batch_norm_is_folded_and_gradients_are_the_same(
    network: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = network.double()  # gradients of ReLU jump, and rounding would decide to which side
    network.eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(False)
    images = channels_last(torch.randn(1, 3, 64, 64, dtype=torch.float64))
    ran: list[nn.Module] = []
    real = nn.BatchNorm2d.forward

    def counted(norm: nn.BatchNorm2d, maps: Tensor) -> Tensor:
        ran.append(norm)
        return real(norm, maps)

    monkeypatch.setattr(nn.BatchNorm2d, "forward", counted)
    folded = gradients(network, images)
    assert not ran
    with torch.no_grad():
        network(images)
    assert ran  # for inference there are engines
    monkeypatch.setattr(torch, "is_grad_enabled", lambda: False)  # which `conv_norm` asks
    plain = gradients(network, images)
    assert folded.keys() == plain.keys()
    for name in plain:
        torch.testing.assert_close(folded[name], plain[name], rtol=1e-8, atol=1e-10 * float(plain[name].abs().max()))


def test_gradcheck_of_a_convolution_with_batch_norm() -> None:
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(2, 4, 3, stride=2, groups=2).double(), nn.BatchNorm2d(4).double().eval()
    nn.init.uniform_(norm.running_var)
    values = [conv.weight, conv.bias, norm.weight, norm.bias, torch.randn(2, 2, 5, 5).double().requires_grad_()]
    assert torch.autograd.gradcheck(lambda *inputs: conv_norm(conv, norm, inputs[-1]), values)
    torch.testing.assert_close(conv_norm(conv, norm, values[-1]), norm(conv(values[-1])))


def test_relu6_is_torchs() -> None:
    ours, theirs = (torch.tensor([-1.0, 0.0, 2.0, 6.0, 7.0]).view(1, 5, 1, 1).requires_grad_() for _ in range(2))
    rows = [relu6(ours * 1), F.relu6(theirs)]
    assert torch.equal(*rows)
    for row in rows:
        row.square().sum().backward()
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "resnet50"])  # which has nothing of its own
def test_steps_in_either_order_of_memory_end_at_the_same_weights(name: str) -> None:
    torch.manual_seed(0)
    ours = Embedder(name, dim=4, options=dict(OPTIONS[name])).double()
    plain = copy.deepcopy(ours)
    batches = torch.randn(2, 4, 3, 64, 64, dtype=torch.float64)
    for embedder in (ours, plain):
        optimiser = torch.optim.SGD(embedder.parameters(), lr=1e-3)
        for images in batches:
            # What `forward` does but for the order of memory.
            rows = embedder(images) if embedder is ours else embedder.head(embedder.backbone(images))
            (rows @ rows.T).triu(1).sum().backward()
            optimiser.step()
            optimiser.zero_grad()
    for (key, one), other in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        assert one.is_contiguous(), key
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-9 + 1e-6 * float(other.abs().max()))
