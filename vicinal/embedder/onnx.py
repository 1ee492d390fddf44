"""Export a network to ONNX, and check the file against the network."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.atomic import replacing
from vicinal.errors import DataError, MissingExtra

__all__ = ["export_onnx"]

TOLERANCE = 1e-4


def export_onnx(network: nn.Module, sample: Float[Tensor, "n ..."], path: Path, metadata: Mapping[str, str]) -> float:
    """Write a network as ONNX with a free batch size, then run the file and compare.

    The file appears only if its output agrees with the network's.

    Args:
        network: Called with one tensor; in evaluation mode.
        sample: An input of at least 2 items, which the comparison uses.
        path: The file to write, weights included.
        metadata: Kept in the file.

    Returns:
        The greatest absolute difference found, over the sample and its first item alone.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError:
        raise MissingExtra("onnx", "Export to ONNX") from None
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
            hint="Report it with the versions of torch, onnx and onnxscript.",
        )
    with replacing(path) as file:
        file.write(content)
    return difference


def _trace(network: nn.Module, sample: Tensor) -> Any:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it names every torchvision operator that it does without
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns about its own insides
            program = torch.onnx.export(
                network,
                (sample,),
                input_names=["inputs"],
                output_names=["embeddings"],
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
                dynamo=True,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    if program is None:
        raise DataError("torch.onnx.export returned no graph.")
    return program.model_proto
