"""Processes of distributed training, started by torchrun, or a single process."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from vicinal.errors import InputError
from vicinal.training.settings import Settings

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["import_fabric", "is_first_process", "start_processes", "stop_requested"]


def start_processes(settings: Settings) -> Fabric:
    """Join the processes of torchrun, one per device, or start a single process on one device.

    The process group exists afterwards; samplers and criterions use it to get their part of a batch.
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
    if together > 1:
        atexit.register(_leave_group)
    return fabric


def _leave_group() -> None:
    """End the process group before the interpreter ends.

    Fabric does this for NCCL only. The threads of a Gloo group that still exists at exit can abort the process.
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def import_fabric() -> None:
    """Import the packages that `start_processes` needs, in a process of vicinal (not in a user's process).

    Fabric imports torchmetrics if it is installed, which takes twice as long as Fabric itself. vicinal does not use it,
    so it is skipped here. In a user's process it is not, because Fabric's `SpikeDetection` needs it.
    """
    seen_before = "torchmetrics" in sys.modules
    if not seen_before:
        sys.modules["torchmetrics"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import lightning_fabric  # noqa: F401
    finally:
        if not seen_before:
            del sys.modules["torchmetrics"]


def is_first_process() -> bool:
    """Return whether this is the process that writes files and prints."""
    return not (torch.distributed.is_initialized() and torch.distributed.get_rank())


# Ctrl-C and SIGTERM, handled between two steps.


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C or SIGTERM was received; a second signal acts immediately."""
    received: list[int] = []
    former: dict[int, Any] = {}

    def note(number: int, _: Any) -> None:
        received.append(number)
        signal.signal(number, former[number])

    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        try:
            former[number] = signal.signal(number, note)
        except ValueError:  # not in the main thread, where signals cannot be caught
            break
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
