"""ONNX export: the same numbers, any batch size, nothing written when it goes wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from vicinal.embedder import Embedder, onnx
from vicinal.errors import DataError

pytestmark = pytest.mark.recipe


@pytest.mark.parametrize("normalisation", ["sphere", "ball"])
def test_the_file_computes_what_torch_does_at_any_batch_size(tmp_path, normalisation):
    import onnxruntime

    torch.manual_seed(0)
    embedder = Embedder(
        "convnet", dim=4, pooling="both", normalisation=normalisation, options={"widths": [4, 8], "size": 16}
    )
    embedder.train()
    assert embedder.export_onnx(tmp_path / "model.onnx") < 1e-4
    assert embedder.training
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    described = session.get_modelmeta().custom_metadata_map["vicinal.transform"]
    assert json.loads(described) == {"name": "Fit", "size": 16, "pixels": "grey"}
    embedder.eval()
    for n in (1, 2, 9):
        batch = 10 * torch.randn(n, 1, 16, 16)
        with torch.inference_mode():
            expected = embedder(batch).numpy()
        (found,) = session.run(None, {"inputs": batch.numpy()})
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert (np.linalg.norm(found, axis=1) <= 1 + 1e-5).all()


def test_a_graph_that_differs_is_not_written(tmp_path, monkeypatch):
    embedder = Embedder("linear", dim=2, options={"features": 3})
    monkeypatch.setattr(onnx, "TOLERANCE", -1.0)
    with pytest.raises(DataError, match="was not written"):
        embedder.export_onnx(tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
