"""What vicinal needs of a machine, and where it keeps what can be computed again."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vicinal._util.machine import cores, peak_memory_mib
from vicinal.backbones.weights import fetch, weights_cache
from vicinal.data import arrays
from vicinal.embedder import Embedder
from vicinal.training.feature_cache import frozen_features

pytestmark = pytest.mark.unit


def test_the_cache_moves_weights_and_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VICINAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    name = f"net-{hashlib.sha256(b'weights').hexdigest()[:8]}.pth"
    path = tmp_path / "cache" / "weights" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"weights")
    assert weights_cache() == path.parent
    assert fetch(f"https://nowhere.invalid/{name}") == path  # found there, and not fetched

    data = arrays(np.zeros((3, 16, 16), dtype=np.uint8), np.array([0, 0, 1]))
    embedder = Embedder("convnet", dim=None, options={"widths": [4], "size": 16})
    frozen_features(embedder, data, embedder.transform, progress=False)
    kept = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert kept == {"cache/weights", "cache/features"}


BLOCKED = """
import sys
sys.modules["fcntl"] = sys.modules["resource"] = None
import vicinal as vc
import vicinal.runs._train
from vicinal._util.machine import peak_memory_mib
assert peak_memory_mib() == 0.0
recipe = vc.Recipe(data="digits", dim=4, classes_per_batch=2, validation=0.4).changed(
    steps=1, evaluate_every=0, backbone_options={"widths": [4], "size": 8}
)
run = vc.train(recipe, folder=sys.argv[1], progress=False)
assert (run.record.steps, run.record.peak_memory_mib) == (1, 0.0)
"""


def test_a_system_without_fcntl_and_resource(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(tmp_path / "run")], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


def test_memory_and_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peak_memory_mib() > 10
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    most = cores()
    assert most >= 1
    for asked, expected in (("1", 1), ("100000", most), ("0", most), ("many", most)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert cores() == expected
