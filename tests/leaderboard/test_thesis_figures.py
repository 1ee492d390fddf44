"""The example that draws the thesis' figures: all six files, and widths as the thesis describes them."""

from __future__ import annotations

import math
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

FILE = Path(__file__).parents[2] / "examples" / "thesis_figures.py"


def test_the_figures_of_the_thesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(FILE), "--out", str(tmp_path / "thesis")])
    runpy.run_path(str(FILE), run_name="__main__")
    names = [f"figure-{number}.svg" for number in range(27, 33)]
    assert sorted(path.name for path in (tmp_path / "thesis").iterdir()) == names


def test_widths_of_figure_32_are_those_that_the_thesis_describes() -> None:
    own_loss_edges = runpy.run_path(str(FILE))["own_loss_edges"]
    pulls, pushes = own_loss_edges("proxy_repulsion")
    assert pulls["star far", "star"] > pulls["star near", "star"]  # the further item gets the larger gradient,
    assert pushes["star", "square"] > pushes["star", "circle"]  # and the nearer proxy
    assert len(pulls) == 6
    assert len(pushes) == 3
    anchor_pulls, anchor_pushes = own_loss_edges("proxy_anchor")
    assert anchor_pulls == pytest.approx(pulls)  # the two losses differ in what they push
    assert len(anchor_pushes) == 12
    near, far = (math.exp(-3 * (math.cos(math.radians(angle)) - 0.1)) for angle in (22, 58))
    assert pulls["star near", "star"] == pytest.approx(
        near / (1 + near + far), rel=1e-5
    )  # slope 3, mean over 3 proxies
