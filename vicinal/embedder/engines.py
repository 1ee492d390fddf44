"""Engines: methods to run one network that give the same numbers at different speeds.

`ENGINES` lists them; `make_engine` builds one for a network with its current weights. An engine does not follow later
changes of the network, except for "eager", which is the network itself.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import json
import math
import platform
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, final
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from vicinal._util.files import replacing
from vicinal._util.machine import cache_folder
from vicinal._util.reading import read_json
from vicinal.embedder.onnx import graph_in_memory
from vicinal.errors import DataError, look_up

__all__ = [
    "ENGINES",
    "ENGINE_CACHE",
    "TOLERANCE",
    "Choice",
    "Engine",
    "EngineName",
    "choose_engine",
    "device_of",
    "difference",
    "fingerprint",
    "fold",
    "forget_engines",
    "make_engine",
    "outline",
]


# Folding: merge a batch norm into the convolution before it, if a forward pass shows that nothing is in between.


def fold(network: nn.Module, sample: Float[Tensor, "n ..."]) -> nn.Module:
    """Return a copy in evaluation mode with batch norms folded into the convolutions before them.

    A pair is folded if, in one forward pass of the sample, the batch norm got the very tensor that the convolution
    returned and both were called once. Whether that tensor was also used elsewhere cannot be detected: the caller
    compares the outputs, as it does for every engine.

    Args:
        network: Network to copy; not changed.
        sample: Inputs of the forward pass.

    Example:
        >>> layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
        >>> [type(layer).__name__ for layer in fold(layers, torch.zeros(1, 3, 8, 8))]
        ['Conv2d', 'Identity', 'ReLU']
    """
    folded = copy.deepcopy(network).eval()
    for convolution, norm in _adjacent(folded, sample):
        fused = fuse_conv_bn_eval(folded.get_submodule(convolution), folded.get_submodule(norm))  # type: ignore[type-var, arg-type]
        folded.set_submodule(convolution, fused)
        folded.set_submodule(norm, nn.Identity())
    return folded.requires_grad_(False)


def _adjacent(network: nn.Module, sample: Tensor) -> list[tuple[str, str]]:
    """Return the names of each convolution and the batch norm that directly follows it."""
    registered = Counter(id(module) for _, module in network.named_modules(remove_duplicate=False))
    names = {
        module: name
        for name, module in network.named_modules()
        if name and registered[id(module)] == 1 and not module._forward_hooks and not module._forward_pre_hooks
    }
    calls: Counter[nn.Module] = Counter()
    # The tensors are kept until the end, so that no two of them can have the same id.
    returned: dict[int, tuple[nn.Module, Tensor]] = {}
    pairs: list[tuple[nn.Module, nn.Module]] = []

    def after_convolution(module: nn.Module, _: Any, output: Tensor) -> None:
        calls[module] += 1
        returned[id(output)] = (module, output)

    def before_norm(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls[module] += 1
        if inputs and id(inputs[0]) in returned:
            pairs.append((returned[id(inputs[0])][0], module))

    # Exact types: a subclass may compute something else.
    handles = [module.register_forward_hook(after_convolution) for module in names if type(module) is nn.Conv2d]
    handles += [
        module.register_forward_pre_hook(before_norm)
        for module in names
        if type(module) is nn.BatchNorm2d and module.running_mean is not None
    ]
    try:
        with torch.no_grad():
            network(sample)
    finally:
        for handle in handles:
            handle.remove()
    return [
        (names[convolution], names[norm])
        for convolution, norm in pairs
        if calls[convolution] == calls[norm] == 1 and sum(first is convolution for first, _ in pairs) == 1
    ]


# Fingerprints: identify the state of a network by everything its output can depend on, not by object identity.

# attributes that torch sets in every module; parameters, buffers and hooks are handled one by one
INTERNAL = frozenset(vars(nn.Module()))


def fingerprint(network: nn.Module) -> str:
    """Return a hash of a network's content: types, settings, hooks and all parameter values.

    The values themselves are read (1 to 2 GB a second): torch's version counters miss writes through `.data`, through
    an array that shares the memory, or by an optimiser in a compiled step.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> before = fingerprint(layer)
        >>> layer.weight.data[0, 0] += 1e-7
        >>> fingerprint(layer) == before
        False
    """
    digest = hashlib.sha256()
    for name, module in network.named_modules(remove_duplicate=False):
        digest.update(f"\0{name}\0{type(module).__module__}.{type(module).__qualname__}".encode())
        hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
        settings = {key: value for key, value in vars(module).items() if key not in INTERNAL}
        for key, value in {**module._parameters, **module._buffers, **settings, "hooks": hooks}.items():
            digest.update(f"\0{key}\0".encode())
            digest.update(_content(value))
    return digest.hexdigest()


def _content(value: Any) -> Any:
    if isinstance(value, Tensor):
        kind = f"{value.dtype} {tuple(value.shape)} {value.device}".encode()
        # as bytes, since NumPy does not have bfloat16
        numbers = value.detach().cpu().contiguous().flatten()
        return hashlib.sha256(numbers.view(torch.uint8).numpy().data).digest() + kind if len(numbers) else kind
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
    return repr(value).encode()  # the memory address for objects without their own repr


def outline(network: nn.Module) -> str:
    """Return a hash of a network's architecture, independent of its weights.

    Example:
        >>> outline(nn.Linear(2, 3)) == outline(nn.Linear(2, 3)), outline(nn.Linear(2, 3)) == outline(nn.Linear(3, 3))
        (True, False)
    """
    lines = [f"{name} {type(module).__qualname__} {module.extra_repr()}" for name, module in network.named_modules()]
    lines += [f"{name} {tuple(parameter.shape)}" for name, parameter in network.named_parameters()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


EngineName = Literal["auto", "eager", "folded", "onnxruntime", "autocast"]

TOLERANCE = 1e-4
# Images per call of onnxruntime. With MobileNetV2 at 224 pixels, one thread was as fast with 4 to 8 images as with 32,
# and two threads were faster (in two short runs on a busy machine); the memory of a call grows with the number.
IMAGES_PER_CALL = 8


@final
@dataclass(frozen=True)
class Engine:
    """A method to run a network.

    Attributes:
        name: Key of `ENGINES`.
        run: Function from inputs [n, ...] to float32 rows [n, d] on the CPU.
        concurrent: Whether several threads call it at the same time, each on one core; otherwise one call uses all.
        most: Maximum number of items per call; None leaves it to the caller.
    """

    name: str
    run: Callable[[Tensor], Tensor]
    concurrent: bool = False
    most: int | None = None


def make_engine(
    network: nn.Module, sample: Float[Tensor, "n ..."], name: str = "eager", *, patient: bool = True
) -> Engine:
    """Build an engine for a network with its current weights.

    Args:
        network: Any module from inputs [n, ...] to rows [n, d]: backbone and head, or backbone and pooling. "eager"
            runs it in the mode that it is in; the others run a copy in evaluation mode.
        sample: Inputs of the shape that the engine will run on; their number may differ later.
        name: Key of `ENGINES`.
        patient: Whether a slow exporter may be tried if the fast one fails.

    Raises:
        Exception: Any error of torch or onnxruntime for a network that they cannot copy or export.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()).eval()
        >>> images = torch.randn(2, 3, 8, 8)
        >>> fast, plain = (make_engine(network, images, name).run(images) for name in ("folded", "eager"))
        >>> bool(difference(fast.numpy(), plain.numpy()).max() < 1e-10)
        True
    """
    return look_up("engine", name, ENGINES)(network, sample, patient)


def device_of(network: nn.Module) -> torch.device:
    """Return the device of a network's parameters; the CPU if there are none."""
    return next((parameter.device for parameter in network.parameters()), torch.device("cpu"))


def candidates(device: torch.device) -> tuple[str, ...]:
    """Return the engines that are worth trying on a device in addition to "eager"."""
    return {"cpu": ("folded", "onnxruntime"), "cuda": ("folded", "autocast")}.get(device.type, ())


def difference(rows: Float[np.ndarray, "n d"], expected: Float[np.ndarray, "n d"]) -> npt.NDArray[np.float64]:
    """Return the difference of each row from the expected one: half the squared relative error.

    Formula:
        ||a - b||^2 / (2 ||b||^2), which is 1 - cos(a, b) for vectors of length 1; otherwise lengths matter too

    If both rows have infinities or NaN in the same positions, the other numbers are compared; if not, the result is
    infinite.

    Example:
        >>> difference(np.array([[0.6, 0.8], [3.0, 0.0]]), np.array([[1.0, 0.0], [2.0, 0.0]])).round(3).tolist()
        [0.4, 0.125]
    """
    finite = np.isfinite(expected)
    same = np.where(finite, np.isfinite(rows), ~np.isfinite(rows)).all(axis=1)
    ours, reference = (np.where(finite & np.isfinite(rows), side, 0).astype(np.float64) for side in (rows, expected))
    error, length = ((ours - reference) ** 2).sum(axis=1), (reference**2).sum(axis=1)
    relative = np.divide(error, 2 * length, out=np.where(error > 0, np.inf, 0.0), where=length > 0)
    return np.where(same, relative, np.inf)


def _eager(network: nn.Module, _: Tensor, patient: bool = True) -> Engine:
    device = device_of(network)

    @torch.inference_mode()
    def run(inputs: Tensor) -> Tensor:
        return network(inputs.to(device)).float().cpu()

    return Engine("eager", run)


def _folded(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
    device = device_of(network)
    # Channels last: convolutions then need no reordering of memory, neither before nor after.
    folded = fold(network, sample[:1].to(device)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def run(inputs: Tensor) -> Tensor:
        inputs = inputs.to(device)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return folded(inputs).float().cpu()

    return Engine("folded", run)


def _onnxruntime(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
    import onnxruntime  # imported here, since it takes a tenth of a second

    two = sample[:2] if len(sample) > 1 else torch.cat([sample, sample])  # a batch of 1 would be exported as a constant
    graph = graph_in_memory(copy.deepcopy(network).cpu().eval(), two.cpu(), patient=patient)
    options = onnxruntime.SessionOptions()
    # One thread per call and several calls at once: no layer waits for its slowest thread.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(inputs: Tensor) -> Tensor:
        parts = torch.split(inputs.cpu(), IMAGES_PER_CALL)
        rows = [session.run(None, {"inputs": part.contiguous().numpy()})[0] for part in parts]
        return torch.from_numpy(rows[0] if len(rows) == 1 else np.concatenate(rows))

    return Engine("onnxruntime", run, concurrent=True, most=IMAGES_PER_CALL)


def _autocast(network: nn.Module, sample: Tensor, patient: bool = True) -> Engine:
    device = device_of(network)
    copied = copy.deepcopy(network).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def run(inputs: Tensor) -> Tensor:
        inputs = inputs.to(device, non_blocking=True)
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.float16 if device.type == "cuda" else torch.bfloat16):
            return copied(inputs).float().cpu()

    return Engine("autocast", run)


ENGINES: Mapping[str, Callable[[nn.Module, Tensor, bool], Engine]] = {
    "eager": _eager,
    "folded": _folded,
    "onnxruntime": _onnxruntime,
    "autocast": _autocast,
}


# Choosing: take the engine that finishes the items first, including the time to build it, and check it against eager.

CHECKED = 4  # rows of a run that are also computed by eager, which may be twenty times slower
WORTH = 3.0  # seconds of eager work below which building and measuring other engines does not pay off
PATIENCE = 60.0  # seconds of eager work from which torch's slow exporter may also be tried
# Assumed speed-up of each additional thread, relative to the first: threads share caches and memory, which a short
# measurement of a single thread does not show.
BESIDE = 0.6
FILE = "engines.json"

ENGINES_PER_NETWORK = (
    4  # an embedder, its features, its queries, and one more shape; each may hold a copy of the weights
)


@final
@dataclass(frozen=True)
class Choice:
    """The engine of one run.

    Attributes:
        engine: Engine that runs the network.
        note: Reason why it is not the requested one; empty if it is.
    """

    engine: Engine
    note: str = ""


@final
@dataclass(frozen=True)
class Measured:
    """Measured times of a network on this machine, by engine; engines that cannot run it are absent.

    Attributes:
        seconds: Seconds per item, with all threads busy.
        making: Seconds to build the engine.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    making: Mapping[str, float] = field(default_factory=dict)


@final
@dataclass(eq=False)
class _CachedEngine:
    engine: Engine | None
    checked: bool = False


@final
class EngineCache:
    """Cached engines, by the content of the network that they were built from; thread-safe.

    A network whose weights have changed does not get its old engines, and a copy of a network gets those of the
    original. Engines are freed with the last network that used them: networks are held by weak references to their
    first leaf module, since callers wrap the same modules in a new `nn.Sequential` for every call.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # held while an engine is built: torch's exporters run one at a time anyway
        self._by_content: WeakValueDictionary[tuple[str, str, str], _CachedEngine] = WeakValueDictionary()
        self._by_network: WeakKeyDictionary[nn.Module, OrderedDict[tuple[str, str, str], _CachedEngine]]
        self._by_network = WeakKeyDictionary()

    def __len__(self) -> int:
        with self._lock:
            return len(self._by_content)

    def engine(
        self, network: nn.Module, state: str, inputs: Tensor, name: str, make: Callable[[], Engine | None]
    ) -> Engine | None:
        """Return the engine of a network, built by `make` if it is not cached; None if `make` returned None.

        Args:
            network: The network with its current weights.
            state: Fingerprint of the network.
            inputs: Inputs of the shape that the engine runs.
            name: Key of the engine in the cache: its name, or a different word if it is chosen by other rules.
            make: Function that builds the engine; other threads wait for it.
        """
        key = (state, str(tuple(inputs.shape[1:])), name)
        with self._lock:
            cached = self._by_content.get(key)
            if cached is None:
                cached = self._by_content[key] = _CachedEngine(make())
            held = self._by_network.setdefault(_first_leaf(network), OrderedDict())
            held[key] = cached
            held.move_to_end(key)
            while len(held) > ENGINES_PER_NETWORK:
                held.popitem(last=False)
            return cached.engine

    def names(self, network: nn.Module, inputs: Tensor, *, checked: bool = False) -> list[str]:
        """Return the names of the engines cached for a network with its current weights, the newest first.

        Args:
            network: The network with its current weights.
            inputs: Inputs of the shape that the engines run.
            checked: Whether to list only engines whose rows were compared with those of eager.
        """
        if not len(self):
            return []  # a fingerprint reads every weight
        content = (fingerprint(network), str(tuple(inputs.shape[1:])))
        with self._lock:
            cached = list(self._by_content.items())
        return [key[2] for key, entry in reversed(cached) if key[:2] == content and (entry.checked or not checked)]

    def mark_checked(self, engine: Engine) -> None:
        """Record that the rows of an engine were compared with those of eager."""
        with self._lock:
            for cached in self._by_content.values():
                cached.checked |= cached.engine is engine

    def clear(self) -> None:
        """Free all engines."""
        with self._lock:
            self._by_network.clear()
            self._by_content.clear()


# Shared by the whole process: an engine takes a second or more to build, and independent parts of the program embed
# with the same network (encode, features of a frozen backbone, queries of an index, a server's threads). It does not
# keep networks alive.
ENGINE_CACHE = EngineCache()


def _first_leaf(network: nn.Module) -> nn.Module:
    return next(module for module in network.modules() if next(module.children(), None) is None)


def choose_engine(
    network: nn.Module, first: Float[Tensor, "n ..."], count: int, *, workers: int = 1, name: str = "auto"
) -> Choice:
    """Return an engine whose rows for the first items equal those of eager, or eager itself.

    Args:
        network: Network in evaluation mode.
        first: First items of the run; a few of their rows are compared.
        count: Total number of items; for few items, building an engine does not pay off.
        workers: Number of threads that will call it.
        name: Key of `ENGINES`, or "auto" for the fastest on this machine, which is measured at the first run that is
            long enough, and stored in the cache folder.
    """
    eager = make_engine(network, first, "eager")
    if name == "eager" or len(first) == 0:
        return Choice(eager)
    if name == "auto" and count <= CHECKED:
        # Checking another engine would take longer than eager alone.
        checked = [name for name in ENGINE_CACHE.names(network, first, checked=True) if name in ENGINES]
        return Choice(_prepare(network, first, checked[0]) if checked else eager)
    rows = sorted({round(row) for row in np.linspace(0, len(first) - 1, CHECKED)})
    start = time.perf_counter()
    expected = eager.run(first[rows]).numpy()
    eager_seconds = (time.perf_counter() - start) / len(rows)
    if name == "auto":
        name = _fastest(network, first, count, workers, eager_seconds)
        if name == "eager":
            return Choice(eager)
    try:
        engine = _prepare(network, first, name)
        actual = engine.run(first)[rows].numpy()
    except Exception as error:  # torch and onnxruntime raise many kinds of errors for unsupported networks
        return Choice(eager, f"{name} cannot run this network ({_first_line(error)})")
    worst = float(difference(actual, expected).max(initial=0.0)) if actual.shape == expected.shape else math.inf
    if not worst <= TOLERANCE:
        return Choice(eager, f"{name} gave other embeddings (difference {worst:.2g}, at most {TOLERANCE:g} is allowed)")
    ENGINE_CACHE.mark_checked(engine)
    return Choice(engine)


def forget_engines() -> None:
    """Free the engines that are cached for the next call with the same weights."""
    ENGINE_CACHE.clear()


def _fastest(network: nn.Module, first: Tensor, count: int, workers: int, eager_seconds: float) -> str:
    key = _machine_and_shape(network, first, workers)
    measured = _read().get(key)
    if measured is None:
        eager = make_engine(network, first, "eager")
        # The first pass of a process is slower than all others, so it is measured twice.
        if count * eager_seconds >= WORTH:
            eager_seconds = min(eager_seconds, _seconds(eager, first[:CHECKED]))
        if count * eager_seconds < WORTH:
            return "eager"
        patient = count * eager_seconds >= PATIENCE
        measured = _measure(network, first, candidates(device_of(network)), workers, patient)
        _write(key, measured)
    ready = ENGINE_CACHE.names(network, first)
    seconds = {
        name: count * spent + (0.0 if name in ready else measured.making.get(name, 0.0))
        for name, spent in measured.seconds.items()
    }
    return min(seconds, key=seconds.__getitem__, default="eager")


def _seconds(engine: Engine, inputs: Tensor) -> float:
    start = time.perf_counter()
    engine.run(inputs)
    return (time.perf_counter() - start) / len(inputs)


def _measure(network: nn.Module, first: Tensor, names: Sequence[str], workers: int, patient: bool) -> Measured:
    seconds: dict[str, float] = {}
    making: dict[str, float] = {}
    for name in ("eager", *names):
        start = time.perf_counter()
        try:
            engine = make_engine(network, first, name) if name == "eager" else _prepare(network, first, name, patient)
            engine.run(first[:1])
            ready = time.perf_counter() - start
            spent = _seconds(engine, first)
        except Exception:  # an engine that cannot run this network is left out, whatever it raised
            continue
        seconds[name] = spent / (1 + BESIDE * (workers - 1) if engine.concurrent and workers > 1 else 1)
        making[name] = 0.0 if name == "eager" else ready
    return Measured(seconds, making)


def _prepare(network: nn.Module, sample: Tensor, name: str, patient: bool = True) -> Engine:
    engine = ENGINE_CACHE.engine(
        network,
        fingerprint(network),
        sample,
        name,
        lambda: make_engine(network, sample, name, patient=patient),
    )
    assert engine is not None
    return engine


def _machine_and_shape(network: nn.Module, sample: Tensor, workers: int) -> str:
    device = device_of(network)
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    versions = f"torch {torch.__version__}, onnxruntime {_version('onnxruntime')}"
    shape = "x".join(map(str, sample.shape[1:]))
    return f"{processor}, {versions}, {workers} workers, {torch.get_num_threads()} threads, {shape}, {outline(network)}"


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read() -> dict[str, Measured]:
    """Return the measurements of all machines that share this cache folder; none if the file is missing or damaged."""
    try:
        content = read_json(cache_folder() / FILE)
        return {key: Measured(dict(value["seconds"]), dict(value["making"])) for key, value in content.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(key: str, measured: Measured) -> None:
    with suppress(OSError, DataError):  # if the cache is not writable, engines are measured again each time
        cache_folder().mkdir(parents=True, exist_ok=True)
        content = {name: asdict(value) for name, value in {**_read(), key: measured}.items()}
        with replacing(cache_folder() / FILE) as file:
            file.write(f"{json.dumps(content, indent=1)}\n".encode())


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"[
        :160
    ]
