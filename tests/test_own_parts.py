"""Own losses, miners, networks, readers, scores and chapters: in Python, in recipes and on the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import vicinal as vc
from vicinal._util import code as named_code
from vicinal.cli.main import app
from vicinal.errors import InputError
from vicinal.report import Chapter, Prose, write_report
from vicinal.runs import Journal
from vicinal.runs.recipe import Recipe

SIX_LINES = """\
def own_loss(matrix, positive, negative, *, margin=0.3):
    pull = (1 - matrix)[positive].sum()
    push = (matrix - margin).clamp_min(0)[negative].sum()
    return (pull + push) / len(matrix)
"""
MORE = """
import numpy as np
from torch import nn
from vicinal.data import arrays
from vicinal.report import Chapter, Prose

def own_miner(matrix, positive, negative, *, above=0.0):
    return positive, negative & (matrix > above)

class OwnNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, width), nn.ReLU())
    def forward(self, vectors):
        return self.layers(vectors)

def own_reader():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 8)
    return arrays((rng.normal(size=(12, 10))[labels] + rng.normal(size=(96, 10))).astype("f4"), labels, name="own")

def own_score(hits, relevant):
    return hits[:, 0].double()

def own_chapter(board):
    return [Chapter("What I saw", (Prose(f"{len(board.entries)} ways."),))]
"""
SMALL: dict[str, Any] = {
    "backbone": "linear", "dim": 4, "steps": 4, "evaluate_every": 2, "classes_per_batch": 3, "progress": False,
}  # fmt: skip
FLAGS = [
    "--rates=1",
    "--backbone=linear",
    "--steps=4",
    "-o",
    "dim=4",
    "-o",
    "classes_per_batch=3",
    "--no-progress",
    "-o",
    "evaluate_every=2",
]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the current folder."""
    monkeypatch.setattr(named_code, "_handed_over", {})
    name = f"mine_{abs(hash(str(tmp_path))) % 10**8}"
    (tmp_path / f"{name}.py").write_text(SIX_LINES + MORE)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


def vectors() -> vc.Dataset:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 8)
    return vc.data.arrays((rng.normal(size=(12, 10))[labels] + rng.normal(size=(96, 10))).astype("f4"), labels)


def own_loss(matrix: Tensor, positive: Tensor, negative: Tensor, *, margin: float = 0.3) -> Tensor:
    pull = (1 - matrix)[positive].sum()
    return (pull + (matrix - margin).clamp_min(0)[negative].sum()) / len(matrix)


def typed(*words: str) -> str:
    """What a command line prints; it must succeed."""
    result = CliRunner().invoke(app, list(words))
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def trained(folder: Path | str) -> dict[str, Any]:
    records = [record for record in Journal(Path(folder)).records() if record.role == "run" and record.seed == 0]
    return {record.name: record for record in records}


@pytest.mark.recipe
def test_an_own_loss_is_compared_with_two_others_by_command_and_in_python(mine: str) -> None:
    np.savez("data.npz", X=vectors().items, y=vectors().labels)
    said = typed(
        "compare", "data.npz", "--losses", f"{mine}.py:own_loss,triplet,contrastive+{mine}:own_miner",
        *FLAGS, "--jobs", "1", "--out", "typed",
    )  # fmt: skip
    assert "own_loss" in said
    assert set(trained("typed")) == {"own_loss", "triplet", "contrastive+own_miner"}
    record = trained("typed")["own_loss"]
    assert record.recipe["loss"] == f"{mine}.py:own_loss"
    assert list(record.code) == [f"{mine}.py:own_loss"]
    assert record.status == "done"

    board = vc.compare(vectors(), [own_loss, "triplet", ("contrastive", "hard")], rates=1, out="called", **SMALL)
    assert {entry.name for entry in board.entries} == {"own_loss", "triplet", "contrastive+hard"}
    # The same function on the same data has the same score, wherever it came from.
    assert trained("called")["own_loss"].test == trained("typed")["own_loss"].test


@pytest.mark.slow
def test_own_functions_reach_other_processes_by_their_names(mine: str) -> None:
    np.savez("data.npz", X=vectors().items, y=vectors().labels)
    typed("compare", "data.npz", "--losses", f"{mine}:own_loss,triplet+{mine}.py:own_miner", *FLAGS, "--jobs", "2")
    assert {record.status for record in trained("runs/comparison").values()} == {"done"}


def test_a_function_that_no_other_process_can_import_is_refused_or_stays_here(mine: str) -> None:
    hidden = lambda matrix, positive, negative: own_loss(matrix, positive, negative)  # noqa: E731
    with pytest.raises(InputError, match=r"cannot import .*<lambda>.*jobs=1"):
        vc.compare(vectors(), [hidden], jobs=2, out="runs", **SMALL)
    board = vc.compare(vectors(), [hidden], rates=1, out="runs", **SMALL)
    assert [entry.name for entry in board.entries] == ["<lambda>"]


def test_changed_code_is_another_run(mine: str) -> None:
    names: list[dict[str, Any]] = [{"__name__": "typed_in"}, {"__name__": "typed_in"}]
    keys = set()
    for margin, space in zip(("0.1", "0.2"), names, strict=True):
        exec(SIX_LINES.replace("0.3", margin), space)
        keys.add(Recipe(loss=space["own_loss"]).key())
    assert len(keys) == 2


def test_recipes_of_others_run_code_only_when_allowed(mine: str) -> None:
    Path("theirs.toml").write_text(f'loss = "{mine}:own_loss"\nsteps = 2\nbackbone = "linear"\nclasses_per_batch = 3\n')
    recipe = Recipe.read("theirs.toml")  # which is looking, and runs nothing
    for refused in (
        lambda: vc.train(recipe, data=vectors(), progress=False),
        lambda: vc.fit(vc.split(vectors()), recipe, progress=False),
        lambda: vc.compare(vectors(), ["triplet", "theirs.toml"], out="runs", **SMALL),
        lambda: typed("compare", "own", "--losses", "theirs.toml", "--out", "runs"),
    ):
        with pytest.raises(InputError, match=f"--allow-code {mine}"):
            refused()
    assert mine not in sys.modules
    run = vc.train(recipe, data=vectors(), progress=False, allow_code=[mine])
    assert set(run.record.code) == {f"{mine}:own_loss"}


def test_the_command_line_allows_by_a_flag(mine: str) -> None:
    Path("theirs.toml").write_text(f'loss = "{mine}:own_loss"\nmargin = 0.5\ndata = "{mine}:own_reader"\n')
    flags = ["--recipe", "theirs.toml", "--backbone", "linear", "--steps", "2", "-o", "classes_per_batch=3"]
    with pytest.raises(InputError, match=f"--allow-code {mine}"):
        typed("train", *flags, "--out", "run")
    typed("train", *flags, "--out", "run", "--allow-code", mine, "--no-progress")
    kept = json.loads(Path("run/record.json").read_text())
    assert kept["recipe"]["loss_options"] == {"margin": 0.5}
    assert set(kept["code"]) == {f"{mine}:own_loss", f"{mine}:own_reader"}


def test_fit_and_tune_take_functions(mine: str) -> None:
    split = vc.split(vectors(), "fixed-validation", validation=0.5)
    embedder = vc.fit(split, loss=own_loss, mining=lambda m, p, n: (p, n), margin=0.2, **SMALL)
    assert "own_loss+<lambda>" in embedder.card.title
    tuned = vc.tune(split, loss=own_loss, trials=2, **SMALL)
    assert tuned.recipe.method == "own_loss"


def test_what_an_own_loss_or_miner_returns_is_checked() -> None:
    embeddings, labels = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    per_row = vc.Criterion(lambda matrix, positive, negative: matrix.sum(1))
    with pytest.raises(InputError, match=r"<lambda> returned shape \[4\]"):
        per_row(embeddings, labels)
    with pytest.raises(InputError, match="own_loss returned Tensor"):
        vc.Criterion("triplet", mining=own_loss)(embeddings, labels)


class TwoLayers(nn.Module):
    """A network that declares nothing."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, width), nn.ReLU())

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


def test_a_class_that_has_no_importable_name_is_trained() -> None:
    class Local(TwoLayers):
        pass

    vc.fit(vc.split(vectors()), backbone=Local, steps=1, classes_per_batch=3, dim=4, progress=False)


@pytest.mark.parametrize("given", ["class", "instance", "name"])
def test_an_own_network_is_trained(mine: str, given: str) -> None:
    backbone = {"class": TwoLayers, "instance": TwoLayers(), "name": f"{mine}:OwnNet"}[given]
    embedder = vc.fit(vc.split(vectors()), backbone=backbone, steps=2, classes_per_batch=3, dim=4, progress=False)
    assert embedder.encode(vectors()).shape == (96, 4)
    assert embedder.backbone.channels == (6 if given == "name" else 5)


def test_a_saved_own_network_is_loaded_when_allowed(mine: str) -> None:
    embedder = vc.fit(
        vc.split(vectors()), backbone=f"{mine}:OwnNet", backbone_options={"width": 7}, steps=2, classes_per_batch=3,
        dim=4, progress=False,
    )  # fmt: skip
    embedder.save("model")
    np.savez("data.npz", X=vectors().items)
    for refused in (
        lambda: vc.Embedder.load("model"),  # that its code ran before says nothing
        lambda: vc.load("model"),
        lambda: typed("embed", "model", "data.npz"),
    ):
        with pytest.raises(InputError, match=f"--allow-code {mine}"):
            refused()
    again = vc.Embedder.load("model", allow_code=[mine])
    assert again.backbone.channels == 7
    assert np.array_equal(again.encode(vectors()), embedder.encode(vectors()))
    typed("embed", "model", "data.npz", "--allow-code", mine)


def test_an_own_reader_is_data(mine: str) -> None:
    def reader() -> vc.Dataset:
        return vectors()

    board = vc.compare(reader, ["triplet"], rates=1, out="called", **SMALL)
    assert len(board.entries) == 1
    typed("data", f"{mine}:own_reader")
    with pytest.raises(InputError, match=r"must return a vicinal.Dataset; got list"):
        vc.compare(lambda: [], ["triplet"], out="none", **SMALL)


def test_own_scores_stand_beside_the_usual_ones(mine: str) -> None:
    def first(hits: Tensor, relevant: Tensor) -> Tensor:
        return hits[:, 0].double()

    def rank_of_first(ranks: Tensor) -> Tensor:
        return 1 / ranks[:, 0].double()

    data = vectors()
    scores = vc.evaluate(
        data.items,
        data.labels,
        scores=[first, rank_of_first],
        also=["ranking"],
        intervals=vc.evaluation.Bootstrap(draws=50),
    )
    assert scores["first"] == scores["P@1"]
    assert scores["rank_of_first"] == pytest.approx(scores["MRR"])
    assert scores.intervals["first"] == scores.intervals["P@1"]
    without = vc.evaluate(data.items, data.labels, scores=[rank_of_first], also=[], intervals=None)
    assert "MRR" not in without.overall
    np.savez("data.npz", embeddings=data.items, labels=data.labels)
    assert "own_score" in typed("evaluate", "data.npz", "--scores", f"{mine}:own_score")
    with pytest.raises(InputError, match=r"must return a tensor with one number for each of 96 queries; got \[\]"):
        vc.evaluate(data.items, data.labels, scores=[lambda hits, relevant: hits.double().mean()])


def test_own_chapters_end_a_report(mine: str) -> None:
    def seen(board: vc.Leaderboard) -> list[Chapter]:
        return [Chapter("What I saw", (Prose(f"{len(board.entries)} ways."),))]

    vc.compare(vectors(), ["triplet"], rates=1, out="runs", **SMALL)
    page = write_report(["runs"], chapters=[seen], progress=False).read_text()
    assert "What I saw" in page
    assert "1 ways." in page
    typed("report", "runs", "--chapters", f"{mine}:own_chapter", "--out", "again.html", "--no-progress")
    assert "What I saw" in Path("again.html").read_text()
