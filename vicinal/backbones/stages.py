"""Cut a backbone between two of its stages, so that each side can be run by itself."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar, final

from jaxtyping import Float
from torch import Tensor, nn

from vicinal.backbones.backbone import Backbone, InStages
from vicinal.errors import InputError

__all__ = ["Stages", "cut"]

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
