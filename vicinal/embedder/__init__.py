"""Embedder: transform, backbone, head and normalisation, with `encode`, `save`, `load` and `export_onnx`."""

from vicinal.embedder._calibrate import calibrate
from vicinal.embedder.calibration import Calibration, Sameness
from vicinal.embedder.embedder import Embedder
from vicinal.embedder.folder import Card
from vicinal.embedder.head import Head, normalise, pool

__all__ = ["Calibration", "Card", "Embedder", "Head", "Sameness", "calibrate", "normalise", "pool"]
