"""Which parts of a backbone stay as they are while the rest is trained."""

from __future__ import annotations

from torch import nn

from vicinal.backbones.backbone import Backbone
from vicinal.errors import InputError

__all__ = ["frozen_modules"]

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
