"""Embed queries so that the answer depends on the query alone: not on what is asked beside it, nor on what was before.

Networks round differently by the size of the batch, and engines differ from each other. So every query runs by itself,
through the same engine whatever was embedded before: onnxruntime where it can run the network, else the network as it
is. Several run side by side, one core each, which for MobileNetV2 was as fast as batches of eight (7.7 and 7.9 ms of
one core for an image).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from vicinal.embedder.encode import evaluating, usual_workers
from vicinal.embedder.engines import TOLERANCE, Engine, device_of, difference, fingerprint, make_engine
from vicinal.embedder.inputs import Inputs, Item, prepare, reader
from vicinal.errors import DataError, NotFinite, VicinalError

if TYPE_CHECKING:
    from vicinal.embedder.embedder import Embedder

__all__ = ["QueryEmbedder", "embed_queries", "embed_readable"]

CHECKED = 2  # random inputs on which an engine must agree with the network as it is
MOST_KEPT = 4

# The engines made last, by the content of the network and the shape of its inputs; None for the network as it is.
_KEPT: OrderedDict[tuple[str, tuple[int, ...]], Engine | None] = OrderedDict()
_LOCK = threading.Lock()


def embed_queries(embedder: Embedder, queries: Inputs) -> Float32[np.ndarray, "n d"]:
    """Embed each query by itself.

    Args:
        embedder: What embeds; its weights may have changed since the last call.
        queries: What `Embedder.encode` takes.

    Example:
        >>> from vicinal.embedder import Embedder
        >>> images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
        >>> model = Embedder("convnet", dim=4)
        >>> bool((embed_queries(model, images)[2] == embed_queries(model, images[2])[0]).all())
        True
    """
    rows, _, faults = _embedded(embedder, queries, ())
    assert not faults
    return rows


def embed_readable(
    embedder: Embedder, queries: Inputs
) -> tuple[Float32[np.ndarray, "n d"], list[int], list[VicinalError]]:
    """Embed each query that can be read by itself.

    Args:
        embedder: What embeds.
        queries: What `Embedder.encode` takes.

    Returns:
        One row for each that can be read, the places of these, and what is wrong with each of the others.
    """
    return _embedded(embedder, queries, (DataError, NotFinite))


def _embedded(
    embedder: Embedder, queries: Inputs, passed_over: tuple[type[VicinalError], ...]
) -> tuple[Float32[np.ndarray, "n d"], list[int], list[VicinalError]]:
    count, item = reader(queries, embedder.backbone.input)
    rows = np.empty((count, embedder.dim), np.float32)
    if not count:
        return rows, [], []
    embed_one = QueryEmbedder(embedder)

    def embed(place: int) -> VicinalError | None:
        try:
            rows[place] = embed_one(item(place))
        except passed_over as fault:
            return fault
        return None

    first = embed(0)
    with ThreadPoolExecutor(usual_workers()) as pool:
        each = [first, *pool.map(embed, range(1, count))]  # what is not passed over is raised here
    places = [place for place, fault in enumerate(each) if fault is None]
    return rows[places] if len(places) < count else rows, places, [fault for fault in each if fault is not None]


@final
class QueryEmbedder:
    """Embeds one query at a time; several threads may call it.

    Args:
        embedder: With the weights that it will have from now on: reading them all for every query would cost as much
            as a small network.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._network = nn.Sequential(embedder.backbone, embedder.head)
        with evaluating(self._network):  # of which the fingerprint tells the mode
            self._state = fingerprint(self._network)

    def __call__(self, query: Item) -> Float32[np.ndarray, " d"]:
        """Embed what `Embedder.encode` takes as one item."""
        inputs = prepare(query, self._embedder.backbone.input, self._embedder.transform)[None]
        with evaluating(self._network):
            return self._embedder.rounded(self._engine(inputs).run(inputs).numpy())[0]

    def _engine(self, inputs: Tensor) -> Engine:
        key = (self._state, tuple(inputs.shape[1:]))
        with _LOCK:  # one makes it, the others wait
            if key not in _KEPT:
                _KEPT[key] = _made(self._network, inputs)
            _KEPT.move_to_end(key)
            while len(_KEPT) > MOST_KEPT:
                _KEPT.popitem(last=False)
            return _KEPT[key] or make_engine(self._network, inputs, "eager")


def _made(network: nn.Module, inputs: Tensor) -> Engine | None:
    """The engine of a network, if one beside eager can run it: which it is must not depend on the query."""
    if device_of(network).type != "cpu":
        return None
    sample = torch.randn(CHECKED, *inputs.shape[1:], generator=torch.Generator().manual_seed(0))
    try:
        engine = make_engine(network, sample, "onnxruntime", patient=False)
        expected = make_engine(network, sample, "eager").run(sample)
        worst = difference(engine.run(sample).numpy(), expected.numpy()).max()
    except Exception:  # torch and onnxruntime raise errors of many kinds for what they cannot run
        return None
    return engine if worst <= TOLERANCE else None
