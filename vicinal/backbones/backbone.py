"""What every backbone is: a module from images to feature maps, and a few facts about it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, final, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from vicinal.errors import InputError

__all__ = ["Backbone", "Fetched", "InStages", "Input", "Pixels", "Stages", "cut", "frozen_modules"]


Pixels = Literal["imagenet", "bn_inception", "lite", "unit", "grey"]


@dataclass(frozen=True)
class Input:
    """What a backbone expects to be given.

    Attributes:
        pixels: How bytes become numbers, a name in `vicinal.data.images.PIXELS`; None for feature
            vectors, which are taken as they are.
        channels: Colour channels of an image, or the length of a feature vector.
        size: Height and width of the images; 0 for vectors.
        short_side: What the short side of a test image is scaled to before the middle is cut out;
            None scales the whole image to `size`.
        resampling: How the pixels of a test image are interpolated, as in `vicinal.data.images.FILTERS`.
    """

    pixels: Pixels | None
    channels: int
    size: int = 0
    short_side: int | None = None
    resampling: str = "bilinear"


class Backbone(nn.Module):
    """The interface of a backbone: declarations only, nothing is inherited but `torch.nn.Module`.

    `forward` maps images [n, c, h, w] to feature maps [n, channels, i, j], or vectors to vectors.

    Attributes:
        channels: Channels of the feature maps, or length of the vectors.
        input: What the backbone expects to be given.
        stages: The network from input to output in named stages, each a tuple of submodule names;
            together they hold every parameter. The last one is what fine-tuning trains first.
    """

    channels: int
    input: Input
    stages: Mapping[str, tuple[str, ...]]


@runtime_checkable
class Fetched(Protocol):
    """A backbone that came from elsewhere, and knows the options that build it again without going there."""

    options: Mapping[str, Any]


@runtime_checkable
class InStages(Protocol):
    """A backbone whose `forward` runs its stages one after the other, so that it can be cut between two of them."""

    stages: Mapping[str, tuple[str, ...]]

    def run_stage(self, stage: str, maps: Tensor) -> Tensor:
        """Return what a stage makes of the output of the one before it."""
        ...


# Cut a backbone between two of its stages, so that each side can be run by itself.

Module = TypeVar("Module", bound=nn.Module)


@final
class Stages(nn.Module):
    """Some stages of a backbone, with its own layers: what trains one trains the other. None pass on what they get.

    Args:
        backbone: Left as it is.
        stages: Names of stages that follow each other.
    """

    def __init__(self, backbone: Backbone, stages: Sequence[str]) -> None:
        super().__init__()
        # A copy of the outside alone, so that no layers but those of the stages are part of this module.
        self.layers = _pruned(backbone, [name.split(".") for stage in stages for name in backbone.stages[stage]])
        self.names = tuple(stages)

    def forward(self, maps: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Return what the stages make of images, or of the maps that come before them."""
        for stage in self.names:
            maps = self.layers.run_stage(stage, maps)  # type: ignore[operator]  # `cut` has looked
        return maps


def cut(backbone: Backbone, train_stages: int) -> tuple[Stages, Stages]:
    """Return the first stages of a backbone and its last ones; run one after the other they are its `forward`.

    Args:
        backbone: Any with a method `run_stage`.
        train_stages: How many stages the second has.

    Example:
        >>> from vicinal.backbones import build_backbone
        >>> trunk, rest = cut(build_backbone("convnet", widths=(4, 8, 16)), 1)
        >>> trunk.names, rest(trunk(torch.zeros(2, 1, 32, 32))).shape
        (('block0', 'block1'), torch.Size([2, 16, 4, 4]))
    """
    stages = list(backbone.stages)
    if not isinstance(backbone, InStages):
        raise InputError(
            f"{type(backbone).__name__} has no stages to cut at: it cannot be run stage by stage. Freeze all of it "
            "(freeze = true), or none of it (freeze = false)."
        )
    if not 0 <= train_stages <= len(stages):
        raise InputError(f"train_stages must be between 0 and {len(stages)} ({', '.join(stages)}); got {train_stages}.")
    border = len(stages) - train_stages
    return Stages(backbone, stages[:border]), Stages(backbone, stages[border:])


def _pruned(module: Module, paths: Sequence[Sequence[str]]) -> Module:
    """Return the module without what lies on none of the paths; a path keeps all that is below its end."""
    if any(not path for path in paths):
        return module
    pruned = copy.copy(module)
    pruned._modules = {
        name: _pruned(child, below)
        for name, child in module.named_children()
        if (below := [path[1:] for path in paths if path[0] == name])
    }
    return pruned


# Which parts of a backbone stay as they are while the rest is trained.

BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def frozen_modules(backbone: Backbone, *, train_stages: int | None = None, batch_norm: bool = False) -> tuple[str, ...]:
    """Name the submodules of a backbone that are to take no gradient and stay in evaluation mode.

    Args:
        backbone: The network; its `stages` are counted from the output.
        train_stages: How many of the last stages are trained; None trains all, 0 none.
        batch_norm: Whether batch norm is frozen in the trained stages too.

    Example:
        >>> from vicinal.backbones import build_backbone
        >>> frozen_modules(build_backbone("resnet18"), train_stages=1)
        ('conv1', 'bn1', 'layer1', 'layer2', 'layer3')
    """
    stages = list(backbone.stages.values())
    trained = len(stages) if train_stages is None else train_stages
    if not 0 <= trained <= len(stages):
        raise InputError(
            f"train_stages must be between 0 and {len(stages)} for this backbone, whose stages are "
            f"{', '.join(backbone.stages) or 'none'}; got {train_stages}."
        )
    frozen = [name for stage in stages[: len(stages) - trained] for name in stage]
    if batch_norm:
        frozen += [name for name, module in backbone.named_modules() if isinstance(module, BATCH_NORM)]
    return tuple(frozen)
