"""The chapter on thresholds says what `verify` returns."""

from __future__ import annotations

import re

import pytest

from vicinal.evaluation import verify
from vicinal.leaderboard import leaderboards
from vicinal.report.chapters.same_or_different import verification_chapter

pytestmark = pytest.mark.unit


def test_the_chapter_says_what_python_returns(tmp_path, make_comparison):
    (board,) = leaderboards([make_comparison(tmp_path / "runs", losses=["proxy_anchor", "triplet"], seeds=[0])])
    (chapter,) = verification_chapter(board)
    run = board.of_network()[0].typical(board.score)
    items = run.test_items()
    found = verify(items.embeddings, items.labels, distance=run.record.distance)
    chart, table = chapter.blocks
    assert f"EER {100 * found['EER']:.1f} %" in chart.panels[0].alt
    assert len(re.findall("<svg", chart.panels[0].svg)) == 1
    thresholds = {row[0] for row in table.rows}
    assert thresholds == {f"{value:.4f}" for name, value in found.thresholds.items() if name != "accuracy"}
    assert table.rows[0][2] == f"{100 * (1 - found['EER']):.1f}"
