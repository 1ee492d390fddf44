"""The chapter on bytes says what `score_sizes` returns."""

from __future__ import annotations

import numpy as np
import pytest

from vicinal.evaluation.sizes import score_sizes
from vicinal.leaderboard import leaderboards
from vicinal.report.chapters import costs as bytes_per_item
from vicinal.report.chapters.costs import size_chapter

pytestmark = pytest.mark.unit


def test_the_chapter_says_what_python_returns(tmp_path, make_comparison, monkeypatch):
    (board,) = leaderboards([make_comparison(tmp_path / "runs", losses=["proxy_anchor", "triplet"], seeds=[0])])
    monkeypatch.setattr(bytes_per_item, "score_sizes", lambda rows, labels: score_sizes(rows, labels, dims=[2, 4]))
    (chapter,) = size_chapter(board)
    items = board.of_network()[0].typical(board.score).test_items()
    sizes = score_sizes(items.embeddings, items.labels, dims=[2, 4])
    chart, table = chapter.blocks
    assert "<svg" in chart.panels[0].svg
    assert [row[3] for row in table.rows] == [f"{100 * size.scores['MAP@R']:.2f}" for size in sizes]
    assert table.rows[0][5] == "100"


def test_large_sets_are_scored_by_whole_classes(monkeypatch):
    monkeypatch.setattr(bytes_per_item, "MOST", 50)
    labels = np.repeat(np.arange(40), 5)
    places = bytes_per_item._whole_classes(labels)
    assert len(places) == 50
    assert np.bincount(labels[places]).max() == 5
    assert set(np.bincount(labels[places])) <= {0, 5}
