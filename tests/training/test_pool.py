"""The pool of each class: who is in it, and where its embeddings end."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data import Dataset, Fit, RandomAffine, arrays, digits, folder
from vicinal.embedder import Embedder
from vicinal.errors import DataError
from vicinal.training.ccp import draw_pool, embed_pool, mutual_cosine, queued_pool, unseen_batch_norm
from vicinal.training.feature_cache import OneOf
from vicinal.training.frozen import FrozenEmbedder

pytestmark = pytest.mark.unit


def test_every_item_comes_once_before_any_comes_again() -> None:
    labels = np.array([0, 1, 0, 2, 1, 0, 1, 1])
    drawn = draw_pool(labels, 5, np.random.default_rng(0))
    assert drawn.shape == (3, 5)
    for label, row in enumerate(drawn):
        mine = np.flatnonzero(labels == label).tolist()
        assert (labels[row] == label).all()
        for first in range(0, 5, len(mine)):
            part = row[first : first + len(mine)].tolist()
            assert len(set(part)) == len(part)
    again, other = (draw_pool(labels, 5, np.random.default_rng(seed)) for seed in (0, 1))
    assert np.array_equal(drawn, again)
    assert not np.array_equal(drawn, other)


def test_a_queue_serves_every_item_before_any_comes_again_over_instances() -> None:
    labels = np.array([0, 1, 0, 1, 1, 0, 1, 1])  # three and five items
    turns = [queued_pool(labels, 2, turn, (7,)) for turn in range(15)]
    for label in (0, 1):
        mine = np.flatnonzero(labels == label).tolist()
        queue = np.concatenate([turn[label] for turn in turns]).tolist()
        passes = [queue[first : first + len(mine)] for first in range(0, len(queue), len(mine))]
        assert all(sorted(part) == mine for part in passes)
        assert len({tuple(part) for part in passes}) > 1  # shuffled anew
    assert np.array_equal(turns[3], queued_pool(labels, 2, 3, (7,)))
    assert not np.array_equal(np.stack(turns), np.stack([queued_pool(labels, 2, turn, (8,)) for turn in range(15)]))


def test_batch_norm_of_a_network_from_scratch_sees_items_first() -> None:
    data = digits().of_classes(range(4))
    torch.manual_seed(0)
    fresh = Embedder("convnet", dim=32, options={"widths": [8, 16, 32], "size": 16})
    blind = mutual_cosine(_blind(fresh, data))
    pool = embed_pool(fresh, data, Fit(16, pixels="grey"), 12)
    assert blind > 0.99 > 0.95 > mutual_cosine(pool)  # without batches all classes point in one direction
    assert not unseen_batch_norm(fresh)
    assert not fresh.training
    seen = [buffer.clone() for buffer in fresh.buffers()]
    embed_pool(fresh, data, Fit(16, pixels="grey"), 12)
    assert all(map(torch.equal, seen, fresh.buffers()))  # once is enough
    frozen = Embedder("convnet", dim=8, options={"widths": [8, 16, 32], "size": 16}).freeze(batch_norm=True)
    embed_pool(frozen, data, Fit(16, pixels="grey"), 12)
    assert len(unseen_batch_norm(frozen)) == 3


def _blind(embedder: Embedder, data: Dataset) -> torch.Tensor:
    """Embeddings as batch norm at its start passes them on."""
    transform, rows = Fit(16, pixels="grey"), draw_pool(data.labels, 12, np.random.default_rng(0))
    images = torch.stack([transform(data.open(int(row))) for row in rows.ravel()])
    with torch.no_grad():
        return copy.deepcopy(embedder).eval().unnormalised(images).view(4, 12, -1)


@pytest.fixture
def vectors() -> Dataset:
    rng = np.random.default_rng(0)
    return arrays(rng.normal(size=(12, 5)).astype(np.float32), np.arange(12) % 3)


def test_embeddings_end_before_the_normalisation(vectors: Dataset) -> None:
    embedder = Embedder("linear", dim=2, options={"features": 5}, normalisation="sphere")
    embedder.train()
    pool = embed_pool(embedder, vectors, None, 4, seed=(0, 1))
    assert not embedder.training
    rows = draw_pool(vectors.labels, 4, np.random.default_rng((0, 1)))
    with torch.no_grad():
        expected = embedder.head.linear(embedder.features(torch.from_numpy(vectors.items[rows.ravel()])))
    torch.testing.assert_close(pool, expected.view(3, 4, 2))
    of_head = embed_pool(FrozenEmbedder(embedder), vectors, None, 4, seed=(0, 1))
    torch.testing.assert_close(of_head, pool)


def test_copies_are_drawn_by_the_seed(vectors: Dataset) -> None:
    embedder = Embedder("linear", dim=None, options={"features": 1})
    copies = arrays(np.arange(60.0).reshape(12, 5), vectors.labels)
    pools = [embed_pool(FrozenEmbedder(embedder), copies, OneOf(5), 4, seed=seed) for seed in ((0, 1), (0, 1), (0, 2))]
    assert torch.equal(pools[0], pools[1])
    assert not torch.equal(pools[0], pools[2])
    assert all(
        (pool.flatten().long() // 5 % 3).view(3, 4)[c].unique().tolist() == [c] for c in range(3) for pool in pools
    )


def test_a_small_class_shows_its_items_in_several_versions() -> None:
    images = np.random.default_rng(0).integers(0, 255, (4, 16, 16), dtype=np.uint8)
    data = arrays(images, np.array([0, 0, 1, 1]))
    embedder = Embedder("convnet", dim=3, options={"widths": [4], "size": 16})
    augmented = embed_pool(embedder, data, RandomAffine(16, pixels="grey"), 6)
    plain = embed_pool(embedder, data, Fit(16, pixels="grey"), 6)
    for class_ in range(2):
        assert len(torch.unique(augmented[class_], dim=0)) == 6
        assert len(torch.unique(plain[class_], dim=0)) == 2


@pytest.fixture
def with_a_bad_image(tmp_path: Path) -> Dataset:
    for name in ("a/0", "a/1", "a/2", "b/0", "b/1"):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.random.default_rng(len(name)).integers(0, 255, (16, 16), dtype=np.uint8)).save(path)
    data = folder(tmp_path)
    (tmp_path / "a" / "1.png").write_bytes(b"not an image")
    return data


@pytest.mark.filterwarnings("ignore:.*skipped")
def test_another_item_stands_for_one_that_cannot_be_read(with_a_bad_image: Dataset, tmp_path: Path) -> None:
    embedder = Embedder("convnet", dim=3, options={"widths": [4], "size": 16})
    transform = Fit(16, pixels="grey")
    with pytest.raises(DataError, match=r"1 item of a batch cannot be read"):
        embed_pool(embedder, with_a_bad_image, transform, 3)
    pool = embed_pool(embedder, with_a_bad_image, transform, 3, skip_bad=True)
    assert pool.shape == (2, 3, 3)
    assert pool.isfinite().all()
    for name in ("b/0", "b/1"):
        (tmp_path / f"{name}.png").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"none of the items that were drawn for the proxies of these classes can be read.\n.*b"
    ):
        embed_pool(embedder, with_a_bad_image, transform, 3, skip_bad=True)
