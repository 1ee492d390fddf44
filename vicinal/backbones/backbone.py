"""Interface of backbones: a module from images to feature maps, its input, and its stages."""

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
    """Input that a backbone expects.

    Attributes:
        pixels: Conversion of bytes to numbers, a name in `vicinal.data.images.PIXELS`; None for feature
            vectors, which are used unchanged.
        channels: Number of colour channels of an image, or length of a feature vector.
        size: Height and width of the images; 0 for vectors.
        short_side: Length that the short side of a test image is scaled to before the centre crop;
            None scales the whole image to `size`.
        resampling: Interpolation of test images, a name in `vicinal.data.images.FILTERS`.
    """

    pixels: Pixels | None
    channels: int
    size: int = 0
    short_side: int | None = None
    resampling: str = "bilinear"


class Backbone(nn.Module):
    """Interface of a backbone: declarations only; it adds nothing else to `torch.nn.Module`.

    `forward` maps images [n, c, h, w] to feature maps [n, channels, i, j], or vectors to vectors.

    Attributes:
        channels: Number of channels of the feature maps, or length of the vectors.
        input: Input that the backbone expects.
        stages: Named stages of the network from input to output, each a tuple of submodule names;
            together they hold all parameters. Fine-tuning trains the last stage first.
    """

    channels: int
    input: Input
    stages: Mapping[str, tuple[str, ...]]


@runtime_checkable
class Fetched(Protocol):
    """A downloaded backbone that knows the options to rebuild it without another download."""

    options: Mapping[str, Any]


@runtime_checkable
class InStages(Protocol):
    """A backbone whose `forward` runs its stages in sequence, so that it can be split between two of them."""

    stages: Mapping[str, tuple[str, ...]]

    def run_stage(self, stage: str, maps: Tensor) -> Tensor:
        """Return the output of a stage, given the output of the previous one."""
        ...


# Split a backbone between two of its stages, so that each part can be run separately.

Module = TypeVar("Module", bound=nn.Module)


@final
class Stages(nn.Module):
    """Some stages of a backbone that share its layers, so that both are trained together; no stages are the identity.

    Args:
        backbone: Backbone with the stages; not changed.
        stages: Names of consecutive stages.
    """

    def __init__(self, backbone: Backbone, stages: Sequence[str]) -> None:
        super().__init__()
        # A shallow copy, so that only the layers of these stages are part of this module.
        self.layers = _pruned(backbone, [name.split(".") for stage in stages for name in backbone.stages[stage]])
        self.names = tuple(stages)

    def forward(self, maps: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Return the output of the stages for images, or for the maps of the stage before."""
        for stage in self.names:
            maps = self.layers.run_stage(stage, maps)  # type: ignore[operator]  # checked in `cut`
        return maps


def cut(backbone: Backbone, train_stages: int) -> tuple[Stages, Stages]:
    """Return the first and the last stages of a backbone; run in sequence they equal its `forward`.

    Args:
        backbone: Backbone with a method `run_stage`.
        train_stages: Number of stages of the second part.

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
    """Return the module with only the submodules on the paths; a path keeps everything below its end."""
    if any(not path for path in paths):
        return module
    pruned = copy.copy(module)
    pruned._modules = {
        name: _pruned(child, below)
        for name, child in module.named_children()
        if (below := [path[1:] for path in paths if path[0] == name])
    }
    return pruned


# Frozen parts of a backbone.

BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def frozen_modules(backbone: Backbone, *, train_stages: int | None = None, batch_norm: bool = False) -> tuple[str, ...]:
    """Return the names of the submodules of a backbone that get no gradient and stay in evaluation mode.

    Args:
        backbone: The network; its `stages` are counted from the output.
        train_stages: Number of the last stages that are trained; None trains all, 0 none.
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
