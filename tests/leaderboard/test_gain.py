"""Was training worth it? What a leaderboard with baselines says, and what it recommends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal._util.text import percent
from vicinal.leaderboard import Gain, Leaderboard, leaderboards
from vicinal.leaderboard.advice import next_step
from vicinal.leaderboard.text import best_in_words
from vicinal.report.page import headline, lede
from vicinal.runs import Record
from vicinal.stats import compare_pairs

pytestmark = pytest.mark.unit
AddRun = Callable[..., Record]
BASE = np.random.default_rng(0).random(20) * 0.5


def board_of(folder: Path, add_run: AddRun, *runs: tuple[str, float, float | None], seeds: int = 1) -> Leaderboard:
    """A board of methods with a lead over the same classes and a validation score; baselines by their names."""
    for name, lead, validation in runs:
        for seed in range(seeds):
            noise = np.random.default_rng([seed, len(name)]).normal(0, 0.01, len(BASE))
            facts: dict[str, Any] = {"classes": np.clip(BASE + lead + noise, 0, 1).tolist(), "validation": validation}
            if name.startswith(("untrained", "chance")):
                size = 8 if "PCA" in name else None
                facts |= {"recipe": {"loss": "triplet", "dim": size}, "role": "baseline"}
            add_run(folder, name, seed=seed, selected_on="validation" if validation else "last", **facts)
    return leaderboards([folder])[0]


def gain_in(board: Leaderboard) -> Gain:
    assert board.gain is not None
    return board.gain


def test_the_best_trained_is_tested_against_the_best_baseline_as_any_two_are(tmp_path: Path, add_run: AddRun) -> None:
    board = board_of(
        tmp_path,
        add_run,
        ("circle", 0.2, 0.5),
        ("margin", 0.1, 0.6),
        ("untrained", 0.0, 0.3),
        ("untrained, PCA to 8", -0.1, 0.4),
        ("chance", -0.3, 0.9),
        seeds=2,
    )
    gain = gain_in(board)
    assert (gain.trained.name, gain.baseline.name, gain.answer) == ("margin", "untrained, PCA to 8", "yes")
    scores = {entry.name: np.array([record.per_class["MAP@R"] for record in entry.records]) for entry in
              (gain.trained, gain.baseline)}  # fmt: skip
    (alone,) = compare_pairs(scores, queries=np.full(20, 2))
    assert gain.test is not None
    assert (gain.test.difference, gain.test.p_value) == pytest.approx((alone.difference, alone.p_value))
    assert gain.trained_score - gain.baseline_score == pytest.approx(gain.test.difference)
    assert str(gain).startswith(f"Training helped: MAP@R is {gain.trained_score:.4f} with margin and ")
    assert "with the untrained network (PCA to 8 dimensions). The difference is +0.1" in str(gain)
    assert str(gain).endswith("over 20 classes and 2 seeds).")
    assert [entry.name for entry in board.entries] == ["circle", "margin"]
    assert board.by_experiment.keys() == {record.experiment for record in board.records}
    assert all(set(found) == {"circle", "margin"} for found in board.by_experiment.values())


@pytest.mark.parametrize(
    ("lead", "answer", "said"),
    [
        (0.1, "yes", "; training helped"),
        (-0.1, "no", "No loss beats the untrained network on digits"),
        (0.006, "unknown", "; unclear whether training helped"),
    ],
)
def test_yes_needs_a_proof_and_no_none(tmp_path: Path, add_run: AddRun, lead: float, answer: str, said: str) -> None:
    board = board_of(tmp_path, add_run, ("circle", lead, 0.5 if lead > 0 else 0.3), ("untrained", 0.0, 0.4))
    assert gain_in(board).answer == answer
    assert headline(board).endswith(said)
    told = " ".join(advice.text for advice in board.advice(percent, " %"))
    assert f"{100 * round(gain_in(board).trained_score, 4):.2f} % with circle and" in told
    assert ("No trained model is better" in best_in_words(board)) == (answer == "no")


@pytest.mark.parametrize("prefers_trained", [True, False])
def test_where_validation_and_test_disagree_all_of_the_advice_says_so(
    tmp_path: Path, add_run: AddRun, prefers_trained: bool
) -> None:
    lead, validation = (-0.1, 0.5) if prefers_trained else (0.1, 0.3)
    board = board_of(
        tmp_path, add_run, ("circle", lead, validation), ("triplet", lead - 0.05, 0.1), ("untrained", 0.0, 0.4), seeds=2
    )
    assert (board.best_entry.name == "circle") == prefers_trained
    assert gain_in(board).answer == "divided"
    use, worth, following = board.advice()
    better = "the untrained network" if prefers_trained else "a trained model"
    assert f"On test classes {better} is better." in use.text
    assert worth.text.startswith("Unclear whether training helped, because validation and test classes disagree")
    assert f"prefer {'circle' if prefers_trained else 'the untrained network'}" in worth.text
    assert "did not help" not in worth.text
    assert following.text.startswith("more validation classes.")
    assert "validation and test disagree on training" in headline(board)


@pytest.mark.parametrize(("freeze", "proposed"), [(True, "without --freeze"), (False, "such as a pretrained one")])
def test_what_is_proposed_fits_the_network(tmp_path: Path, add_run: AddRun, freeze: bool, proposed: str) -> None:
    for name, lead, role in (("circle", 0.0, "run"), ("margin", -0.1, "run"), ("untrained", 0.2, "baseline")):
        for seed in range(2):
            noise = np.random.default_rng([seed, len(name)]).normal(0, 0.01, len(BASE))
            facts: dict[str, Any] = {"recipe": {"loss": "triplet", "dim": None}} if role == "baseline" else {}
            facts["recipe"] = {**facts.get("recipe", {}), "freeze": freeze}
            if role == "baseline":
                facts["role"] = role
            add_run(tmp_path, name, seed=seed, classes=np.clip(BASE + lead + noise, 0, 1).tolist(),
                    validation=0.5 + lead, **facts)  # fmt: skip
    (board,) = leaderboards([tmp_path])
    assert proposed in next_step(board).text


def test_the_untrained_network_is_to_be_used_where_validation_finds_nothing_better(
    tmp_path: Path, add_run: AddRun
) -> None:
    board = board_of(tmp_path, add_run, ("circle", -0.2, 0.5), ("untrained", 0.0, 0.5), ("chance", -0.3, 0.9))
    assert board.best_entry.name == "untrained"  # of equals the one that costs nothing
    assert (board.best_trained.name, board.main_network) == ("circle", ("convnet", 8))
    assert headline(board) == "No loss beats the untrained network on digits"
    assert "No trained model is better than this untrained network" in " ".join(str(board).split())


def test_without_validation_test_scores_choose_and_it_is_said(tmp_path: Path, add_run: AddRun) -> None:
    board = board_of(tmp_path, add_run, ("circle", 0.0, None), ("untrained", 0.2, None), ("chance", 0.3, None))
    assert (board.best_entry.name, board.chosen_by) == ("untrained", "test")
    assert "biased upwards" in best_in_words(board)
    assert gain_in(board).answer == "no"


def test_a_first_neighbour_that_tells_another_story_is_told(tmp_path: Path, add_run: AddRun) -> None:
    values = {"circle": (BASE + 0.1, BASE - 0.1), "untrained": (BASE, BASE)}
    for name, (average, first) in values.items():
        baseline: dict[str, Any] = {"role": "baseline", "recipe": {"loss": "triplet", "dim": None}, "validation": 0.4}
        per_class = {"MAP@R": tuple(average), "P@1": tuple(first)}
        add_run(
            tmp_path, name, classes=average.tolist(), per_class=per_class, **(baseline if name == "untrained" else {})
        )
    gain = gain_in(leaderboards([tmp_path])[0])
    assert gain.answer == "yes"
    assert "By P@1, circle is worse than the untrained network: -0.1000 (95 % interval" in str(gain)


def test_what_cannot_be_told_says_why(tmp_path: Path, add_run: AddRun) -> None:
    untrained: dict[str, Any] = {"role": "baseline", "recipe": {"loss": "triplet", "dim": None}, "validation": 0.4}
    add_run(tmp_path / "few", "circle", classes=[0.5, 0.6, 0.7])
    add_run(tmp_path / "few", "untrained", classes=[0.4, 0.5, 0.6], **untrained)
    (few,) = leaderboards([tmp_path / "few"])
    assert gain_in(few).answer == "unknown"
    assert "p cannot fall below 0.25" in str(gain_in(few))
    add_run(tmp_path / "apart", "circle", seed=0)
    add_run(tmp_path / "apart", "untrained", seed=1, **untrained)
    (apart,) = leaderboards([tmp_path / "apart"])
    assert str(gain_in(apart)).startswith("Unclear whether training helped: circle and the untrained")


def test_journals_without_baselines_and_without_trained_runs_are_read(tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path / "old", "circle")
    (old,) = leaderboards([tmp_path / "old"])
    assert (old.gain, old.baselines, old.best_entry.name) == (None, [], "circle")
    assert "worth it" not in str(old) + headline(old) + lede(old)
    add_run(tmp_path / "bare", "untrained", role="baseline", recipe={"loss": "triplet", "dim": None})
    add_run(tmp_path / "bare", "circle", status="failed")
    (bare,) = leaderboards([tmp_path / "bare"])
    assert bare.gain is None
    assert "Failed: circle" in str(bare)


def test_the_table_has_baselines_under_a_rule_and_chance_once(tmp_path: Path, add_run: AddRun) -> None:
    for backbone in ("convnet", "resnet18"):
        shared = {"backbone": backbone}
        add_run(tmp_path, "circle", recipe=shared)
        for name in ("untrained", "chance"):
            add_run(tmp_path, name, role="baseline", recipe={**shared, "loss": "triplet", "dim": None})
    lines = str(leaderboards([tmp_path])[0]).splitlines()
    rules = [number for number, line in enumerate(lines) if set(line.strip()) == {"\u2500"}]
    assert len(rules) == 2
    assert all("circle" in line for line in lines[rules[0] + 1 : rules[1]])
    below = [line.split()[:3] for line in lines[rules[1] + 1 : rules[1] + 4]]
    assert sorted(below)[1:] == [["untrained", "convnet", "all"], ["untrained", "resnet18", "all"]]
    assert sorted(below)[0][0] == "chance"
    assert sum("chance" in line for line in lines) == 1
