"""The parts of a report by themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal._util.files import sealed
from vicinal._util.text import duration
from vicinal.evaluation import evaluate
from vicinal.leaderboard import leaderboards
from vicinal.report.blocks import Chart, Prose, Table
from vicinal.report.chapters.costs import size_chapter
from vicinal.report.chapters.curves import proxy_instances, training_curves
from vicinal.report.chapters.equal_conditions import conditions
from vicinal.report.chapters.pair_weights import pair_weight_curves
from vicinal.report.chapters.papers import published_numbers
from vicinal.report.chapters.same_or_different import verification_chapter
from vicinal.report.chapters.standings import leaderboard_tables
from vicinal.report.chapters.winner import _draw_map, pictures
from vicinal.report.drawing import LETTER, Drawing, Scale, number, spread
from vicinal.report.gallery import search

Make = Callable[..., Path]
pytestmark = pytest.mark.unit


def _edit(folder: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Change every record of a journal."""
    path = folder / "journal.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        del record["sha256"]  # of the record as it was
        change(record)
    path.write_bytes(b"".join(sealed(json.dumps(record).encode()) + b"\n" for record in records))


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_spread_labels_keep_their_order_their_gap_and_their_room(places: list[float]) -> None:
    found = spread(places, 10, 0, 200)
    in_order = [found[at] for at in sorted(range(len(places)), key=lambda at: places[at])]
    assert all(after - before >= 10 - 1e-6 for before, after in pairwise(in_order))
    assert min(found) >= -1e-6
    assert max(found) <= 200 + 1e-6


def test_numbers_on_an_axis_do_not_touch_and_its_label_stays_on_the_page() -> None:
    drawing = Drawing(300, 100, "an axis")
    label = "a label that is longer than its axis by far"
    drawing.x_axis(Scale(1, 2048, 20, 120, log=True), 80, label, ticks=[2**power for power in range(12)])
    written = re.findall(r'class="(tick|label)" x="([-\d.]+)"[^>]*>([^<]+)<', str(drawing))
    ends = [(float(x) - 2.9 * len(text), float(x) + 2.9 * len(text)) for kind, x, text in written if kind == "tick"]
    assert 3 < len(ends) < 12
    assert all(after[0] > before[1] for before, after in pairwise(ends))
    (middle,) = (float(x) for kind, x, _ in written if kind == "label")
    assert middle - 1.2 * LETTER * len(label) / 2 >= -0.1  # written with one decimal


def test_labels_that_do_not_touch_stay() -> None:
    assert spread([10.0, 40.0, 90.0], 10, 0, 100) == [10.0, 40.0, 90.0]


def test_the_untrained_network_is_drawn_below_the_losses_and_notes_are_told(
    tmp_path: Path, make_comparison: Make
) -> None:
    make_comparison(tmp_path, losses=["triplet", "contrastive"], seeds=[0])

    def change(record: dict[str, object]) -> None:
        record["notes"] = ["The budget trains next to nothing."]
        record["same_batches"] = True
        if record["name"] == "contrastive":
            record |= {"name": "untrained", "role": "baseline"}

    _edit(tmp_path, change)
    (board,) = leaderboards([tmp_path])
    (chapter,) = leaderboard_tables(board)
    chart, _, *rest = chapter.blocks
    assert isinstance(chart, Chart)
    (panel,) = chart.panels
    assert panel.svg.index(">triplet<") < panel.svg.index(">untrained<")
    assert "dot hollow" in panel.svg
    assert "untrained: untrained" in panel.alt
    assert "the baseline that a loss has to beat" in chart.caption
    assert [block.text for block in rest if isinstance(block, Prose)] == ["Note: The budget trains next to nothing."]
    (alike,) = conditions(board)
    assert "the same batches for all losses" in str(alike)


def test_everything_about_one_model_is_about_the_recommended_one(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["proxy_anchor", "triplet"], seeds=[0, 1], dims=[32])

    def prefer(record: dict[str, Any]) -> None:
        record["validation"] = {"MAP@R": 0.9 if record["name"] == "triplet" else 0.1, "P@1": 0.9}

    _edit(tmp_path, prefer)
    (board,) = leaderboards([tmp_path])
    assert board.of_network()[0].name == "proxy_anchor"  # by test scores
    assert board.best.record.name == "triplet"
    neighbours, drawn, confused = pictures(board)
    assert f"recommended model, triplet (seed {board.best.record.seed})" in neighbours.blocks[-1].caption  # type: ignore[union-attr]
    assert "embeddings of triplet" in drawn.blocks[0].caption  # type: ignore[union-attr]
    assert "by triplet" in confused.blocks[0].caption  # type: ignore[union-attr]
    (verification,) = verification_chapter(board)
    assert "thresholds of triplet" in verification.blocks[1].caption  # type: ignore[union-attr]
    (sizes,) = size_chapter(board)
    assert "MAP@R of triplet" in sizes.blocks[0].panels[0].alt  # type: ignore[union-attr]
    (standings,) = leaderboard_tables(board)
    chart, table, *_ = standings.blocks
    assert isinstance(table, Table)
    assert [row[1] for number, row in enumerate(table.rows) if number in table.best] == ["triplet"]
    assert re.findall(r'class="name strong"[^>]*>([^<]*)<', chart.panels[0].svg) == ["triplet"]  # type: ignore[union-attr]


def test_names_on_the_map_cover_no_points_and_missing_ones_are_listed() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 40)
    names = [f"class number {label}" for label in range(12)]
    drawing, unnamed = _draw_map(rng.normal(size=(480, 2)), labels, np.arange(12), names)
    dots = [(float(x), float(y)) for x, y in re.findall(r'<circle [^>]*cx="([\d.]+)" cy="([\d.]+)"', str(drawing))]
    texts = re.findall(r'<text class="on-map[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)<', str(drawing))
    assert len(dots) == 480
    assert {text for *_, text in texts} | set(unnamed) == set(names)
    for x, y, text in texts:
        half = LETTER * len(text) / 2
        assert not [dot for dot in dots if abs(dot[0] - float(x)) < half and -10 < dot[1] - float(y) < 3]
    crowd = np.stack(np.meshgrid(np.arange(30.0), np.arange(24.0)), axis=-1).reshape(-1, 2)
    names = [f"class with the number {label}" for label in range(12)]
    drawing, unnamed = _draw_map(crowd, np.arange(720) % 12, np.arange(12), names)
    assert 0 < len(unnamed) == 12 - str(drawing).count("on-map") < 12  # some fit at the edge


def test_scale_by_hand() -> None:
    assert Scale(1, 8, 0, 30, log=True)(2) == pytest.approx(10)
    assert Scale(0, 1, 100, 0)(0.25) == 75
    assert Scale(0, 1, 0, 1).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert Scale(3, 3, 10, 20)(3) == 10


def test_numbers_in_words() -> None:
    assert [number(value) for value in (0.1 + 0.2, 1000, 12500, 0)] == ["0.3", "1000", "12.5k", "0"]
    assert duration(59.96) == "60.0 s"
    assert duration(3600.0) == "1 h 0 min"


def test_means_and_intervals_are_those_of_the_evaluation(tmp_path: Path, make_comparison: Make) -> None:
    (board,) = leaderboards([make_comparison(tmp_path, losses=["triplet"], seeds=[0, 1, 2])])
    (entry,) = board.entries
    values = [record.test["MAP@R"] for record in board.records]
    assert entry.mean("MAP@R") == pytest.approx(np.mean(values))
    over_seeds, over_classes = entry.over_seeds("MAP@R"), entry.over_classes("MAP@R")
    assert over_seeds is not None
    assert sum(over_seeds) / 2 == pytest.approx(entry.mean("MAP@R"))
    # The interval over classes of the mean over seeds lies about where the evaluation of one run has it.
    embeddings, labels, _ = entry.runs[0].test_items()
    own = evaluate(embeddings, labels, also=[]).intervals["MAP@R"]
    assert over_classes is not None
    assert over_classes == pytest.approx(own, abs=0.03)


def test_a_single_seed_has_no_interval_over_seeds(tmp_path: Path, make_comparison: Make) -> None:
    (board,) = leaderboards([make_comparison(tmp_path, losses=["triplet"], seeds=[4])])
    assert board.entries[0].over_seeds("MAP@R") is None


def test_the_better_loss_wins_and_equal_ones_do_not(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path / "unlike", losses=["proxy_anchor", "n_pair"])
    (unlike,) = leaderboards([tmp_path / "unlike"])
    found = unlike.verdict()
    assert found is not None
    assert found.winner == "proxy_anchor"
    assert found.significant
    make_comparison(tmp_path / "alike", losses=["triplet"])
    path = tmp_path / "alike" / "journal.jsonl"
    plain = re.sub(r',"sha256":"\w+"', "", path.read_text())
    both = (plain + plain.replace("triplet", "margin")).splitlines()
    path.write_bytes(b"".join(sealed(line.encode()) + b"\n" for line in both))
    (alike,) = leaderboards([tmp_path / "alike"])
    same = alike.verdict()
    assert same is not None
    assert not same.significant
    assert alike.pairs()[0].p_value == 1


def test_a_loss_without_all_seeds_is_compared_on_those_it_shares(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["proxy_anchor", "contrastive"], seeds=[0, 1])
    make_comparison(tmp_path, losses=["triplet"], seeds=[0])
    (board,) = leaderboards([tmp_path])
    assert {(pair.second, pair.seeds) for pair in board.pairs() if pair.first == "proxy_anchor"} == {
        ("contrastive", 2),
        ("triplet", 1),
    }
    assert board.ranks is None  # a single experiment has all three


def test_search_finds_what_the_evaluation_finds(tmp_path: Path, make_comparison: Make) -> None:
    (board,) = leaderboards([make_comparison(tmp_path, losses=["triplet"], seeds=[0])])
    run = board.entries[0].runs[0]
    found = search(run)
    embeddings, labels, _ = run.test_items()
    assert len(found.queries) == len(labels)
    assert not (found.found == found.queries[:, None]).any()
    nearest = labels[found.found[:, 0]] == labels
    scores = evaluate(embeddings, labels, also=[], intervals=None)
    assert nearest.mean() == pytest.approx(scores["P@1"])


def test_queries_are_searched_in_the_gallery_alone(tmp_path: Path, make_comparison: Make) -> None:
    (board,) = leaderboards([make_comparison(tmp_path, losses=["triplet"], seeds=[0])])
    run = board.entries[0].runs[0]
    roles = np.where(np.arange(len(run.test_items().labels)) % 3 == 0, "query", "gallery")
    found = search(run, roles)
    assert (roles[found.queries] == "query").all()
    assert (roles[found.found] == "gallery").all()


def test_instances_of_proxies_are_drawn_and_do_not_disturb_curves(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["contrastive"], seeds=[0])
    (board,) = leaderboards([tmp_path])
    assert proxy_instances(board) == []
    before = training_curves(board)
    log = next(tmp_path.glob("trials/*/metrics.jsonl"))
    with log.open("ab") as file:
        for instance in (1, 2, 3):
            line = {"step": 60 * instance, "instance": float(instance), "score": 9.0, "proxy spread": 1 / instance}
            file.write(sealed(json.dumps(line).encode()) + b"\n")
        file.write(b'{"step": 190, "sco')  # a process was killed here
    (board,) = leaderboards([tmp_path])
    (chapter,) = proxy_instances(board)
    assert "proxy spread by instance: contrastive from 1 to 0.333" in chapter.blocks[0].panels[0].alt  # type: ignore[union-attr]
    assert training_curves(board) == before


def test_runs_that_differ_in_settings_alone_are_rows_of_their_own(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path / "one", losses=["triplet"], seeds=[0])
    make_comparison(tmp_path / "two", losses=["triplet"], seeds=[0], steps=100)
    _edit(tmp_path / "two", lambda record: record.update(key="another"))
    (board,) = leaderboards([tmp_path / "one", tmp_path / "two"])
    assert {entry.name: entry.records[0].steps for entry in board.entries} == {
        "triplet (steps 200)": 200,
        "triplet (steps 100)": 100,
    }
    assert board.verdict() is not None


def test_published_numbers_stand_beside_ours(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["proxy_anchor"], seeds=[0], protocol="reality-check", folds=[0])
    _edit(tmp_path, lambda record: record["recipe"].update(data="cub"))  # type: ignore[attr-defined]
    (board,) = leaderboards([tmp_path])
    (chapter,) = published_numbers(board)
    rows = chapter.blocks[0].rows  # type: ignore[union-attr]
    (row,) = [row for row in rows if row[1] == "MAP@R" and "512" in row[4] and "Gürbüz" in row[5]]
    assert row[3] == "26.53"


def test_a_loss_of_ones_own_is_not_drawn_but_said(tmp_path: Path, make_comparison: Make) -> None:
    make_comparison(tmp_path, losses=["proxy_anchor", "triplet"], seeds=[0])

    def rename(record: dict[str, object]) -> None:
        if record["name"] == "triplet":
            record["recipe"] = {**record["recipe"], "loss": "mine"}  # type: ignore[dict-item]

    _edit(tmp_path, rename)
    (chapter,) = pair_weight_curves(leaderboards([tmp_path])[0])
    assert len(chapter.blocks[0].panels) == 1  # type: ignore[union-attr]
    assert chapter.blocks[1].text == "Not shown: triplet (its code is not available here)."  # type: ignore[union-attr]
