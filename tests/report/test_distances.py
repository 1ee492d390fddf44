"""The chapter on the distances that losses measure with."""

from pathlib import Path

import pytest

from vicinal.leaderboard import leaderboards
from vicinal.report.blocks import Chart, Prose, Table
from vicinal.report.chapters.audits import distance_audits


def test_every_known_loss_is_audited_by_its_own_distance(make_comparison, tmp_path: Path) -> None:
    folder = make_comparison(tmp_path, losses=("proxy_anchor", "multi_similarity", "triplet"), seeds=(0,))
    (chapter,) = distance_audits(leaderboards([folder])[0])
    (table,) = chapter.blocks
    assert isinstance(table, Table)
    found = {row[0]: row for row in table.rows}
    assert found["cosine"][1:3] == ("proxy_anchor, multi_similarity", "semi-metric")
    assert float(str(found["cosine"][4]).removesuffix(" %")) == pytest.approx(50.0, abs=1)  # half way on an arc
    assert found["euclidean"][1:3] == ("triplet", "metric")


def test_runs_on_class_probabilities_show_what_is_proved(tmp_path: Path) -> None:
    from vicinal.comparing import compare

    small = {"classes_per_batch": 2, "backbone_options": {"widths": [8, 16], "size": 16}}
    compare(
        "digits",
        ["metric_cross_entropy", "weak_metric_cross_entropy"],
        out=tmp_path,
        steps=8,
        jobs=1,
        progress=False,
        **small,
    )
    (chapter,) = distance_audits(leaderboards([tmp_path])[0])
    verdicts, region, proved, scores = chapter.blocks
    assert isinstance(region, Chart)
    assert isinstance(verdicts, Table)
    assert isinstance(proved, Table)
    assert isinstance(scores, Table)
    assert {row[1]: row[2] for row in verdicts.rows} == {
        "metric_cross_entropy": "metric",
        "weak_metric_cross_entropy": "weak-metric",
    }
    numbers = {row[0]: [str(cell) for cell in row[1:]] for row in proved.rows}
    epsilon, between_labels, within, at_most, between, at_least = map(float, numbers["metric_cross_entropy"][:6])
    assert within <= at_most == pytest.approx(2 * epsilon, abs=0.011)
    assert between >= at_least == pytest.approx(between_labels - 2 * epsilon, abs=0.021)
    assert numbers["weak_metric_cross_entropy"][5] == "none"
    assert {row[1] for row in scores.rows} == {"seen", "new"}


def test_a_run_whose_files_are_gone_is_named(tmp_path: Path) -> None:
    from vicinal.comparing import compare

    small = {"classes_per_batch": 2, "backbone_options": {"widths": [8], "size": 8}, "keep_models": False}
    compare("digits", ["metric_cross_entropy"], out=tmp_path, steps=2, jobs=1, progress=False, **small)
    (chapter,) = distance_audits(leaderboards([tmp_path])[0])
    note = chapter.blocks[-1]
    assert isinstance(note, Prose)
    assert note.text.startswith("No bounds for metric_cross_entropy")
