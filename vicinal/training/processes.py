"""The processes that train together: those that torchrun started, or this one alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from vicinal.errors import InputError
from vicinal.training.settings import Settings

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["is_first_process", "start_processes"]


def start_processes(settings: Settings) -> Fabric:
    """Join the processes of a torchrun, one per device, or start alone on one device.

    The process group exists from here on, which samplers and criterions ask for their part of a batch.
    """
    from lightning_fabric import Fabric  # takes seconds to import
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    together = int(os.environ["WORLD_SIZE"]) if TorchElasticEnvironment.detect() else 1
    here = int(os.environ["LOCAL_WORLD_SIZE"]) if together > 1 else 1
    try:
        fabric = Fabric(
            accelerator=settings.accelerator,
            devices=here,
            num_nodes=together // here,
            strategy="ddp" if together > 1 else "auto",
            precision=settings.precision,
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"Cannot train with accelerator={settings.accelerator!r}, precision={settings.precision!r} on "
            f"{here} devices here: {error} Use accelerator='auto', or as many processes as there are devices."
        ) from None
    fabric.launch()
    return fabric


def is_first_process() -> bool:
    """Return whether this process is the one that writes and prints."""
    return not (torch.distributed.is_initialized() and torch.distributed.get_rank())
