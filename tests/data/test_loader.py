from __future__ import annotations

import os
import signal
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from vicinal.data import Dataset, Fit, RandomAffine, arrays, batches, folder
from vicinal.errors import DataError, InputError
from vicinal.sampling import class_sampler, random_sampler


@pytest.fixture
def photos(tmp_path: Path, paint) -> Dataset:
    for name in "abcd":
        for i in range(4):
            paint(tmp_path / name / f"{i}.png")
    return folder(tmp_path)


def all_of(iterator) -> list[tuple[torch.Tensor, ...]]:
    return [tuple(batch) for batch in iterator]


def same(one, two) -> bool:
    return len(one) == len(two) and all(
        torch.equal(a, b) for x, y in zip(one, two, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_images_labels_and_indices_belong_together(photos: Dataset) -> None:
    seen = []
    for images, labels, indices in batches(photos, Fit(8), class_sampler(photos.labels, 2, 2)):
        assert images.shape == (4, 1, 8, 8)
        assert images.dtype == torch.float32
        assert labels.dtype == indices.dtype == torch.int64
        assert labels.tolist() == photos.labels[indices.numpy()].tolist()
        for image, index in zip(images, indices.tolist(), strict=True):
            assert torch.equal(image, Fit(8)(photos.image(index)))
        seen += labels.unique().tolist()
    assert sorted(seen) == [0, 1, 2, 3]


def test_the_number_of_workers_does_not_matter(photos: Dataset) -> None:
    runs = [
        all_of(batches(photos, RandomAffine(8), class_sampler(photos.labels, 2, 2, rounds=2), workers=workers, seed=3))
        for workers in (0, 2)
    ]
    assert same(*runs)


def test_passes_differ_and_seeds_differ(photos: Dataset) -> None:
    order = [[0, 1, 2]]
    first, other = (all_of(batches(photos, RandomAffine(8), order, seed=seed)) for seed in (0, 1))
    assert not same(first, other)
    sampler = random_sampler(len(photos), len(photos))
    passes = [all_of(batches(photos, RandomAffine(8), sampler, seed=0))[0] for _ in range(2)]
    same_item = [images[indices.argsort()] for images, _, indices in passes]
    assert not torch.equal(*same_item)


def test_an_item_twice_in_a_batch_is_drawn_twice(photos: Dataset) -> None:
    ((images, _, indices),) = all_of(batches(photos, RandomAffine(8), [[5, 5]]))
    assert indices.tolist() == [5, 5]
    assert not torch.equal(images[0], images[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_in_the_middle_of_a_pass(photos: Dataset, workers: int) -> None:
    """The state is that of the batches handed out, though workers have fetched more."""

    def sampler():
        return class_sampler(photos.labels, 2, 2, rounds=3, seed=1)

    whole = all_of(batches(photos, RandomAffine(8), sampler(), seed=2))
    assert len(whole) == 6
    stopped = sampler()
    running = batches(photos, RandomAffine(8), stopped, seed=2, workers=workers)
    begun = [tuple(next(running)) for _ in range(2)]
    state = stopped.state_dict()
    running.close()
    resumed = sampler()
    resumed.load_state_dict(state)
    rest = all_of(batches(photos, RandomAffine(8), resumed, seed=2))
    assert same(whole, begun + rest)
    assert (resumed.epoch, resumed.batch) == (1, 0)


def test_the_global_generator_is_not_touched(photos: Dataset) -> None:
    before = torch.get_rng_state()
    all_of(batches(photos, RandomAffine(8), random_sampler(16, 4)))
    assert torch.equal(before, torch.get_rng_state())


def test_vectors_need_no_transform() -> None:
    data = arrays(np.arange(12.0).reshape(6, 2), [0, 0, 1, 1, 2, 2])
    ((rows, labels, indices),) = all_of(batches(data, None, [[4, 1]]))
    assert rows.tolist() == [[8, 9], [2, 3]]
    assert labels.tolist() == [2, 0]
    assert indices.tolist() == [4, 1]
    ((doubled, _, _),) = all_of(batches(data, lambda row, rng: torch.from_numpy(2 * row), [[4, 1]]))
    assert doubled.tolist() == [[16, 18], [4, 6]]


def test_images_do_need_one(photos: Dataset) -> None:
    with pytest.raises(InputError, match="holds paths; they need a transform, got None"):
        next(batches(photos, None, [[0]]))


@pytest.mark.parametrize("workers", [0, 1])
def test_corrupt_files_are_named_or_left_out(photos: Dataset, workers: int) -> None:
    broken = [Path(photos.item(i)) for i in (1, 2)]
    broken[0].write_bytes(broken[0].read_bytes()[:60])
    broken[1].unlink()
    with pytest.raises(DataError, match="2 items of a batch cannot be read") as caught:
        all_of(batches(photos, Fit(8), [[0, 1, 2]], workers=workers))
    assert str(broken[0]) in caught.value.problems[0]
    assert "No such file" in caught.value.problems[1]
    with pytest.warns(UserWarning, match="skipped") as warned:
        found = all_of(batches(photos, Fit(8), [[0, 1, 2], [1], [3]], workers=workers, skip_bad=True))
    assert [indices.tolist() for _, _, indices in found] == [[0], [3]]
    assert len(warned) == 3


def test_an_error_of_the_transform_is_not_blamed_on_the_file(photos: Dataset) -> None:
    def wrong(image, rng):
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        all_of(batches(photos, wrong, [[0]], skip_bad=True))


@dataclass(frozen=True)
class Deadly:
    """Kills the process that reads a certain item: the first time, or every time."""

    item: torch.Tensor
    marks: Path
    always: bool = False

    def __call__(self, image, rng=None) -> torch.Tensor:
        drawn = Fit(8)(image)
        if torch.equal(drawn, self.item) and (self.always or not self.marks.exists()):
            self.marks.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return drawn


def test_a_worker_that_is_killed_is_replaced(photos: Dataset, tmp_path: Path) -> None:
    deadly = Deadly(Fit(8)(photos.image(9)), tmp_path / "marks")
    order = np.arange(16).reshape(8, 2)
    before = signal.getsignal(signal.SIGCHLD)
    found = all_of(batches(photos, deadly, order, workers=2))
    assert deadly.marks.exists()
    assert same(found, all_of(batches(photos, Fit(8), order)))
    assert signal.getsignal(signal.SIGCHLD) == before  # nobody is interrupted in the middle of something else


def test_what_kills_every_worker_is_named(photos: Dataset, tmp_path: Path) -> None:
    deadly = Deadly(Fit(8)(photos.image(9)), tmp_path / "marks", always=True)
    found = batches(photos, deadly, np.arange(16).reshape(8, 2), workers=2)
    assert [next(found).indices.tolist() for _ in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(DataError, match="killed 3 times over the same batch") as told:
        next(found)
    assert told.value.problems == (str(photos.item(8)), str(photos.item(9)))


def test_workers_read_from_a_zip(tmp_path: Path, photos: Dataset) -> None:
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as archive:
        for path in photos.items:
            archive.write(path, str(Path(path).relative_to(tmp_path)))
    inside = tuple(f"{tmp_path}/photos.zip/{Path(p).relative_to(tmp_path)}" for p in photos.items)
    zipped = Dataset(inside, photos.labels, photos.class_names)
    assert zipped.hash() == photos.hash()
    order = np.arange(16).reshape(4, 4)
    assert same(
        all_of(batches(photos, Fit(8), order)),
        all_of(batches(zipped, Fit(8), order, workers=2)),
    )
