"""Embed queries so that each embedding depends on the query alone, not on other queries or on earlier calls.

Rounding depends on the batch size, and engines differ from each other. So every query runs in a batch of its own, on
the same engine whatever was embedded before: onnxruntime if it can run the network, otherwise the network as it is.
Several queries run in parallel, one core each; for MobileNetV2 this was as fast as batches of eight (7.7 and 7.9 ms of
one core per image).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, final

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from vicinal.embedder.encode import embed_each, evaluating, usual_workers
from vicinal.embedder.engines import ENGINE_CACHE, TOLERANCE, Engine, device_of, difference, fingerprint, make_engine
from vicinal.embedder.inputs import Inputs, Item, prepare, reader
from vicinal.errors import DataError

if TYPE_CHECKING:
    from vicinal.embedder.embedder import Embedder

__all__ = ["QueryEmbedder", "embed_queries", "embed_readable"]

CHECKED = 2  # number of random inputs on which an engine must agree with the network as it is


def embed_queries(embedder: Embedder, queries: Inputs) -> Float32[np.ndarray, "n d"]:
    """Embed each query separately.

    Args:
        embedder: The embedder; its weights may have changed since the last call.
        queries: Queries, of any kind that `Embedder.encode` accepts.

    Example:
        >>> from vicinal.embedder import Embedder
        >>> images = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
        >>> model = Embedder("convnet", dim=4)
        >>> bool((embed_queries(model, images)[2] == embed_queries(model, images[2])[0]).all())
        True
    """
    count, item = reader(queries, embedder.backbone.input)
    rows = np.empty((count, embedder.dim), np.float32)
    for position, row in embed_each(embedder, item, range(count), run=_embed_alone):
        assert not isinstance(row, Exception)  # errors are raised
        rows[position] = row
    return rows


def embed_readable(
    embedder: Embedder, queries: Inputs
) -> tuple[Float32[np.ndarray, "n d"], list[int], list[Exception]]:
    """Embed each query that can be read, separately.

    Args:
        embedder: The embedder.
        queries: Queries, of any kind that `Embedder.encode` accepts.

    Returns:
        One row per readable query, the positions of these, and the error of each other query.
    """
    count, item = reader(queries, embedder.backbone.input)
    rows, positions, errors = [np.empty((0, embedder.dim), np.float32)], [], []
    for position, row in embed_each(embedder, item, range(count), skip=(DataError,), run=_embed_alone):
        if isinstance(row, Exception):
            errors.append(row)
        else:
            rows.append(row[None])
            positions.append(position)
    return np.concatenate(rows), positions, errors


def _embed_alone(
    network: nn.Module, count: int, load: Callable[[range], Tensor]
) -> Iterator[tuple[range, Float32[np.ndarray, "1 d"]]]:
    """Run a network on each item separately, in parallel; see `embed_in_batches`."""
    if not count:
        return
    run = _AloneEngine(network)

    def embed(position: int) -> Float32[np.ndarray, "1 d"]:
        return run(load(range(position, position + 1)))

    yield range(1), embed(0)
    with ThreadPoolExecutor(usual_workers()) as pool:
        for position, rows in enumerate(pool.map(embed, range(1, count)), start=1):
            yield range(position, position + 1), rows


@final
class _AloneEngine:
    """Runs a network on inputs [1, ...], always on the same engine; thread-safe."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        with evaluating(network):  # the fingerprint includes the mode
            self._state = fingerprint(network)

    def __call__(self, inputs: Tensor) -> Float32[np.ndarray, "1 d"]:
        with evaluating(self._network):
            # Cached under its own name: an engine that `encode` built earlier must not change the result.
            engine = ENGINE_CACHE.engine(
                self._network, self._state, inputs, "query", lambda: _query_engine(self._network, inputs)
            )
            return (engine or make_engine(self._network, inputs, "eager")).run(inputs).numpy()


@final
class QueryEmbedder:
    """Embeds one query at a time; thread-safe.

    Args:
        embedder: Embedder whose weights no longer change: checking them for every query would cost as much as running
            a small network.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._run = _AloneEngine(nn.Sequential(embedder.backbone, embedder.head))

    def __call__(self, query: Item) -> Float32[np.ndarray, " d"]:
        """Embed one item of any kind that `Embedder.encode` accepts."""
        inputs = prepare(query, self._embedder.backbone.input, self._embedder.transform)[None]
        return self._embedder.rounded(self._run(inputs))[0]


def _query_engine(network: nn.Module, inputs: Tensor) -> Engine | None:
    """Return an engine other than eager if one can run the network; the choice must not depend on the query."""
    if device_of(network).type != "cpu":
        return None
    sample = torch.randn(CHECKED, *inputs.shape[1:], generator=torch.Generator().manual_seed(0))
    try:
        engine = make_engine(network, sample, "onnxruntime", patient=False)
        expected = make_engine(network, sample, "eager").run(sample)
        worst = difference(engine.run(sample).numpy(), expected.numpy()).max()
    except Exception:  # torch and onnxruntime raise many kinds of errors for unsupported networks
        return None
    return engine if worst <= TOLERANCE else None
