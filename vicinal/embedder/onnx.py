"""Export a network to ONNX: a file that is checked against the network, or a graph in memory for `encode`."""

from __future__ import annotations

import io
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal._util.files import replacing
from vicinal.errors import DataError

__all__ = ["export_onnx", "graph_in_memory"]

TOLERANCE = 1e-4
OPSET = 17  # the first version with layer norm
EXPORTING = threading.Lock()  # torch's exporters keep their state in globals


def export_onnx(network: nn.Module, sample: Float[Tensor, "n ..."], path: Path, metadata: Mapping[str, str]) -> float:
    """Write a network as ONNX with a dynamic batch size, then run the file and compare.

    The file is written only if its output agrees with the network's.

    Args:
        network: Network with one tensor as input; in evaluation mode.
        sample: Input of at least 2 items, used for the comparison.
        path: File to write, including the weights.
        metadata: Entries to store in the file.

    Returns:
        Largest absolute difference, over the sample and over its first item alone.
    """
    import onnx  # slow to import
    import onnxruntime

    model = _trace(network, sample)
    onnx.helper.set_model_props(model, dict(metadata))
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    difference = 0.0
    for batch in (sample, sample[:1]):
        with torch.inference_mode():
            expected = network(batch).numpy()
        (actual,) = session.run(None, {"inputs": batch.numpy()})
        difference = float(np.maximum(difference, np.abs(actual - expected).max()))
    if not difference <= TOLERANCE:
        raise DataError(
            f"The exported graph differs from the network by {difference:.2g}, more than {TOLERANCE:g}; "
            f"{path} was not written.",
            hint="Please report it with the versions of torch, onnx and onnxscript.",
        )
    with replacing(path) as file:
        file.write(content)
    return difference


def graph_in_memory(network: nn.Module, sample: Float[Tensor, "n ..."], *, patient: bool = True) -> bytes:
    """Return a network as an ONNX graph with a dynamic batch size, by torch's fastest exporter that works.

    The tracing exporter takes a second for MobileNetV2; the one based on `torch.export`, which `export_onnx` uses,
    takes 18 (and needs onnxscript). The latter supports more operators, and is tried second.

    Args:
        network: Network with one tensor as input; in evaluation mode, on the CPU.
        sample: Input of at least 2 items.
        patient: Whether the slow exporter is tried if the fast one fails.
    """
    try:
        with EXPORTING, _quietly(), _plain_attention(), torch.no_grad(), io.BytesIO() as file:
            torch.onnx.export(
                network,
                (sample,),
                file,  # type: ignore[arg-type]
                input_names=["inputs"],
                output_names=["embeddings"],
                dynamic_axes={"inputs": {0: "batch"}, "embeddings": {0: "batch"}},
                opset_version=OPSET,
                dynamo=False,
            )
            return file.getvalue()
    except Exception:  # the exporter raises many kinds of errors for unsupported operators
        if not patient:
            raise
        return _trace(network, sample).SerializeToString()


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Switch off torch's fused transformer layer, which no exporter supports."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _quietly() -> Iterator[None]:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it lists every missing torchvision operator
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporters warn about their own internals
            yield
    finally:
        logger.setLevel(level)


def _trace(network: nn.Module, sample: Tensor) -> Any:
    with EXPORTING, _quietly(), torch.no_grad():
        program = torch.onnx.export(
            network,
            (sample,),
            input_names=["inputs"],
            output_names=["embeddings"],
            dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise DataError("torch.onnx.export returned no graph.")
    return program.model_proto
