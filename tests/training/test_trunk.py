"""A trunk that stands still: its maps are computed once, and the last stages train on them as on the images."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vicinal.criterion import Criterion
from vicinal.data import Dataset, Fit, RandomAffine, Split, arrays, digits, split
from vicinal.embedder import Embedder
from vicinal.errors import DataError, InputError
from vicinal.runs._train import fit, train
from vicinal.runs.recipe import Recipe
from vicinal.sampling import class_sampler
from vicinal.training import feature_cache as features_module
from vicinal.training.checkpoint import load_checkpoint
from vicinal.training.engine import Stream, run_training
from vicinal.training.feature_cache import OneOf, frozen_features, with_features
from vicinal.training.frozen import FrozenEmbedder, Trainee, training_items
from vicinal.training.settings import Settings

pytestmark = pytest.mark.recipe

SMALL: dict[str, Any] = {
    "backbone_options": {"widths": [4, 8, 12], "size": 16},
    "freeze": "trunk",
    "train_stages": 1,
    "copies": 2,
    "dim": 6,
    "classes_per_batch": 2,
    "steps": 12,
    "evaluate_every": 6,
    "learning_rate": 3e-3,
}


@pytest.fixture
def data() -> Dataset:
    return digits().of_classes([3, 5, 7]).subset(np.arange(0, 300, 8))


@pytest.fixture(scope="module")
def halves() -> Split:
    return split(digits().subset(np.arange(0, 1797, 4)), "fixed-validation", validation=0.6)


def make(backbone: str = "convnet", train_stages: int = 2, batch_norm: bool = False, **options: Any) -> Embedder:
    torch.manual_seed(0)
    if backbone == "convnet":
        options = {"widths": [4, 8, 12], "size": 16, **options}
    embedder = Embedder(backbone, dim=6, options=options)
    if backbone != "convnet":  # statistics of some images, without which everything ends at one point
        for norm in (module for module in embedder.modules() if isinstance(module, nn.BatchNorm2d)):
            norm.momentum = 1.0
        with torch.no_grad():
            embedder(torch.randn(16, 3, 64, 64))
    return embedder.freeze(train_stages=train_stages, batch_norm=batch_norm)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many items were opened since the last call."""
    seen: list[int] = []
    real = Dataset.open

    def counted(self: Dataset, index: int) -> Any:
        seen.append(index)
        return real(self, index)

    monkeypatch.setattr(Dataset, "open", counted)

    def count() -> int:
        total = len(seen)
        seen.clear()
        return total

    return count


def losses(model: Trainee, data: Dataset, transform: Any, steps: int = 10, rate: float = 1e-2) -> list[float]:
    """Train, and return the loss of every step."""
    items, drawn = training_items(model, data, transform)
    stream = Stream(items, drawn, class_sampler(data.labels, 3, 3, seed=1))
    found: list[float] = []
    criterion = Criterion("contrastive")
    criterion.register_forward_hook(lambda _, __, loss: found.append(float(loss.detach())))
    settings = Settings(steps=steps, learning_rate=rate, optimiser="sgd", evaluate_every=0)
    run_training(model, criterion, stream, settings, progress=False)
    return found


@pytest.mark.parametrize(("train_stages", "batch_norm"), [(1, False), (2, True)])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("float16", 1e-2)])
def test_it_trains_as_ordinary_fine_tuning_does(
    precision: Any, tolerance: float, train_stages: int, batch_norm: bool, data: Dataset, tmp_path: Path
) -> None:
    plain, ours = (make(train_stages=train_stages, batch_norm=batch_norm) for _ in range(2))
    model = FrozenEmbedder(ours, cache=tmp_path, precision=precision, progress=False)
    check_same_training(plain, model, ours, data, Fit(16, pixels="grey"), rate=1e-2, tolerance=tolerance)


def test_mobilenet_trains_as_ordinary_fine_tuning_does(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, size=(30, 8, 8, 3), dtype=np.uint8)
    data = Dataset(noise, np.arange(30) % 3, ("a", "b", "c"))
    plain, ours = (make("mobilenet_v2", train_stages=2, batch_norm=True) for _ in range(2))
    model = FrozenEmbedder(ours, cache=tmp_path, precision="float32", progress=False)
    # A deep network without trained weights is chaotic: at a faster rate 1e-6 of the input becomes 1e-2 of the loss.
    check_same_training(plain, model, ours, data, Fit(64, pixels="imagenet"), rate=1e-6, tolerance=1e-4)


def check_same_training(
    plain: Embedder, model: FrozenEmbedder, ours: Embedder, data: Dataset, transform: Any, rate: float, tolerance: float
) -> None:
    start = plain.head.linear.weight.detach().clone()
    expected = losses(plain, data, transform, rate=rate)
    assert not torch.equal(plain.head.linear.weight, start)
    assert losses(model, data, transform, rate=rate) == pytest.approx(expected, rel=tolerance, abs=tolerance)
    for (name, one), other in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, msg=lambda text, n=name: f"{n} {text}")


def test_maps_are_those_at_the_border_in_every_copy(data: Dataset, tmp_path: Path) -> None:
    embedder = make(train_stages=1).eval()
    found = frozen_features(
        embedder, data, RandomAffine(16), copies=3, train_stages=1, cache=tmp_path, precision="float16", progress=False
    )
    assert (found.shape, found.dtype) == ((len(data), 3, 8, 4, 4), np.float16)
    assert not np.array_equal(found[:, 0], found[:, 1])
    plain = frozen_features(embedder, data, embedder.transform, train_stages=1, cache=tmp_path, progress=False)
    images = torch.stack([embedder.transform(data.open(i)) for i in range(len(data))])
    with torch.inference_mode():
        maps = embedder.backbone.run_stage("block1", embedder.backbone.run_stage("block0", images))
    torch.testing.assert_close(torch.from_numpy(plain[:, 0]), maps)
    drawn = OneOf(3, (8, 4, 4)).rows(with_features(data, found).items, np.array([4, 0]), np.random.default_rng(0))
    assert (drawn.shape, drawn.dtype) == ((2, 8, 4, 4), torch.float32)
    assert any(torch.equal(drawn[0], torch.from_numpy(found[4, copy]).float()) for copy in range(3))


def test_only_the_border_and_the_trunk_count(data: Dataset, opened: Callable[[], int], tmp_path: Path) -> None:
    options: dict[str, Any] = {"cache": tmp_path, "progress": False}
    frozen_features(make(), data, Fit(16), train_stages=1, **options)
    assert opened() == len(data) + 1  # one more tells the shape
    changed = make()
    torch.nn.init.zeros_(changed.backbone.blocks[2][0].weight)
    frozen_features(changed, data, Fit(16), train_stages=1, **options)
    assert opened() == 1
    torch.nn.init.zeros_(changed.backbone.blocks[1][0].weight)
    frozen_features(changed, data, Fit(16), train_stages=1, **options)
    assert opened() == len(data) + 1
    frozen_features(changed, data, Fit(16), train_stages=2, **options)
    assert opened() == len(data) + 1


def test_large_maps_are_mapped_and_batches_read_one_copy(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features_module, "IN_MEMORY", 0)
    model = FrozenEmbedder(make(train_stages=1), cache=tmp_path, progress=False)
    items, pick = model.features_of(data, RandomAffine(16), 2)
    assert isinstance(items.items, np.memmap) or isinstance(items.items.base, np.memmap)
    assert items.items.dtype == np.float16
    assert np.isfinite(losses(model, data, RandomAffine(16), steps=2)).all()
    assert pick.shape == (8, 4, 4)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np, torch
from vicinal.data import Dataset, Fit, digits
from vicinal.embedder import Embedder
from vicinal.training.feature_cache import frozen_features

torch.manual_seed(0)
embedder = Embedder("convnet", dim=6, options={"widths": [4, 8, 12], "size": 16})
real, calls = Dataset.open, iter(range(100))

def killed(self, index):
    if next(calls) == 25:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, index)

Dataset.open = killed
sys.modules[frozen_features.__module__].BATCH_SIZE = 3
data = digits().of_classes([3, 5, 7]).subset(np.arange(0, 300, 8))
frozen_features(embedder, data, Fit(16), train_stages=2, cache=Path(sys.argv[1]), progress=False)
"""


@pytest.mark.slow
def test_a_kill_loses_no_maps_that_were_stored(data: Dataset, opened: Callable[[], int], tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    folder = tmp_path / "features"
    stored = sum(len(np.load(path)) for path in folder.glob("*.npy"))
    stored += sum(path.stat().st_size // 8 for path in folder.glob("*.rows"))
    assert 10 < stored < 25
    found = frozen_features(make(), data, Fit(16), train_stages=2, cache=tmp_path, progress=False)
    assert opened() == 1 + len(data) - stored
    expected = frozen_features(make(), data, Fit(16), train_stages=2, cache=tmp_path / "other", progress=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_numbers_that_half_precision_cannot_hold_are_refused(data: Dataset, tmp_path: Path) -> None:
    embedder = make(train_stages=1)
    torch.nn.init.constant_(embedder.backbone.blocks[1][1].bias, 1e5)
    with pytest.raises(DataError, match="too large for float16"):
        FrozenEmbedder(embedder, cache=tmp_path, progress=False).encode(data)


class TestFit:
    def test_the_embedder_as_a_whole_has_the_trained_weights(
        self, halves: Split, opened: Callable[[], int], tmp_path: Path
    ) -> None:
        running: dict[str, Any] = {"cache": tmp_path / "cache", "progress": False}
        embedder = fit(halves, folder=tmp_path / "run", **SMALL, **running)
        assert opened() == 2 * len(halves.train) + len(halves.validation) + len(halves.train) + 3  # as distractors
        start = make(train_stages=1)
        moved = {
            name.split(".")[2] if name.startswith("backbone.blocks") else "head"
            for (name, one), other in zip(embedder.named_parameters(), start.parameters(), strict=True)
            if not torch.equal(one, other)
        }
        assert moved == {"2", "head"}
        checkpoint = load_checkpoint(tmp_path / "run" / "last.ckpt")["model"]
        assert {name.rsplit(".", 1)[0] for name in checkpoint} == {
            "rest.layers.blocks.2.0",
            "rest.layers.blocks.2.1",
            "head.linear",
        }
        loaded = Embedder.load(tmp_path / "run" / "model")
        assert all(map(torch.equal, loaded.state_dict().values(), embedder.state_dict().values()))
        opened()
        again = fit(halves, folder=tmp_path / "run", resume=True, **SMALL, **running)
        assert all(map(torch.equal, again.state_dict().values(), embedder.state_dict().values()))
        fit(halves, loss="triplet", **SMALL, **running)
        assert opened() == 5  # items of training and validation classes and of distractors, for the shape

    def test_scores_are_those_of_the_embedder(self, halves: Split, tmp_path: Path) -> None:
        recipe = Recipe(validation=0.6).changed(SMALL)
        run = train(recipe, data=digits().subset(np.arange(0, 1797, 4)), cache=tmp_path, progress=False)
        embedder = run.embedder()
        trunk = FrozenEmbedder(embedder.freeze(train_stages=1), cache=tmp_path, progress=False)
        np.testing.assert_allclose(
            trunk.encode(halves.test, engine="folded"), embedder.encode(halves.test, engine="eager"), atol=5e-3
        )
        assert 0 < run.record.test["P@1"] <= 1

    def test_an_interrupted_run_goes_on_bit_for_bit(self, halves: Split, tmp_path: Path) -> None:
        class Stop(Exception):
            pass

        def stop(step: int, scores: dict[str, float]) -> None:
            raise Stop

        running: dict[str, Any] = {"cache": tmp_path / "cache", "progress": False}
        whole = fit(halves, folder=tmp_path / "whole", **SMALL, **running)
        early = {**SMALL, "checkpoint_every": 3}
        with pytest.raises(Stop):
            fit(halves, folder=tmp_path / "cut", on_score=stop, **early, **running)
        resumed = fit(halves, folder=tmp_path / "cut", resume=True, **early, **running)
        assert all(map(torch.equal, resumed.state_dict().values(), whole.state_dict().values()))
        records = [json.loads((tmp_path / name / "record.json").read_text()) for name in ("whole", "cut")]
        assert records[0]["validation"] == records[1]["validation"]

    @pytest.mark.parametrize("wrong", [None, 0, 3, 7])
    def test_train_stages_must_leave_a_trunk_and_train_something(self, wrong: int | None, halves: Split) -> None:
        with pytest.raises(InputError, match=rf"1 to 2 of block0, block1, block2; got {wrong}\..*freeze = true"):
            fit(halves, progress=False, **{**SMALL, "train_stages": wrong})

    def test_feature_vectors_have_no_trunk(self) -> None:
        vectors = arrays(np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), np.arange(40) % 10)
        with pytest.raises(InputError, match="feature vectors have no stages"):
            fit(split(vectors), backbone="linear", freeze="trunk", train_stages=1, progress=False)

    def test_another_word_is_refused(self, halves: Split) -> None:
        with pytest.raises(InputError, match=r"freeze.*'trunk'.*got 'stem'"):
            fit(halves, freeze="stem", progress=False)


def test_an_embedder_that_is_not_frozen_is_refused() -> None:
    with pytest.raises(InputError, match=r"call embedder\.freeze\(train_stages=\.\.\.\) first"):
        FrozenEmbedder(Embedder("convnet"))
