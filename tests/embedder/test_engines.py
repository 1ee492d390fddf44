"""Engines: the same embeddings by each of them, wrong ones caught, old weights never used."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from vicinal.backbones import Backbone, Input
from vicinal.data import Dataset, Fit
from vicinal.embedder import Embedder
from vicinal.embedder import encode as encoding
from vicinal.embedder import engines as choosing
from vicinal.embedder import engines as engines_module
from vicinal.embedder.encode import BatchOptions, embed_in_batches, evaluating
from vicinal.embedder.engines import (
    ENGINES,
    TOLERANCE,
    Engine,
    choose_engine,
    difference,
    fingerprint,
    fold,
    forget_engines,
    make_engine,
    outline,
)
from vicinal.embedder.queries import embed_queries
from vicinal.errors import DataError, InputError, UnknownName

pytestmark = pytest.mark.recipe

# side in pixels: small, and odd, which pooling and strides see (bn_inception takes only some sizes)
SIDES = {
    "resnet18": 33,
    "resnet50": 33,
    "googlenet": 47,
    "bn_inception": 64,
    "mobilenet_v2": 33,
    "efficientnet_lite0": 33,
    "convnet": 37,
}
NORMALISATIONS = ("sphere", "ball", "softmax", "none")
FAST = ("folded", "onnxruntime")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VICINAL_CACHE", str(tmp_path_factory.mktemp("cache")))
    forget_engines()


def settled(embedder: Embedder) -> Embedder:
    """Give batch norm statistics and scales that are not those of a new one: folding these would prove nothing."""
    drawn = torch.Generator().manual_seed(1)
    for module in embedder.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, least in ((module.running_mean, -0.2), (module.running_var, 0.6), (module.weight.data, 0.7)):
                tensor.copy_(least + 0.6 * torch.rand(tensor.shape, generator=drawn))
            module.bias.data.copy_(0.2 * torch.randn(module.bias.shape, generator=drawn))
    return embedder


def make(backbone: str | Backbone = "convnet", **options: Any) -> Embedder:
    torch.manual_seed(0)
    usual: dict[str, Any] = {"dim": 5, "transform": Fit(SIDES["convnet"], "unit")} | options
    if backbone == "convnet":
        usual["options"] = {"in_channels": 3, "widths": [4, 8], "size": 16}
    return settled(Embedder(backbone, **usual))


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (13, 20, 24, 3), dtype=np.uint8)


class Attention(Backbone):
    """A small transformer of patches."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.position = nn.Parameter(torch.randn(1, 16, width))
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True, dropout=0.1)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.channels, self.input, self.stages = width, Input("unit", 3, size=32), {"all": ("patches", "layers")}

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.layers(tokens + self.position).mean(dim=1)


class Awkward(Backbone):
    """What folding must leave alone: a convolution used twice, one whose output is used twice, a plain norm."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.branch = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1)
        self.norm, self.other = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.channels, self.input, self.stages = 3, Input("unit", 3, size=16), {"all": ("shared", "norm")}

    def forward(self, images: Tensor) -> Tensor:
        maps = self.norm(self.shared(self.shared(images)))
        split = self.branch(maps)
        return self.other(split) + split


@pytest.mark.parametrize("name", SIDES)
def test_every_engine_gives_the_same_embeddings_for_every_backbone(name: str) -> None:
    embedder = make(name, transform=Fit(SIDES[name], "unit"))
    inputs = torch.randn(9, 3, SIDES[name], SIDES[name] + 4)
    expected = embedder.encode(inputs, engine="eager")
    for engine in FAST:
        found = embedder.encode(inputs, engine=engine, workers=2, batch_size=4)
        assert embedder.encoded_by == engine
        assert difference(found, expected).max() < 1e-9


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("engine", FAST)
def test_every_engine_knows_every_normalisation(engine: Any, normalisation: Any, images: np.ndarray) -> None:
    embedder = make(normalisation=normalisation, pooling="both")
    expected = embedder.encode(images, engine="eager")
    found = embedder.encode(images, engine=engine)
    assert embedder.encoded_by == engine
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backbone", [Attention, Awkward])
def test_networks_of_ones_own(backbone: type[Backbone]) -> None:
    embedder = make(backbone(), transform=Fit(32, "unit"))
    inputs = torch.randn(9, 3, 32, 32)
    expected = embedder.encode(inputs, engine="eager")
    for engine in FAST:
        found = embedder.encode(inputs, engine=engine)
        assert embedder.encoded_by == engine or (backbone is Awkward and engine == "folded")
        assert difference(found, expected).max() < 1e-9


def test_vectors_and_a_network_without_parameters() -> None:
    vectors = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    for dim in (2, None):
        embedder = Embedder("linear", dim=dim, normalisation="ball", options={"features": 3})
        expected = embedder.encode(vectors, engine="eager")
        for engine in FAST:
            np.testing.assert_allclose(embedder.encode(vectors, engine=engine), expected, rtol=1e-5, atol=1e-6)
            assert embedder.encoded_by == engine


def test_only_what_follows_each_other_is_folded() -> None:
    def kinds(network: nn.Module) -> list[str]:
        return [type(module).__name__ for module in network.modules() if not list(module.children())]

    assert kinds(fold(Awkward(), torch.randn(1, 3, 16, 16))).count("BatchNorm2d") == 1  # behind the shared one
    assert "BatchNorm2d" not in kinds(fold(make("resnet18").backbone, torch.randn(1, 3, 33, 33)))
    network = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.BatchNorm2d(3), nn.BatchNorm2d(3))
    assert kinds(fold(network, torch.randn(1, 3, 4, 4))) == kinds(network)
    statistics = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, track_running_stats=False))
    assert kinds(fold(statistics, torch.randn(1, 3, 4, 4))) == kinds(statistics)
    hooked = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    hooked[0].register_forward_hook(lambda *_: None)
    assert kinds(fold(hooked, torch.randn(1, 3, 4, 4))) == kinds(hooked)


@pytest.mark.parametrize("engine", FAST)
def test_one_image_none_grey_ones_and_files(engine: Any, images: np.ndarray, tmp_path: Path) -> None:
    embedder = make()
    expected = embedder.encode(images, engine="eager")
    np.testing.assert_allclose(embedder.encode(images[0], engine=engine), expected[:1], atol=1e-6)
    assert embedder.encode([], engine=engine).shape == (0, 5)
    grey = embedder.encode(images[..., 0], engine="eager")
    np.testing.assert_allclose(embedder.encode(images[..., 0], engine=engine), grey, atol=1e-6)
    paths = []
    for index, image in enumerate(images):
        paths.append(str(tmp_path / f"{index}.png"))
        Image.fromarray(image).save(paths[-1])
    data = Dataset(tuple(paths), np.zeros(13, np.int64), ("a",))
    np.testing.assert_allclose(embedder.encode(data, engine=engine, workers=3), expected, atol=1e-6)
    Path(paths[11]).write_bytes(b"no image")
    Path(paths[12]).write_bytes(b"no image")
    with pytest.raises(DataError, match=r"11\.png cannot be read as an image"):
        embedder.encode(data, engine=engine, workers=3, batch_size=2)


@pytest.mark.parametrize("engine", FAST)
def test_images_of_another_size_later_in_the_run(engine: Any) -> None:
    embedder = make()
    inputs = [torch.randn(3, 16, 16) for _ in range(8)] + [torch.randn(3, 21, 18) for _ in range(4)]
    found = embedder.encode(inputs, engine=engine, batch_size=4, workers=2)
    expected = np.concatenate([embedder.encode(part, engine="eager") for part in (inputs[:8], inputs[8:])])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def wrong(change: Any) -> Any:
    def maker(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
        right = ENGINES["eager"](network, sample, patient)
        return Engine("folded", lambda inputs: change(right.run(inputs)), concurrent=True)

    return maker


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: -rows,
        lambda rows: rows.flip(0),
        lambda rows: torch.cat([rows[:-1], rows[:1]]),  # the last row alone
        lambda rows: rows * float("nan"),
        lambda rows: rows[:, :2],
        lambda rows: rows * 1.05,  # the direction is right, the length is not
    ],
    ids=["sign", "order", "last", "nan", "shape", "length"],
)
@pytest.mark.parametrize("normalisation", ["sphere", "none"])
def test_an_engine_that_gives_wrong_numbers_is_caught_and_left(
    change: Any, normalisation: Any, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = make(normalisation=normalisation)
    expected = embedder.encode(images, engine="eager")
    monkeypatch.setitem(ENGINES, "folded", wrong(change))
    for _ in range(2):  # every run is checked, not only the one that made it
        assert np.array_equal(embedder.encode(images, engine="folded"), embedder.encode(images, engine="eager"))
        embedder.encode(images, engine="folded")
        assert embedder.encoded_by.startswith("eager (folded gave other embeddings")
    np.testing.assert_allclose(embedder.encode(images, engine="folded"), expected, atol=1e-6)


def test_an_engine_that_fails_is_left_with_its_reason(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def maker(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
        raise RuntimeError("no such operator\nand a long trace")

    embedder = make()
    monkeypatch.setitem(ENGINES, "onnxruntime", maker)
    expected = embedder.encode(images, engine="eager")
    assert np.array_equal(embedder.encode(images, engine="onnxruntime"), expected)
    assert embedder.encoded_by == "eager (onnxruntime cannot run this network (RuntimeError: no such operator))"


def test_the_difference_is_that_of_cosines_on_the_sphere_and_sees_lengths_elsewhere() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(50, 6))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = first + 0.01 * rng.normal(size=first.shape)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    np.testing.assert_allclose(difference(second, first), 1 - (first * second).sum(axis=1), atol=1e-12)
    rows = np.array([[0.0, 0.0], [0.0, 0.0], [np.nan, 1.0], [np.nan, 1.0], [np.inf, 1.0], [3.0, 0.0]])
    others = np.array([[0.0, 0.0], [1e-9, 0.0], [np.nan, 1.0], [1.0, 1.0], [np.inf, 1.0], [3.03, 0.0]])
    np.testing.assert_allclose(difference(others, rows), [0, np.inf, 0, np.inf, 0, 5e-5], atol=1e-12)
    assert difference(others, rows)[-1] <= TOLERANCE


CHANGES = {
    "step": lambda embedder: step(embedder),
    "data": lambda embedder: embedder.head.linear.weight.data.mul_(-1),
    "shared": lambda embedder: embedder.head.linear.weight.detach().numpy().__imul__(-1),
    "loaded": lambda embedder: embedder.load_state_dict(make("convnet", dim=5).apply(redraw).state_dict()),
    "statistics": lambda embedder: embedder.backbone.blocks[0][1].running_mean.add_(1.0),
    "setting": lambda embedder: setattr(embedder.head, "pooling", "max"),
    "layer": lambda embedder: setattr(embedder.head, "linear", nn.Linear(8, 5)),
    "hook": lambda embedder: embedder.head.linear.register_forward_hook(lambda *arguments: -arguments[2]),
}


def redraw(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.normal_(module.weight)


def step(embedder: Embedder) -> None:
    embedder.train()
    optimiser = torch.optim.SGD(embedder.parameters(), lr=1.0)
    embedder(torch.randn(8, 3, 16, 16)).square()[:, 0].sum().backward()
    optimiser.step()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("engine", FAST)
def test_a_network_that_has_changed_is_run_as_it_is_now(engine: Any, change: str, images: np.ndarray) -> None:
    embedder = make()
    before = embedder.encode(images, engine=engine)
    with torch.no_grad() if change != "step" else torch.enable_grad():
        CHANGES[change](embedder)
    mode = embedder.training
    found = embedder.encode(images, engine=engine)
    assert embedder.encoded_by == engine
    assert embedder.training == mode
    np.testing.assert_allclose(found, embedder.encode(images, engine="eager"), atol=1e-5)
    assert not np.allclose(found, before, atol=1e-3)


def test_the_smallest_change_makes_another_engine(images: np.ndarray) -> None:
    """Smaller than the check of the first batch would see."""
    embedder = make(normalisation="none")
    before = embedder.encode(images, engine="onnxruntime")
    embedder.head.linear.bias.data += 1e-4
    np.testing.assert_allclose(embedder.encode(images, engine="onnxruntime") - before, 1e-4, rtol=0.02)


def test_an_engine_is_made_once_and_few_are_kept(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = ENGINES["folded"]

    def counted(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
        made.append(tuple(sample.shape[1:]))
        return real(network, sample, patient)

    monkeypatch.setitem(ENGINES, "folded", counted)
    embedder = make()
    for _ in range(3):
        embedder.encode(images, engine="folded")
        copy.deepcopy(embedder).encode(images, engine="folded")  # of the same content
    assert len(made) == 1
    for side in (16, 17, 18, 19):
        embedder.encode(torch.zeros(5, 3, side, side), engine="folded")
    assert len(made) == 5
    assert len(choosing.ENGINE_CACHE) == choosing.ENGINES_PER_NETWORK


@pytest.mark.parametrize("engine", FAST)
def test_engines_are_freed_with_the_last_network_that_used_them(images: np.ndarray, engine: Any) -> None:
    embedder = make()
    embedder.encode(images, engine=engine)
    embed_queries(embedder, images[:2])
    copied = copy.deepcopy(embedder)
    copied.encode(images, engine=engine)
    assert len(choosing.ENGINE_CACHE) == 2
    del embedder
    gc.collect()
    assert len(choosing.ENGINE_CACHE) == 1  # that of the copy, which has embedded no query
    del copied
    gc.collect()
    assert len(choosing.ENGINE_CACHE) == 0


def test_threads_that_need_the_same_engine_make_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = make()
    network, inputs = nn.Sequential(embedder.backbone, embedder.head).eval(), torch.randn(4, 3, 16, 16)
    calls = []

    def slow_make() -> Engine:
        calls.append(1)
        time.sleep(0.05)
        return make_engine(network, inputs, "folded")

    cache, state = choosing.EngineCache(), fingerprint(network)
    with ThreadPoolExecutor(4) as pool:
        engines = list(pool.map(lambda _: cache.engine(network, state, inputs, "folded", slow_make), range(8)))
    assert len(calls) == 1
    assert len({id(engine) for engine in engines}) == 1


def test_an_embedder_that_has_encoded_is_copied_and_pickled(images: np.ndarray, tmp_path: Path) -> None:
    embedder = make()
    expected = embedder.encode(images, engine="onnxruntime")
    size = len(pickle.dumps(make()))
    assert len(pickle.dumps(embedder)) < size + 100  # no session is in it
    for other in (copy.deepcopy(embedder), pickle.loads(pickle.dumps(embedder))):  # noqa: S301
        assert np.array_equal(other.encode(images, engine="onnxruntime"), expected)
    embedder.save(tmp_path)
    assert np.array_equal(Embedder.load(tmp_path).encode(images, engine="onnxruntime"), expected)
    assert embedder.state_dict().keys() == make().state_dict().keys()


@pytest.mark.parametrize("engine", ["eager", *FAST])
def test_many_workers_keep_the_order_and_bound_what_is_open(engine: Any) -> None:
    embedder = make(normalisation="none")
    network = nn.Sequential(embedder.backbone, embedder.head)
    inputs = torch.randn(150, 3, 16, 16)
    taken, most, lock, opened = 0, 0, threading.Lock(), 0

    def load(positions: range) -> Tensor:
        nonlocal most, opened
        time.sleep(0.003 if positions.start % 3 else 0)  # later batches overtake earlier ones
        with lock:
            opened += len(positions)
            most = max(most, opened - taken)
        return inputs[positions.start : positions.stop]

    expected = make_engine(network.eval(), inputs, "eager").run(inputs).numpy()
    found = np.empty_like(expected)
    for positions, rows in embed_in_batches(network, 150, load, options=BatchOptions(4, 6, engine)):
        assert positions.start == taken
        taken = positions.stop
        found[positions.start : positions.stop] = rows
    assert taken == opened == 150
    assert most <= (6 + 2) * 4 + encoding.FIRST
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_interrupt_ends_the_run_and_gives_the_mode_back() -> None:
    embedder = make().train()
    network = nn.Sequential(embedder.backbone, embedder.head)
    opened = []

    def load(positions: range) -> Tensor:
        opened.append(positions)
        if positions.start > 20:
            raise KeyboardInterrupt
        return torch.zeros(len(positions), 3, 16, 16)

    with pytest.raises(KeyboardInterrupt):
        list(embed_in_batches(network, 10_000, load, options=BatchOptions(4, 2, "folded")))
    assert len(opened) < 20
    assert all(module.training for module in embedder.modules())
    runs = embed_in_batches(network, 100, lambda p: torch.zeros(len(p), 3, 16, 16), options=BatchOptions(4, 2))
    next(runs)
    assert not embedder.head.training
    runs.close()  # a caller who wants no more
    assert embedder.head.training


def test_several_threads_share_an_embedder_in_training_mode(images: np.ndarray) -> None:
    embedder = make().freeze(batch_norm=True).train()
    modes = [module.training for module in embedder.modules()]
    expected = embedder.encode(images, engine="eager")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda engine: embedder.encode(images, engine=engine, workers=2), ["eager", *FAST] * 4):
            np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [module.training for module in embedder.modules()] == modes
    assert not encoding._EVALUATING
    with evaluating(embedder), evaluating(embedder):
        assert not embedder.training
    assert embedder.training


def slowed(name: str, seconds: float, concurrent: bool = False) -> Any:
    def maker(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
        right = _EAGER(network, sample, patient)

        def run(inputs: Tensor) -> Tensor:
            time.sleep(seconds * len(inputs))
            return right.run(inputs)

        return Engine(name, run, concurrent)

    return maker


_EAGER = ENGINES["eager"]


def test_auto_measures_once_chooses_the_fastest_and_keeps_the_choice(
    images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "WORTH", 0.05)
    monkeypatch.setitem(ENGINES, "eager", slowed("eager", 0.01))
    monkeypatch.setitem(ENGINES, "folded", slowed("folded", 0.001))
    monkeypatch.setitem(ENGINES, "onnxruntime", slowed("onnxruntime", 0.004))
    measured = []
    real = choosing._measure
    monkeypatch.setattr(choosing, "_measure", lambda *arguments: measured.append(1) or real(*arguments))
    embedder = make()
    embedder.encode(images)
    assert embedder.encoded_by == "folded"
    (entry,) = json.loads((choosing.cache_folder() / choosing.FILE).read_text()).values()
    assert entry["seconds"].keys() == entry["making"].keys() == {"eager", "folded", "onnxruntime"}
    forget_engines()
    embedder.apply(redraw)  # other weights, the same network
    embedder.encode(images)
    assert embedder.encoded_by == "folded"
    assert len(measured) == 1
    (choosing.cache_folder() / choosing.FILE).write_text("{ damaged")
    embedder.encode(images)
    assert len(measured) == 2
    # with another number of threads another engine may be the fastest
    embedder.encode(images, workers=8)
    assert len(measured) == 3


def test_auto_counts_the_making_of_an_engine(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = make()
    network = nn.Sequential(embedder.backbone, embedder.head).eval()
    inputs = torch.randn(8, 3, 16, 16)
    measured = choosing.Measured(
        {"eager": 0.1, "folded": 0.05, "onnxruntime": 0.01}, {"eager": 0.0, "folded": 0.5, "onnxruntime": 3.0}
    )
    choosing._write(choosing._machine_and_shape(network, inputs, 1), measured)
    for count, name in ((6, "eager"), (30, "folded"), (1000, "onnxruntime")):
        assert choosing._fastest(network, inputs, count, 1, 0.1) == name
    choose_engine(network, inputs, 1000)  # from now on it is there
    assert choosing._fastest(network, inputs, 6, 1, 0.1) == "onnxruntime"


def test_a_handful_starts_at_once(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Engine:
        raise AssertionError("made for a handful of images")

    for engine in FAST:
        monkeypatch.setitem(ENGINES, engine, never)
    embedder = make()
    for count in (1, 4, 5, 13):
        embedder.encode(images[:count])
        assert embedder.encoded_by == "eager"
    assert not (choosing.cache_folder() / choosing.FILE).exists()


def test_few_images_take_an_engine_that_is_there_and_was_checked(images: np.ndarray) -> None:
    embedder = make()
    expected = embedder.encode(images, engine="onnxruntime")
    np.testing.assert_allclose(embedder.encode(images[:2]), expected[:2], atol=1e-6)
    assert embedder.encoded_by == "onnxruntime"
    embedder.head.linear.weight.data.mul_(-1)
    embedder.encode(images[:2])
    assert embedder.encoded_by == "eager"


def test_the_bar_shows_the_engine_and_its_speed(
    images: np.ndarray, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(choosing, "WORTH", 0.0)
    monkeypatch.setitem(ENGINES, "eager", slowed("eager", 0.01))
    monkeypatch.setitem(ENGINES, "onnxruntime", slowed("onnxruntime", 0.01))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    embedder = make()
    embedder.encode(np.concatenate([images] * 3), progress=True)
    assert embedder.encoded_by == "folded"
    shown = capsys.readouterr().err
    assert "embedding, folded," in shown
    assert "images/s" in shown


def test_a_cache_folder_that_cannot_be_written_to_does_no_harm(
    images: np.ndarray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("VICINAL_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(choosing, "WORTH", 0.0)
    assert make().encode(images).shape == (13, 5)


def test_half_precision_on_the_devices_that_like_it(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = make()
    network, inputs = nn.Sequential(embedder.backbone, embedder.head).eval(), torch.randn(6, 3, 16, 16)
    plain, half = (make_engine(network, inputs, name).run(inputs).numpy() for name in ("eager", "autocast"))
    assert half.dtype == np.float32
    assert not np.array_equal(half, plain)  # bfloat16 on a CPU: three digits
    np.testing.assert_allclose(half, plain, atol=0.03)
    expected = embedder.encode(images, engine="eager")
    np.testing.assert_allclose(embedder.encode(images, engine="autocast"), expected, atol=0.03)
    assert engines_module.candidates(torch.device("cuda")) == ("folded", "autocast")
    assert engines_module.candidates(torch.device("mps")) == ()


def test_bad_names_are_refused(images: np.ndarray) -> None:
    embedder = make()
    with pytest.raises(UnknownName, match="Unknown engine 'onnx'; did you mean 'onnxruntime'"):
        BatchOptions(engine="onnx")
    with pytest.raises(InputError, match="precision 'bfloat16' is for the engine 'eager'; got engine 'folded'"):
        embedder.encode(images, engine="folded", precision="bfloat16")
    assert embedder.encode(images, precision="bfloat16").shape == (13, 5)
    assert embedder.encoded_by == "eager (bfloat16)"


def test_a_fingerprint_sees_content_and_an_outline_does_not() -> None:
    first, second = make(), make()
    assert fingerprint(first.head) == fingerprint(second.head)
    second.apply(redraw)
    assert fingerprint(first.head) != fingerprint(second.head)
    assert outline(first) == outline(second)
    assert outline(first) != outline(make("resnet18"))
    whole, half = nn.BatchNorm1d(0), nn.BatchNorm1d(0).bfloat16()  # nothing in it but its type
    assert fingerprint(half) != fingerprint(whole)
