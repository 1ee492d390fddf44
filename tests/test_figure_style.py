"""Figures of the command line have the colours of the report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

import vicinal
from vicinal._util import style as figure_style
from vicinal.objectives import OBJECTIVES
from vicinal.stats.diagram import THEMES
from vicinal.weights import plot_weights, weight_curves

pytestmark = pytest.mark.unit
CSS = (Path(vicinal.__file__).parent / "report" / "templates" / "figures.css").read_text()


def test_the_colours_are_those_of_the_report() -> None:
    light = dict(re.findall(r"--([\w]+): (#[0-9a-f]{6})", CSS.partition("@media")[0]))
    names = {"ink": "INK", "quiet": "QUIET", "faint": "FAINT", "other": "OTHER", "accent": "ACCENT"}
    names |= {"contrast": "CONTRAST", "c2": "GREEN", "c3": "PLUM"}
    assert {name: light[name] for name in names} == {name: getattr(figure_style, own) for name, own in names.items()}
    dark = dict(re.findall(r"--([\w]+): (#[0-9a-f]{6})", CSS.partition("@media")[2]))
    for theme, colours in (("light", light), ("dark", dark)):
        wanted = tuple(colours[name] for name in ("ink", "quiet", "accent", "paper"))
        assert tuple(THEMES[theme]) == wanted


def test_a_figure_has_ink_two_lines_and_a_faint_grid() -> None:
    figure = plot_weights({"triplet": weight_curves(OBJECTIVES["triplet"])})
    axes = figure.axes[0]
    assert {side for side, spine in axes.spines.items() if spine.get_visible()} == {"left", "bottom"}
    assert to_hex(axes.title.get_color()) == figure_style.INK
    assert {to_hex(line.get_color()) for line in axes.get_xgridlines()} == {figure_style.FAINT}
