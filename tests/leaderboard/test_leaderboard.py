"""Leaderboards: one pairing rule, and the same numbers and verdicts wherever they are read."""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Callable
from decimal import Decimal
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console
from sklearn.manifold import TSNE

from vicinal._util.text import NONE, p_number, percent
from vicinal.data import load, split
from vicinal.errors import InputError
from vicinal.leaderboard import Entry, Leaderboard, leaderboards
from vicinal.leaderboard.text import best_in_words, gaps
from vicinal.report import gallery, page, write_report
from vicinal.report.chapters import CHAPTERS
from vicinal.report.chapters.papers import published_numbers
from vicinal.report.chapters.winner import embedding_map
from vicinal.report.gallery import Album, search
from vicinal.report.page import WORTH
from vicinal.runs import EmbeddedItems as Items
from vicinal.runs import Journal, Record
from vicinal.stats import PairTest, compare_pairs

AddRun = Callable[..., Record]
NAMES = ("circle", "multi_similarity", "triplet+semi_hard", "proxy_anchor")


def board_of(folder: Path) -> Leaderboard:
    (board,) = leaderboards([folder])
    return board


def terminal(board: Leaderboard, width: int = 200) -> str:
    text = StringIO()
    board.print(Console(file=text, width=width, no_color=True))
    return text.getvalue()


def report(folder: Path) -> str:
    """The report's twin in Markdown, of the chapters that have scores and verdicts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            page, "CHAPTERS", {name: CHAPTERS[name] for name in ("leaderboard", "failed runs", "significance")}
        )
        return write_report([folder], progress=False).with_suffix(".md").read_text(encoding="utf-8")


def near(base: np.ndarray, lead: float, seed: int) -> list[float]:
    noise = np.random.default_rng([seed, int(1000 * lead)]).normal(0, 0.02, len(base))
    return np.clip(base + lead + noise, 0, 1).tolist()


# The pairing rule.


@pytest.fixture
def uneven(tmp_path: Path, add_run: AddRun) -> Path:
    """Seeds 0 to 2 of two methods, and only seed 0 of a third."""
    base = np.random.default_rng(0).random(30) * 0.5
    for name, lead, seeds in (("circle", 0.1, (0, 1, 2)), ("triplet", 0.0, (0, 1, 2)), ("margin", 0.05, (0,))):
        for seed in seeds:
            add_run(tmp_path, name, seed=seed, classes=near(base, lead, seed))
    return tmp_path


def test_each_two_methods_are_compared_on_the_seeds_that_those_two_share(uneven: Path) -> None:
    board = board_of(uneven)
    assert {(pair.first, pair.second): pair.seeds for pair in board.pairs()} == {
        ("circle", "margin"): 1,
        ("circle", "triplet"): 3,
        ("margin", "triplet"): 1,
    }
    found = board.verdict()
    assert found is not None
    assert found.significant
    assert found.sentence == (
        "circle wins: it is significantly better than margin (30 classes and 1 seed) and triplet "
        "(30 classes and 3 seeds)."
    )


def test_terminal_and_report_tell_one_story(uneven: Path) -> None:
    """The terminal said "circle wins", and report.html "No clear winner"."""
    board = board_of(uneven)
    verdict, shown = board.verdict(), " ".join(terminal(board).split())
    assert verdict is not None
    assert shown.startswith(f"{verdict.sentence} Use this: ")
    assert f"Details - {' '.join(verdict.caveats)}" in shown
    said = str(verdict)
    text = report(uneven)
    assert text.startswith("# circle wins on digits\n")
    assert said in text


def test_best_probabilities_say_on_what_all_share(uneven: Path, add_run: AddRun) -> None:
    assert board_of(uneven).best_probabilities() is None  # one shared seed does not show how much training varies
    add_run(uneven, "margin", seed=1, classes=near(np.random.default_rng(0).random(30) * 0.5, 0.05, 1))
    found = board_of(uneven).best_probabilities()
    assert found is not None
    assert found.basis == "30 classes and 2 seeds"
    assert sum(found.shares.values()) == pytest.approx(1)
    add_run(uneven, "arcface", seed=7)
    assert board_of(uneven).best_probabilities() is None


def test_a_rival_that_is_ahead_where_both_ran_is_named(tmp_path: Path, add_run: AddRun) -> None:
    base = np.full(20, 0.3)
    for seed, lead in ((0, 0.0), (1, 0.4), (2, 0.4)):
        add_run(tmp_path, "circle", seed=seed, classes=near(base, lead, seed))
    add_run(tmp_path, "margin", seed=0, classes=near(base, 0.2, 0))
    found = board_of(tmp_path).verdict()
    assert found is not None
    assert (found.winner, found.beaten, found.undecided) == ("circle", (), ("margin",))
    assert "On the 20 classes and 1 seed that both have, margin is ahead of circle." in found.caveats


def test_methods_without_a_seed_in_common_are_not_compared_and_it_is_said(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "circle", seed=0, classes=[0.9, 0.8, 0.9])
    add_run(tmp_path, "margin", seed=1)
    found = board_of(tmp_path).verdict()
    assert found is not None
    assert not found.significant
    assert found.caveats == ("circle was not compared with margin: they share no seed, fold or scored class.",)
    assert board_of(tmp_path).pairs() == []


def test_classes_are_paired_by_name_and_only_those_that_both_scored(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "circle", classes=[0.9, 0.8, 0.7, None])
    add_run(tmp_path, "margin", classes=[0.1, None, 0.3, 0.4])
    (pair,) = board_of(tmp_path).pairs()
    assert pair.count == 2
    assert pair.difference == pytest.approx((0.9 - 0.1 + 0.7 - 0.3) / 2)


def test_scores_of_a_journal_without_classes_are_ranked_and_not_tested(tmp_path: Path, add_run: AddRun) -> None:
    for name, value in (("circle", 0.6), ("margin", 0.5)):
        add_run(tmp_path, name, per_class={}, classes=[value] * 3, queries=())
    board = board_of(tmp_path)
    assert [entry.name for entry in board.entries] == ["circle", "margin"]
    assert board.entries[0].over_classes("MAP@R") is None
    assert "circle was not compared with margin" in terminal(board)
    assert "circle was not compared with margin" in report(tmp_path)


def test_one_entry_and_no_done_run(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path / "one", "circle")
    one = board_of(tmp_path / "one")
    assert (one.verdict(), one.pairs(), one.best_probabilities(), one.correlation(), one.ranks) == (
        None,
        [],
        None,
        None,
        None,
    )
    add_run(tmp_path / "none", "circle", status="failed")
    none = board_of(tmp_path / "none")
    assert (none.entries, none.networks, none.ranks) == ([], [], None)
    assert "Failed: circle, digits, fixed-validation, convnet-8, seed 0: It broke." in str(none)
    with pytest.raises(InputError, match="1 run failed and none finished"):
        _ = none.best


# What to use.


def test_the_best_is_chosen_by_validation_and_says_so(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "circle", classes=[0.9] * 3, validation=0.3)
    add_run(tmp_path, "margin", classes=[0.5] * 3, validation=0.6, seed=0)
    add_run(tmp_path, "margin", classes=[0.5] * 3, validation=0.8, seed=1)
    board = board_of(tmp_path)
    assert board.entries[0].name == "circle"
    assert (board.best.record.name, board.best.record.seed, board.chosen_by) == ("margin", 1, "validation")
    (Journal(tmp_path).run_folder(board.entries[1].runs[0].record.key) / "model").mkdir(parents=True)
    assert board_of(tmp_path).best.record.seed == 0  # the model of the other was not kept


def test_the_best_is_chosen_on_the_folds_that_all_have(tmp_path: Path, add_run: AddRun) -> None:
    reality = {"recipe": {"protocol": "reality-check"}}
    for name, values in (("circle", (0.30, 0.40)), ("margin", (0.29, 0.39))):
        for fold, validation in enumerate(values):
            add_run(tmp_path, name, validation=validation, fold=fold, **reality)
    # A second seed was begun by the fold whose validation classes are easy.
    add_run(tmp_path, "margin", validation=0.45, seed=1, fold=1, **reality)
    assert board_of(tmp_path).best_trained.name == "circle"


@pytest.mark.parametrize("selected_on", ["last", "test"])
def test_without_validation_the_best_is_chosen_by_test_and_says_so(
    tmp_path: Path, add_run: AddRun, selected_on: str
) -> None:
    known = 0.9 if selected_on == "test" else None  # what a run that chose its step on test calls validation
    add_run(tmp_path, "circle", classes=[0.9] * 3, validation=known, selected_on=selected_on)
    add_run(tmp_path, "margin", classes=[0.5] * 3, validation=known, selected_on=selected_on)
    board = board_of(tmp_path)
    assert (board.best.record.name, board.chosen_by) == ("circle", "test")
    assert "the best on test classes. There was no validation" in " ".join(terminal(board).split())


def test_ties_in_validation_are_no_correlation(tmp_path: Path, add_run: AddRun) -> None:
    for place, name in enumerate(("circle", "margin", "triplet", "n_pair", "contrastive")):
        add_run(tmp_path / "level", name, classes=[0.1 * place] * 3, validation=0.5)
        add_run(tmp_path / "ranked", name, classes=[0.1 * place] * 3, validation=0.1 * place)
    assert board_of(tmp_path / "level").correlation() is None
    assert "Validation -> test" not in terminal(board_of(tmp_path / "level"))
    assert board_of(tmp_path / "ranked").correlation().spearman == pytest.approx(1)


def test_notes_are_said_once_with_whom_they_are_about(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "circle", notes=("Nothing chose.", "Batches shrank."))
    add_run(tmp_path, "margin", notes=("Nothing chose.",))
    said = terminal(board_of(tmp_path))
    assert said.count("Note: Nothing chose.") == 1
    assert "Note (circle): Batches shrank." in said


def test_a_note_about_some_runs_of_a_method_says_which(tmp_path: Path, add_run: AddRun) -> None:
    for name in ("circle", "margin"):
        for fold in range(3):
            of_fold = (f"The folds' own, {name} {fold}.", *(["Of all alike."] if fold == 1 else []))
            add_run(tmp_path, name, fold=fold, recipe={"protocol": "k-fold", "folds": 3}, notes=of_fold)
    said = " ".join(terminal(board_of(tmp_path)).split())
    assert "Note (circle: seed 0, fold 2): The folds' own, circle 2." in said
    assert "Note (margin: seed 0, fold 0): The folds' own, margin 0." in said
    assert "Note (seed 0, fold 1): Of all alike." in said


# Which runs are compared at all.


def test_questions_are_kept_apart_and_failed_runs_join_theirs(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "circle")
    add_run(tmp_path, "circle", recipe={"protocol": "default"}, selected_on="last", validation=None)
    add_run(tmp_path, "circle", recipe={"protocol": "k-fold", "folds": 2}, fold=0)
    add_run(tmp_path, "circle", recipe={"protocol": "k-fold", "folds": 3}, fold=0, key="of three")
    add_run(tmp_path, "margin", recipe={"protocol": "default"}, status="failed")
    boards = leaderboards([tmp_path])
    assert [(board.first.protocol, board.first.folds) for board in boards] == [
        ("fixed-validation", None),
        ("default", None),
        ("k-fold", 2),
        ("k-fold", 3),
    ]
    assert [len(board.failed) for board in boards] == [0, 1, 0, 0]
    with pytest.raises(InputError, match="at least one folder"):
        leaderboards([])


def test_methods_of_one_name_with_other_settings_or_code_are_not_averaged(tmp_path: Path, add_run: AddRun) -> None:
    for seed in (0, 1):
        add_run(
            tmp_path, "triplet", seed=seed, classes=(0.2, 0.3), key=f"before-{seed}", code={"a/mine.py:f": "1" * 64}
        )
    add_run(tmp_path, "triplet", classes=(0.6, 0.7), key="after", code={"a/mine.py:f": "2" * 64})
    add_run(tmp_path, "circle", recipe={"loss_options": {"margin": 0.1}}, key="near")
    add_run(tmp_path, "circle", recipe={"loss_options": {"margin": 0.2}}, key="far")
    add_run(tmp_path, "margin", seed=0, recipe={"learning_rate": 0.1})  # of two machines: no seed in common
    add_run(tmp_path, "margin", seed=1, recipe={"learning_rate": 0.2})
    rows = {entry.name: len(entry.runs) for entry in board_of(tmp_path).entries}
    assert rows == {
        "triplet (code of mine.py:f 11111111)": 2,
        "triplet (code of mine.py:f 22222222)": 1,
        "circle (margin 0.1)": 1,
        "circle (margin 0.2)": 1,
        "margin": 2,
    }


def test_a_failure_counts_until_the_method_is_done(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "circle")
    add_run(tmp_path, "triplet", status="failed", key="broken")
    assert [record.key for record in board_of(tmp_path).failed] == ["broken"]
    add_run(tmp_path, "triplet", key="mended", recipe={"learning_rate": 0.1})
    assert board_of(tmp_path).failed == []
    add_run(tmp_path, "triplet", status="failed", key="broken again")
    assert [record.key for record in board_of(tmp_path).failed] == ["broken again"]


def test_a_leaderboard_of_some_losses_has_all_baselines(tmp_path: Path, add_run: AddRun) -> None:
    for name, role in (("triplet+semi_hard", "run"), ("circle", "run"), ("untrained", "baseline")):
        add_run(tmp_path, name, role=role, recipe={"loss": "triplet"})
    part = board_of(tmp_path).only(["triplet+semi_hard"])
    assert part is not None
    assert [entry.name for entry in (*part.entries, *part.baselines)] == ["triplet+semi_hard", "untrained"]
    assert board_of(tmp_path).only(["margin"]) is None


# Folds.


def folds_of(tmp_path: Path, add_run: AddRun, items: list[Items | None], **facts: Any) -> Leaderboard:
    """A board of one method with one run for each fold; None stands for a fold that failed."""
    recipe = {"protocol": "reality-check", "normalisation": "none", **facts.pop("recipe", {})}
    for fold, of_fold in enumerate(items):
        status = "failed" if of_fold is None else "done"
        add_run(tmp_path, "circle", fold=fold, items=of_fold, status=status, recipe=recipe, **facts)
    return board_of(tmp_path)


def query_gallery() -> Items:
    """Twelve queries on a line, seven of which have a gallery item of their class nearest.

    Two queries of different classes stand beside each other, between the galleries of both. Five queries have a gallery
    item of their class beside them, five one of the other class. Were all items searched among all, 12 of 24 would be
    right.
    """
    rows = [(-3, 0, "gallery"), (0, 0, "query"), (1, 1, "query"), (4, 1, "gallery")]
    for number in range(5):
        rows += [(100 + 100 * number, 0, "query"), (101 + 100 * number, 0, "gallery")]
        rows += [(1100 + 100 * number, 0, "query"), (1101 + 100 * number, 1, "gallery")]
    positions, labels, roles = zip(*rows, strict=True)
    return Items(np.array(positions, np.float32)[:, None], np.array(labels), np.array(roles))


def test_joined_folds_search_queries_in_the_gallery(tmp_path: Path, add_run: AddRun) -> None:
    (entry,) = folds_of(tmp_path, add_run, [query_gallery()] * 4).entries
    assert entry.joined is not None
    assert entry.joined.mean("P@1") == pytest.approx(7 / 12)
    assert entry.mean("P@1") == pytest.approx(7 / 12)
    (kept,) = Journal(tmp_path / "concatenated").records()
    assert (kept.fold, sum(kept.queries), kept.test["P@1"]) == (None, 12, pytest.approx(7 / 12))
    assert board_of(tmp_path).entries[0].joined.mean("P@1") == kept.test["P@1"]  # type: ignore[union-attr]


def test_folds_are_joined_under_a_bar_where_progress_is_shown(
    tmp_path: Path, add_run: AddRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vicinal._util.progress.FIRST", 0.0)
    folds_of(tmp_path, add_run, [query_gallery()] * 4)
    assert leaderboards([tmp_path], progress=True)[0].entries
    assert "joining folds: 1" in capsys.readouterr().err
    assert leaderboards([tmp_path])[0].entries
    assert "joining" not in capsys.readouterr().err


def test_a_failed_fold_is_missed(tmp_path: Path, add_run: AddRun) -> None:
    items = query_gallery()
    board = folds_of(tmp_path, add_run, [items, items, items, None])
    (entry,) = board.entries
    assert entry.joined is None
    assert entry.missing_folds == {0: (3,)}
    assert entry.not_joined == ("seed 0: 3 of 4 folds done, fold 3 is missing",)
    for text in (terminal(board), report(tmp_path)):
        assert "3 of 4 folds of seed 0 finished; fold 3 missing" in text
        assert "folds not joined, seed 0: 3 of 4 folds done, fold 3 is missing." in text
    assert re.search(r"\| 3 of 4 \|", report(tmp_path))


def test_folds_whose_items_were_not_kept_are_not_joined(tmp_path: Path, add_run: AddRun) -> None:
    board = folds_of(tmp_path, add_run, [query_gallery()] * 4)
    board.runs[2].files.test.unlink()
    (entry,) = board_of(tmp_path).entries
    assert entry.not_joined == ("seed 0: the test items of fold 2 were not saved",)


@pytest.mark.parametrize(("normalisation", "right"), [("none", 0.0), ("ball", 0.0), ("sphere", 1.0)])
def test_vectors_are_joined_as_the_run_compared_them(
    tmp_path: Path, add_run: AddRun, normalisation: str, right: float
) -> None:
    """By direction 0 goes with 1 and 2 with 3; by distance the short ones go together, and the long ones."""
    vectors = np.array([[0.01, 0.0], [0.2, 0.0], [0.0, 0.01], [0.0, 0.2]], np.float32)
    items = Items(vectors, np.array([0, 0, 1, 1]), None)
    (entry,) = folds_of(tmp_path, add_run, [items] * 4, recipe={"normalisation": normalisation}).entries
    assert entry.joined is not None
    assert entry.joined.by_seed("P@1") == entry.by_seed("P@1")
    assert entry.joined.by_seed("P@1") == pytest.approx([0.5 + right / 2 if right else entry.mean("P@1")])
    assert (entry.joined.mean("P@1") == 1) == (right == 1)


# How a run measured.


@pytest.mark.parametrize("normalisation", ["ball", "none"])
def test_pictures_and_map_measure_as_the_run_did(
    tmp_path: Path, add_run: AddRun, normalisation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes that differ in length alone: cosine sees nothing of them."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 8)
    directions = rng.normal(0, 1, (48, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = np.array([1e-4, 1e-3, 1e-2, 0.1, 0.4, 1.0])[labels]
    close = directions * 1e-3 + np.array([1.0, 0, 0])
    embeddings = (lengths[:, None] * close / np.linalg.norm(close, axis=1, keepdims=True)).astype(np.float32)
    add_run(tmp_path, "circle", items=Items(embeddings, labels, None), recipe={"normalisation": normalisation})
    (run,) = board_of(tmp_path).entries[0].runs
    assert run.record.test["MAP@R"] == 1
    found = search(run)
    assert found.scores.mean() == 1
    assert found.distance == "euclidean"
    shown = []

    class Flattened(TSNE):  # type: ignore[misc]
        def fit_transform(self, rows: np.ndarray) -> np.ndarray:
            shown.append(rows)
            return rows[:, :2]

    monkeypatch.setattr("vicinal.report.chapters.winner.TSNE", Flattened)
    assert embedding_map(found, Album(None, run.record.classes), "circle")
    assert sorted(np.linalg.norm(shown[0], axis=1)) == pytest.approx(sorted(lengths))


def test_pictures_open_the_data_as_the_run_did(
    tmp_path: Path, add_run: AddRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `skip_bad` and the number of folds the split would be another, and the pictures lost."""
    data = load("digits")
    asked: list[bool] = []
    monkeypatch.setattr(gallery, "load", lambda name, skip_bad=False, **_: asked.append(skip_bad) or data)
    recipe = {"protocol": "k-fold", "folds": 2, "skip_bad": True}
    test = split(data, "k-fold", seed=0, fold=1, folds=2).test
    assert test is not None
    items = Items(np.random.default_rng(0).random((len(test), 4), np.float32), test.labels, None)
    add_run(tmp_path, "circle", fold=1, items=items, recipe=recipe, data=data.hash())
    album = gallery.open_album(board_of(tmp_path).entries[0].runs[0])
    assert asked == [True]
    assert album.data is not None
    assert album.note == ""


def test_queries_are_searched_in_the_gallery_by_the_roles_of_the_run(tmp_path: Path, add_run: AddRun) -> None:
    items = query_gallery()
    add_run(tmp_path, "circle", items=items, recipe={"protocol": "query-gallery", "normalisation": "none"})
    (run,) = board_of(tmp_path).entries[0].runs
    found = search(run)
    right = found.labels[found.found[:, 0]] == found.labels[found.queries]
    assert right.mean() == pytest.approx(7 / 12) == pytest.approx(run.record.test["P@1"])


# Published numbers.


def test_published_numbers_stand_beside_a_recipe_of_another_name(tmp_path: Path, add_run: AddRun) -> None:
    """The CSV said "+ cover", compare says "+ ccp", and a recipe's file is called anything."""
    asked = {"data": "cub", "protocol": "reality-check", "loss": "triplet", "mining": "semi_hard", "ccp": "code"}
    add_run(tmp_path, "my best try", fold=0, recipe=asked)
    (chapter,) = published_numbers(board_of(tmp_path))
    rows = chapter.blocks[0].rows  # type: ignore[union-attr]
    assert {row[0] for row in rows} == {"my best try"}
    assert {row[1] for row in rows} == {"P@1", "P@R", "MAP@R"}


# The table of the terminal.


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_number_is_cut_however_narrow_the_terminal(uneven: Path, width: int) -> None:
    board = board_of(uneven)
    text = terminal(board, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for entry in board.entries:
        assert f" {entry.mean('MAP@R'):.4f} " in text


def test_what_methods_demanded_is_said(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path, "circle", demands=("1 item per class",))
    assert "circle uses 1 item per class." in str(board_of(tmp_path))


# The same numbers everywhere, over random journals.


@st.composite
def journals(draw: st.DrawFn) -> dict[str, Any]:
    protocol = draw(st.sampled_from(["fixed-validation", "default", "query-gallery", "reality-check"]))
    folds = (0, 1) if protocol == "reality-check" else (None,)
    networks = draw(st.sampled_from([(8,), (8, 16)]))
    fates = st.sampled_from(["done", "done", "done", "failed", "absent"])
    cells = [
        (name, dim, seed, fold, draw(fates))
        for name in NAMES[: draw(st.integers(1, 4))]
        for dim in networks
        for seed in range(draw(st.integers(1, 3)))
        for fold in folds
    ]
    return {
        "cells": cells,
        "protocol": protocol,
        "gallery": protocol == "query-gallery" or (protocol == "reality-check" and draw(st.booleans())),
        "normalisation": draw(st.sampled_from(["sphere", "ball", "none"])),
        "tuned": draw(st.sampled_from([0, 10])),
        "baselines": draw(st.booleans()),
        "classless": draw(st.sampled_from(["", "", "", NAMES[0]])),  # a method whose journal has no scores by class
        "random": draw(st.integers(0, 2**16)),
    }


def write(folder: Path, plan: dict[str, Any], add_run: AddRun) -> None:
    labels = np.repeat(np.arange(6), 4)
    roles = np.tile(["query", "gallery"], 12) if plan["gallery"] else None
    selected_on = "last" if plan["protocol"] == "default" else "validation"
    for number, (name, dim, seed, fold, fate) in enumerate(plan["cells"]):
        recipe = {"protocol": plan["protocol"], "normalisation": plan["normalisation"], "dim": dim, "loss": "triplet"}
        recipe |= {"folds": 2} if fold is not None else {}
        if fate == "absent":
            continue
        facts: dict[str, Any] = {"recipe": recipe, "seed": seed, "fold": fold, "selected_on": selected_on}
        if fate == "done":
            rng = np.random.default_rng([plan["random"], number])
            spread = 0.4 + 0.3 * NAMES.index(name)
            vectors = (np.eye(6)[labels] + spread * rng.normal(size=(24, 6))).astype(np.float32)
            if fold is not None:  # what is joined needs vectors, and the rest does not care where scores come from
                facts["items"] = Items(vectors, labels, roles)
            else:
                facts |= {"classes": rng.beta(2, 1 + spread, 6).tolist(), "gallery": plan["gallery"]}
            facts["validation"] = float(rng.random()) if selected_on == "validation" else None
            facts["tuning_trials"] = plan["tuned"]
            facts |= {"per_class": {}} if name == plan["classless"] else {}
        add_run(folder, name, status=fate, **facts)
    seeds = {(seed, fold): dim for _, dim, seed, fold, _ in plan["cells"]} if plan["baselines"] else {}
    for number, ((seed, fold), size) in enumerate(seeds.items()):
        for name, dim in (("untrained", None), (f"untrained, PCA to {size}", size), ("chance", None)):
            rng = np.random.default_rng([plan["random"], number, len(name)])
            recipe = {
                "protocol": plan["protocol"],
                "dim": dim,
                "loss": "triplet",
                "folds": 2 if fold is not None else None,
            }
            facts = {
                "recipe": recipe,
                "seed": seed,
                "fold": fold,
                "selected_on": selected_on,
                "gallery": plan["gallery"],
            }
            facts["validation"] = float(rng.random()) if selected_on == "validation" else None
            add_run(folder, name, role="baseline", classes=rng.beta(2, 2, 6).tolist(), **facts)


def terminal_rows(text: str) -> list[dict[str, str]]:
    """The rows of the terminal's table; columns end where their heads do."""
    lines = text.splitlines()
    rule = next(number for number, line in enumerate(lines) if set(line.strip()) == {"─"})
    heads = [(match.group(), match.end()) for match in re.finditer(r"\S+", lines[rule - 1])]
    rows = []
    for line in lines[rule + 1 :]:
        if not line.strip():
            break
        if set(line.strip()) == {"─"}:  # above the baselines
            continue
        row = {"loss": re.split(r"\s{2,}", line.strip())[0]}
        start = line.index(row["loss"]) + len(row["loss"])
        for head, end in heads[1:]:
            row[head], start = line[start:end].strip(), end
        rows.append(row)
    return rows


def report_tables(text: str) -> list[list[dict[str, str]]]:
    """The tables of the report, each a list of rows by their heads."""
    tables = []
    for block in re.findall(r"(?:^\|.*\|\n+)+", text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in block.split("\n") if line)
        tables.append([dict(zip(head, row, strict=True)) for row in rows])
    return tables


def share(text: str) -> Decimal:
    """A number of the report as the terminal has it."""
    return Decimal(text) / 100


def check_entry(board: Leaderboard, entry: Entry, shown: dict[str, str], told: dict[str, str]) -> None:
    """The row of the terminal and that of the report have what the entry has, to the last digit that they print."""
    records = entry.records
    by_seed = [
        np.mean([record.test["MAP@R"] for record in records if record.seed == seed])
        for seed in sorted({record.seed for record in records})
    ]
    assert entry.mean("MAP@R") == pytest.approx(np.mean(by_seed), abs=1e-12)
    assert shown["MAP@R"] == f"{entry.mean('MAP@R'):.4f}"
    assert share(told["MAP@R"]) == Decimal(shown["MAP@R"])
    assert share(told["P@1"]) == Decimal(shown["P@1"])
    assert told["runs"] == shown["runs"]
    for name, head in (("validation", "validation"), ("folds", "SD over folds")):
        known = shown.get(name, "")
        assert (told.get(head, NONE) == NONE) == (known == "")
        if known:
            assert share(told[head]) == Decimal(re.sub(r"^sd ", "", known))
    ends = re.findall(r"\d\.\d{3}", shown.get("classes", ""))
    assert [share(end) for end in re.findall(r"[\d.]+", told["95 % interval"])] == [Decimal(end) for end in ends]
    over_seeds = entry.over_seeds("MAP@R")
    assert (told["± seeds"] == NONE) == (shown.get("seeds", "") == "") == (over_seeds is None)
    if over_seeds is not None:
        assert shown["seeds"] == f"{over_seeds.low:.3f}-{over_seeds.high:.3f}"
        assert share(told["± seeds"]) == Decimal(f"{(over_seeds.high - over_seeds.low) / 2:.4f}")


def check_pair(board: Leaderboard, pair: PairTest, one: Entry, other: Entry) -> None:
    """The test of a pair is that of the rectangular function on what a naive loop finds the two to share."""
    cells = {(record.seed, record.fold) for record in one.records} & {(r.seed, r.fold) for r in other.records}
    arrays = {}
    for entry in (one, other):
        rows = [
            np.mean([r.per_class["MAP@R"] for r in entry.records if r.seed == seed and (seed, r.fold) in cells], axis=0)
            for seed in sorted({seed for seed, _ in cells})
        ]
        arrays[entry.name] = np.array(rows, dtype=np.float64)
    (alone,) = compare_pairs(arrays, queries=np.array(one.records[0].queries))
    sign = 1 if alone.first == pair.first else -1
    assert pair.difference == pytest.approx(sign * alone.difference, abs=1e-12)
    assert pair.p_single == pytest.approx(alone.p_single, abs=1e-12)
    assert (pair.seeds, pair.count) == (alone.seeds, alone.count)
    assert pair.folds == (None if one.records[0].fold is None else len(cells))


def test_correlation_needs_five_methods_that_validation_can_rank(tmp_path: Path, add_run: AddRun) -> None:
    names = ["triplet", "margin", "contrastive", "n_pair", "proxy_anchor"]
    for number, name in enumerate(names):
        add_run(tmp_path / "five", name, classes=[0.1 * number, 0.5], validation=0.1 * number)
        add_run(tmp_path / "tied", name, classes=[0.1 * number, 0.5], validation=1.0)
        if number < 4:
            add_run(tmp_path / "four", name, classes=[0.1 * number, 0.5], validation=0.1 * number)
    found = board_of(tmp_path / "five").correlation()
    assert found is not None
    assert found.methods == 5
    assert found.spearman == pytest.approx(1)
    assert board_of(tmp_path / "four").correlation() is None
    assert board_of(tmp_path / "tied").correlation() is None


@settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(plan=journals())
def test_terminal_report_tournament_and_python_have_the_same_numbers(plan: dict[str, Any], add_run: AddRun) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, plan, add_run)
        if not Journal(folder).path.exists():
            return
        board, text = board_of(folder), html.unescape(report(folder))  # Markdown has &lt; for <
        shown = terminal(board)
        flat, prose = " ".join(shown.split()), " ".join(text.split())
        tables = report_tables(text)
        assert shown.count("Failed: ") == len(board.failed)
        if not board.entries:
            assert "All runs on digits failed" in text
            return
        assert text.startswith(f"# {_headline(board)}\n")
        assert best_in_words(board) in flat
        assert best_in_words(board) in prose
        for entry, sentence in gaps(board):
            assert f": {sentence}" in flat
            assert f": {sentence}" in prose
            assert entry.missing_folds or entry.not_joined
        said = "" if board.gain is None else str(board.gain)
        assert (said == "") == (not plan["baselines"])
        assert said in flat
        if board.gain is not None:
            assert board.gain.sentence(percent, " %") in prose
            divided = board.gain is not None and board.gain.answer == "divided"
            nothing = board.best_entry in board.baselines and not divided
            assert nothing == text.startswith("# No loss beats the untrained network")
        rows = {(row["loss"], row.get("dim", "8")): row for row in terminal_rows(shown)}
        standings = [table for table in tables if "95 % interval" in table[0] and "runs" in table[0]]
        order = sorted(board.networks, key=lambda network: network != board.main_network)
        if len(board.networks) == 1:
            rows = {(name, str(board.networks[0][1])): row for (name, _), row in rows.items()}
        for network, table in zip(order, standings, strict=True):
            entries, baselines = board.of_network(network), board.baselines_of(network)
            ranks = [str(rank) for rank in range(1, len(entries) + 1)] + [""] * len(baselines)
            assert [row[""] for row in table] == ranks
            assert [row["loss"] for row in table] == [entry.name for entry in (*entries, *baselines)]
            for entry, told in zip((*entries, *baselines), table, strict=True):
                place = {"chance": "", "untrained": "all"}.get(entry.name, str(network[1]))
                check_entry(board, entry, rows[entry.name, place if len(board.networks) > 1 else str(network[1])], told)
        check_joined(board, rows, tables)
        against = [table for table in tables if "difference" in table[0]]
        for network, table in zip([n for n in order if board.verdict(n) is not None], against, strict=True):
            check_verdict(board, network, table, flat, prose)
        check_ranks(board, prose)


def _headline(board: Leaderboard) -> str:
    divided = board.gain is not None and board.gain.answer == "divided"
    if board.best_entry.records[0].role == "baseline" and not divided:
        return "No loss beats the untrained network on digits"
    return f"{_winner(board)} on digits" + ("" if board.gain is None else WORTH[board.gain.answer])


def _winner(board: Leaderboard) -> str:
    found = board.verdict()
    if found is None:
        return f"Only {board.of_network()[0].name} was compared"
    if found.significant:
        return f"{found.winner} wins"
    return f"{found.winner} leads" if found.beaten else "No clear winner"


def check_joined(board: Leaderboard, rows: dict[Any, Any], tables: list[list[dict[str, str]]]) -> None:
    found = {
        (row["loss"], row["size"].split()[-1]): row["joined MAP@R"]
        for table in tables
        if "joined MAP@R" in table[0]
        for row in table
    }
    for entry in board.entries:
        size = str(entry.network[1])
        assert (entry.joined is None) == ((entry.name, size) not in found)
        assert (entry.joined is None) == (rows[entry.name, size].get("joined", "") == "")
        if entry.joined is not None:
            assert not set(entry.joined.seeds) & set(entry.missing_folds)
            assert Decimal(rows[entry.name, size]["joined"]) == share(found[entry.name, size])
            assert rows[entry.name, size]["joined"] == f"{entry.joined.mean('MAP@R'):.4f}"


def check_verdict(
    board: Leaderboard, network: tuple[str, int | None], table: list[dict[str, str]], flat: str, prose: str
) -> None:
    found, correlation = board.verdict(network), board.correlation(network)
    assert found is not None
    assert str(found) in flat or (found.sentence in flat and " ".join(found.caveats) in flat)
    assert str(found) in prose
    assert found.winner == board.of_network(network)[0].name
    if correlation is not None:
        assert str(correlation) in flat
        assert str(correlation) in prose
    entries = {entry.name: entry for entry in board.of_network(network)}
    pairs = {(pair.first, pair.second): pair for pair in board.pairs(network)}
    best = board.best_probabilities(network)
    for first, second in combinations(entries, 2):
        if (first, second) in pairs:
            check_pair(board, pairs[first, second], entries[first], entries[second])
    for row, rival in zip(table, list(entries)[1:], strict=True):
        pair = pairs.get((found.winner, rival))
        assert row["against"] == rival
        assert (row["difference"] == NONE) == (pair is None)
        assert (row["P(best)"] == NONE) == (best is None)
        if pair is not None:
            said = re.findall(r"[+-]\d\.\d+", str(pair))
            assert share(row["difference"]) == Decimal(said[0])
            assert [share(end) for end in row["95 % interval"].split(" to ")] == [Decimal(end) for end in said[1:3]]
            assert row["p"] == p_number(pair.p_value)
            assert str(pair).endswith(f"over {row['compared on']}")
        assert (rival in found.beaten) == (pair is not None and pair.difference > 0 and pair.p_value < 0.05)


def check_ranks(board: Leaderboard, prose: str) -> None:
    if board.ranks is None:
        assert "Mean ranks:" not in prose
        return
    printed = {row.method: f"{row.mean:.2f}" for row in board.ranks.table()}
    for name, mean in printed.items():
        assert re.search(rf"^{re.escape(name)} +\S+ +{mean} ", str(board.ranks), re.MULTILINE)
    assert "Mean ranks: " + ", ".join(f"{name} {mean}" for name, mean in printed.items()) in prose
    for experiment in board.ranks.experiments:
        for name, value in board.by_experiment[experiment].items():
            column = board.ranks.methods.index(name)
            assert board.ranks.scores[board.ranks.experiments.index(experiment), column] == value
