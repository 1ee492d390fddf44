"""LoRA: small matrices added to the linear maps of a network, trained in their place and merged at the end."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from torch import nn

from vicinal.backbones import Backbone
from vicinal.errors import InputError, MissingExtra

__all__ = ["add_lora", "merge_lora", "merged"]

SCALE = 2  # factor of the product of the small matrices: the authors' usual ratio of alpha to rank
Module = TypeVar("Module", bound=nn.Module)


def add_lora(backbone: Backbone, rank: int) -> None:
    """Freeze a backbone and add trainable low-rank matrices to its linear maps, in place.

    The network computes the same function as before until they are trained. Stages that are already frozen get none.

    Formula:
        W x  becomes  W x + 2 B A x, with A [rank, in] random and B [out, rank] zero

    Args:
        backbone: Backbone with linear maps, as transformers have; convolutions are left unchanged.
        rank: Rank of the product B A: 4 to 16 is usual.

    Reference:
        Hu et al., LoRA: Low-rank adaptation of large language models, ICLR 2022.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise MissingExtra("lora", "lora_rank") from None
    # Exact types: parts of torch's attention are subclasses of linear maps that are never called.
    linear = [
        name for name, module in backbone.named_modules() if type(module) is nn.Linear and module.weight.requires_grad
    ]
    if not linear:
        raise InputError(
            f"{type(backbone).__name__} has no trainable linear layers, which lora_rank needs: "
            "use a transformer (backbone = 'transformers' or 'timm'), or train_stages for this network."
        )
    backbone.requires_grad_(False)
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules=linear), backbone)
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_("lora_" in name)


def merge_lora(network: nn.Module) -> None:
    """Merge the matrices of `add_lora` into their linear maps and remove them, in place."""
    for name, module in [(name, module) for name, module in network.named_modules() if _is_adapted(module)]:
        adapted: Any = module
        adapted.merge()
        parent, _, own = name.rpartition(".")
        setattr(network.get_submodule(parent), own, adapted.get_base_layer())
    for module in network.modules():
        vars(module).pop("peft_config", None)


def merged(network: Module) -> Module:
    """Return the network itself, or a merged copy if it contains matrices of `add_lora`."""
    if not any(_is_adapted(module) for module in network.modules()):
        return network
    alike = copy.deepcopy(network)
    merge_lora(alike)
    return alike


def _is_adapted(module: nn.Module) -> bool:
    return hasattr(module, "lora_A") and hasattr(module, "base_layer")
