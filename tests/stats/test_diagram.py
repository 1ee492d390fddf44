"""The critical-difference diagram: what is drawn, and that nothing is drawn over anything else."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from vicinal.literature import thesis_tables
from vicinal.objectives import OBJECTIVES
from vicinal.stats import Tournament, plot_critical_difference, tournament

pytestmark = pytest.mark.unit


def drawn(names: list[str], experiments: int = 20, step: float = 0.4) -> Tournament:
    rng = np.random.default_rng(0)
    return tournament(
        {f"e{row}": {name: rng.normal(step * at, 1) for at, name in enumerate(names)} for row in range(experiments)}
    )


def texts(figure: Figure) -> list[Text]:
    return [text for text in figure.axes[0].texts if text.get_text()]


def boxes(figure: Figure) -> dict[str, Bbox]:
    renderer = FigureCanvasAgg(figure).get_renderer()
    return {f"{at} {text.get_text()}": text.get_window_extent(renderer) for at, text in enumerate(texts(figure))}


@pytest.mark.parametrize("count", [2, 3, 10, 15, 24])
def test_no_two_labels_collide_and_none_leaves_the_figure(count: int):
    figure = plot_critical_difference(drawn(sorted(OBJECTIVES)[:count]))
    found = boxes(figure)
    assert [(one, other) for one, other in combinations(found, 2) if found[one].overlaps(found[other])] == []
    page = figure.bbox
    assert [
        name for name, box in found.items() if box.x0 < 0 or box.y0 < 0 or box.x1 > page.x1 or box.y1 > page.y1
    ] == []


def test_every_method_is_labelled_with_its_mean_rank():
    found = tournament(thesis_tables())
    shown = [text.get_text() for text in texts(plot_critical_difference(found))]
    assert set(found.methods) <= set(shown)
    assert {"1.00", "8.58", "10.00"} <= set(shown)
    assert "critical difference 3.91" in shown
    assert "mean rank over 12 experiments; Friedman p < 0.001" in shown


def test_bars_join_the_groups_of_several_methods():
    found = tournament(thesis_tables())
    bars = [line for line in plot_critical_difference(found).axes[0].lines if line.get_linewidth() == 3.5]
    assert len(bars) == len([group for group in found.groups if len(group) > 1]) == 4
    ends = sorted((float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in bars)
    assert len(set(ends)) == 4


def test_too_few_experiments_are_said_to_tell_nothing():
    shown = [text.get_text() for text in texts(plot_critical_difference(drawn(["a", "b", "c"], experiments=2)))]
    assert any("longer than the axis: no difference can be significant" in text for text in shown)
    assert not any("Friedman" in text.get_text() for text in texts(plot_critical_difference(drawn(["a", "b"], 1))))


def test_themes_differ_and_names_are_shown_as_they_are(tmp_path):
    found = drawn(["a$b$c", "x" * 60])
    light, dark = plot_critical_difference(found), plot_critical_difference(found, theme="dark")
    assert light.get_facecolor() != dark.get_facecolor()
    shown = [text.get_text() for text in texts(light)]
    assert r"a\$b\$c" in shown
    assert "x" * 31 + "…" in shown
    dark.savefig(tmp_path / "ranks.svg")
    assert "a$b$c" in (tmp_path / "ranks.svg").read_text() or (tmp_path / "ranks.svg").stat().st_size > 1000
