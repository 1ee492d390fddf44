"""Engines: ways to run one network that give the same numbers at different speeds.

`ENGINES` names them; `make_engine` makes one for a network as it is now. An engine never looks at the network again,
except for "eager", which is the network itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.embedder.folding import fold
from vicinal.embedder.onnx import graph_in_memory
from vicinal.errors import MissingExtra, look_up

__all__ = ["ENGINES", "TOLERANCE", "Engine", "EngineName", "candidates", "device_of", "difference", "make_engine"]

EngineName = Literal["auto", "eager", "folded", "onnxruntime", "autocast"]

TOLERANCE = 1e-4
# Images per call of onnxruntime. With MobileNetV2 at 224 pixels one thread was as fast with 4 to 8 as with 32, and two
# threads were faster (in two short runs on a machine that was not quiet); the memory of a call grows with the number.
IMAGES_PER_CALL = 8


@final
@dataclass(frozen=True)
class Engine:
    """One way to run a network.

    Attributes:
        name: A key of `ENGINES`.
        run: From inputs [n, ...] to float32 rows [n, d] on the CPU.
        concurrent: Whether several threads call it at the same time, each on one core; otherwise one call uses all.
        most: How many items a call should have at most; None leaves it to the caller.
    """

    name: str
    run: Callable[[Tensor], Tensor]
    concurrent: bool = False
    most: int | None = None


def make_engine(
    network: nn.Module, sample: Float[Tensor, "n ..."], name: str = "eager", *, patient: bool = True
) -> Engine:
    """Make an engine for a network with the weights that it has now.

    Args:
        network: Any module from inputs [n, ...] to rows [n, d]: backbone and head, or backbone and pooling. "eager"
            runs it in the mode that it is in; the others run a copy in evaluation mode.
        sample: Inputs of the shape that the engine will be given; their number may differ later.
        name: A key of `ENGINES`.
        patient: Whether a slow way of making it may be tried where the fast one fails.

    Raises:
        MissingExtra: If the engine's library is not installed.
        Exception: Whatever torch or onnxruntime raise for a network that they cannot copy or export.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
        >>> images = torch.randn(2, 3, 8, 8)
        >>> fast, plain = (make_engine(network, images, name).run(images) for name in ("folded", "eager"))
        >>> bool(difference(fast.numpy(), plain.numpy()).max() < 1e-10)
        True
    """
    return look_up("engine", name, ENGINES)(network, sample, patient)


def device_of(network: nn.Module) -> torch.device:
    """Return where a network's parameters are; the CPU if there are none."""
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def candidates(device: torch.device) -> tuple[str, ...]:
    """Return the engines that are worth trying on a device beside "eager"."""
    return {"cpu": ("folded", "onnxruntime"), "cuda": ("folded", "autocast")}.get(device.type, ())


def difference(rows: Float[np.ndarray, "n d"], expected: Float[np.ndarray, "n d"]) -> npt.NDArray[np.float64]:
    """Return how far each row is from what was expected: half the squared relative error.

    Formula:
        ||a - b||^2 / (2 ||b||^2), which is 1 - cos(a, b) for vectors of length 1; elsewhere it sees lengths too

    Where both rows have the same infinities or NaN, the others are compared; where they have not, it is infinite.

    Example:
        >>> difference(np.array([[0.6, 0.8], [3.0, 0.0]]), np.array([[1.0, 0.0], [2.0, 0.0]])).round(3).tolist()
        [0.4, 0.125]
    """
    finite = np.isfinite(expected)
    same = np.where(finite, np.isfinite(rows), ~np.isfinite(rows)).all(axis=1)
    ours, theirs = (np.where(finite & np.isfinite(rows), side, 0).astype(np.float64) for side in (rows, expected))
    error, length = ((ours - theirs) ** 2).sum(axis=1), (theirs**2).sum(axis=1)
    relative = np.divide(error, 2 * length, out=np.where(error > 0, np.inf, 0.0), where=length > 0)
    return np.where(same, relative, np.inf)


def _eager(network: nn.Module, _: Tensor, patient: bool = True) -> Engine:
    device = device_of(network)

    @torch.inference_mode()
    def run(inputs: Tensor) -> Tensor:
        return network(inputs.to(device)).float().cpu()

    return Engine("eager", run)


def _folded(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
    device = device_of(network)
    # Channels last: convolutions then need no rearranging of memory, neither before nor after.
    folded = fold(network, sample[:1].to(device)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def run(inputs: Tensor) -> Tensor:
        inputs = inputs.to(device)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return folded(inputs).float().cpu()

    return Engine("folded", run)


def _onnxruntime(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
    try:
        import onnx  # noqa: F401  torch's exporter needs it
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnx", "The engine onnxruntime") from None
    two = sample[:2] if len(sample) > 1 else torch.cat([sample, sample])  # a batch of 1 would be taken for a constant
    graph = graph_in_memory(copy.deepcopy(network).cpu().eval(), two.cpu(), patient=patient)
    options = onnxruntime.SessionOptions()
    # One thread a call and several calls at once: nothing waits at the end of every layer for the slowest thread.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Tensor:
        parts = torch.split(inputs.cpu(), IMAGES_PER_CALL)
        rows = [session.run(None, {"inputs": part.contiguous().numpy()})[0] for part in parts]
        return torch.from_numpy(rows[0] if len(rows) == 1 else np.concatenate(rows))

    return Engine("onnxruntime", run, concurrent=True, most=IMAGES_PER_CALL)


def _autocast(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
    device = device_of(network)
    copied = copy.deepcopy(network).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def run(inputs: Tensor) -> Tensor:
        inputs = inputs.to(device, non_blocking=True)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.float16 if device.type == "cuda" else torch.bfloat16):
            return copied(inputs).float().cpu()

    return Engine("autocast", run)


ENGINES: Mapping[str, Callable[[nn.Module, Tensor, bool], Engine]] = {
    "eager": _eager,
    "folded": _folded,
    "onnxruntime": _onnxruntime,
    "autocast": _autocast,
}
