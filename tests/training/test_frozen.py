"""An embedder whose backbone stands still embeds as the whole one does, and only its head is trained and saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vicinal.data import Dataset, Split, digits, split
from vicinal.embedder import Embedder
from vicinal.runs._train import fit
from vicinal.runs.build import build_criterion, build_embedder, build_sampler, train_transform
from vicinal.runs.recipe import Recipe
from vicinal.training import feature_cache as frozen_features
from vicinal.training import frozen
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.engine import Stream, run_training
from vicinal.training.feature_cache import OneOf, with_features
from vicinal.training.frozen import FrozenEmbedder, training_items

pytestmark = pytest.mark.recipe

RECIPE = Recipe.of(
    {
        "backbone_options": {"widths": [4, 8], "size": 16},
        "dim": 5,
        "classes_per_batch": 2,
        "freeze": True,
        "copies": 2,
        "steps": 12,
        "evaluate_every": 4,
        "learning_rate": 3e-3,
        "sampler": "hard-classes",
    }
)


@pytest.fixture(scope="module")
def halves() -> Split:
    data = digits()
    return split(data.subset(np.arange(0, len(data), 5)), "fixed-validation", validation=0.6)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def embedder(halves: Split) -> Embedder:
    return build_embedder(RECIPE, halves.train)


@pytest.mark.parametrize("normalisation", ["sphere", "ball", "none"])
@pytest.mark.parametrize("pooling", ["average", "both"])
def test_it_embeds_as_the_whole_embedder_does(
    normalisation: str, pooling: str, halves: Split, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "ROWS", 50)  # several parts, and the last one smaller
    torch.manual_seed(0)
    options: dict[str, Any] = {"normalisation": normalisation, "pooling": pooling}
    whole = Embedder("convnet", dim=5, options=RECIPE.backbone_options, **options).freeze(train_stages=0)
    model = FrozenEmbedder(whole, cache=cache, progress=False)
    assert len(halves.validation) % 50
    found = model.encode(halves.validation)
    np.testing.assert_allclose(found, whole.encode(halves.validation), rtol=1e-4, atol=1e-5)
    assert found.dtype == np.float32
    assert (model.distance, model.device, model.head) == (whole.distance, whole.device, whole.head)
    features = torch.rand(3, 8)
    assert torch.equal(model(features), whole.head(features))
    assert torch.equal(model.unnormalised(features), whole.head.unnormalised(features))
    # A new head shows at once: only the features are kept.
    with torch.no_grad():
        whole.head.linear.weight.normal_()
    np.testing.assert_allclose(model.encode(halves.validation), whole.encode(halves.validation), rtol=1e-4, atol=1e-5)


def test_it_has_a_head_and_nothing_else(embedder: Embedder, cache: Path) -> None:
    model = FrozenEmbedder(embedder, cache=cache, progress=False)
    assert set(model.state_dict()) == {"head.linear.weight", "head.linear.bias"}
    assert [name for name, _ in model.named_parameters()] == ["head.linear.weight", "head.linear.bias"]
    for mode in (False, True):
        model.train(mode)
        assert embedder.head.training is mode
        assert not any(
            module.training for name in embedder.frozen for module in embedder.backbone.get_submodule(name).modules()
        )


def test_features_are_looked_up_once_per_run(
    halves: Split, embedder: Embedder, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking them up reads every item for its hash: far too long to do at every evaluation."""
    asked: list[Dataset] = []
    real = frozen_features.frozen_features

    def counted(of: Embedder, data: Dataset, *rest: Any, **options: Any) -> Any:
        asked.append(data)
        return real(of, data, *rest, **options)

    monkeypatch.setattr(frozen, "frozen_features", counted)
    model = FrozenEmbedder(embedder, cache=cache, progress=False)
    for mode in (True, False, True):
        model.train(mode)
        model.encode(halves.validation)
        assert model.training is mode
    assert asked == [halves.validation]
    fit(halves, RECIPE, cache=cache, progress=False)
    assert len(asked) == 1 + 3  # training items in copies, validation items, training items for the hard classes


def test_it_trains_as_a_head_by_itself_does(halves: Split, cache: Path, tmp_path: Path) -> None:
    trained = fit(halves, RECIPE, cache=cache, folder=tmp_path, progress=False)

    embedder = build_embedder(RECIPE, halves.train)
    copies = frozen_features.frozen_features(
        embedder, halves.train, train_transform(RECIPE, embedder), copies=2, cache=cache, progress=False
    )
    plain, shown = (
        torch.from_numpy(
            frozen_features.frozen_features(embedder, data, embedder.transform, cache=cache, progress=False)[:, 0]
        )
        for data in (halves.train, halves.validation)
    )
    scores = iter(load_log(tmp_path))

    def score(head: torch.nn.Module) -> dict[str, float]:
        with torch.no_grad():
            head.eval()(shown)
        return {"MAP@R": next(scores)}

    stream = Stream(
        with_features(halves.train, copies),
        OneOf(2),
        build_sampler(RECIPE, halves.train),
        embed=lambda head: head.eval()(plain).detach(),
    )
    # The head under its name, so that it is the same group of parameters.
    alone = torch.nn.Sequential()
    alone.add_module("head", embedder.head)
    run_training(alone, build_criterion(RECIPE, halves.train, 5), stream, RECIPE.training, score=score, progress=False)
    assert torch.equal(embedder.head.linear.weight, trained.head.linear.weight)
    assert torch.equal(embedder.head.linear.bias, trained.head.linear.bias)
    start = build_embedder(RECIPE, halves.train)
    assert not torch.equal(start.head.linear.weight, trained.head.linear.weight)
    assert all(map(torch.equal, start.backbone.state_dict().values(), trained.backbone.state_dict().values()))
    for name in ("last.ckpt", "best.ckpt"):
        assert set(load_checkpoint(tmp_path / name)["model"]) == {"head.linear.weight", "head.linear.bias"}


def load_log(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["MAP@R"] for line in lines if "MAP@R" in line]


def test_vectors_stand_still_already(halves: Split) -> None:
    embedder = Embedder("linear", dim=2, options={"features": 3})
    data, transform = training_items(embedder, halves.train, None)
    assert (data is halves.train, transform) == (True, None)
