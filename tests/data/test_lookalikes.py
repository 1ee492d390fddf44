"""Pictures that are there twice: re-encoded, smaller, brighter or cut a little, and none that only look alike."""

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from vicinal.data import checks, files, lookalikes
from vicinal.data.lookalikes import THUMBNAIL, crop_correlation, lookalike_files

pytestmark = pytest.mark.unit


def scene(seed, size=(240, 180)):
    """Blobs of grey on a slope: smooth as photographs are, and each another one."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0 : size[1], 0 : size[0]]
    picture = rng.uniform(-0.3, 0.3) * columns + rng.uniform(-0.3, 0.3) * rows
    for _ in range(9):
        x, y, reach = rng.uniform(0, size[0]), rng.uniform(0, size[1]), rng.uniform(15, 60)
        picture = picture + rng.uniform(-90, 90) * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / reach**2)
    return Image.fromarray(np.clip(picture + 128, 0, 255).astype(np.uint8)).convert("RGB")


def cut(image, kept, x, y):
    width, height = image.size
    left, top = x * (1 - kept) * width, y * (1 - kept) * height
    return image.crop((round(left), round(top), round(left + kept * width), round(top + kept * height)))


CHANGES = {
    "re-encoded": lambda image: image,
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "cut on all sides": lambda image: cut(image, 0.95, 0.5, 0.5),
    "cut on the left and at the top": lambda image: cut(image, 0.97, 1.0, 1.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_found_and_nothing_else(tmp_path, change):
    paths = [tmp_path / f"{seed}.png" for seed in range(24)]
    for seed, path in enumerate(paths):
        scene(seed).save(path)
    copies = [tmp_path / f"copy-{seed}.jpg" for seed in range(8)]
    for seed, path in enumerate(copies):
        CHANGES[change](scene(seed)).save(path, quality=60)
    found = lookalike_files([str(path) for path in [*paths, *copies]])
    assert found.same == ()
    assert set(found.near) == {(seed, len(paths) + seed) for seed in range(len(copies))}


def test_the_correlation_is_one_of_whole_or_cut_pictures_either_way_round():
    small = np.asarray(scene(3).convert("L").resize((THUMBNAIL, THUMBNAIL)))
    part = np.asarray(cut(scene(3), 0.95, 0.0, 0.5).convert("L").resize((THUMBNAIL, THUMBNAIL)))
    other = np.asarray(scene(4).convert("L").resize((THUMBNAIL, THUMBNAIL)))
    assert crop_correlation(small, small) == pytest.approx(1.0)
    assert crop_correlation(small, part) > 0.99
    assert crop_correlation(small, part) == crop_correlation(part, small)
    assert crop_correlation(small, other) < 0.8
    assert crop_correlation(small, np.zeros_like(small)) == 0.0


def standardised(image, box):
    values = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR, box=box), dtype=np.float64).ravel()
    values -= values.mean()
    length = float(np.linalg.norm(values))
    return values / length if length else values


def by_single_pairs(one, other):
    """The greatest correlation, of one pair of parts after the other."""
    best = -1.0
    for whole, cut_one in ((one, other), (other, one)):
        target, source = standardised(Image.fromarray(whole), None), Image.fromarray(cut_one)
        for kept in (1.0, 0.975, 0.95, 0.925, 0.9):
            size, room = kept * THUMBNAIL, (1 - kept) * THUMBNAIL
            for x in (0.0, 0.5, 1.0):
                for y in (0.0, 0.5, 1.0):
                    box = (room * x, room * y, room * x + size, room * y + size)
                    best = max(best, float(target @ standardised(source, box)))
    return best


def test_the_second_look_finds_what_single_pairs_find_and_makes_the_parts_of_a_picture_once(monkeypatch):
    pictures = [cut(scene(seed // 3), 1 - 0.05 * (seed % 3), 0.5, 0.5) for seed in range(9)]
    smalls = [np.asarray(picture.convert("L").resize((THUMBNAIL, THUMBNAIL))) for picture in pictures]
    smalls[8] = np.zeros_like(smalls[8])
    looks = {f"{place}.png": lookalikes.Look(None, None, small) for place, small in enumerate(smalls)}
    pairs = [(one, other) for one in range(9) for other in range(one + 1, 9)]
    values = {pair: by_single_pairs(smalls[pair[0]], smalls[pair[1]]) for pair in pairs}
    for (one, other), value in values.items():
        assert crop_correlation(smalls[one], smalls[other]) == pytest.approx(value, abs=1e-12)
    made, crops = [], lookalikes.crops
    monkeypatch.setattr(lookalikes, "crops", lambda small: made.append(0) or crops(small))
    found = lookalikes._same_at_a_second_look(looks, pairs, None)
    assert found == [pair for pair, value in values.items() if value >= lookalikes.ALIKE]
    assert 0 < len(found) < len(pairs)
    assert len(made) == 9


def test_a_file_that_was_looked_at_is_not_read_again_for_its_hash(tmp_path, monkeypatch):
    for number in range(3):
        scene(number).save(tmp_path / f"{number}.png")
    paths = [str(path) for path in sorted(tmp_path.iterdir())]
    assert checks.find_faults(paths, "looks") == [None] * 3
    monkeypatch.setattr(files, "read_bytes", None)
    monkeypatch.setattr(lookalikes, "read_bytes", None)
    assert len({files.digest(path) for path in paths}) == 3
    assert lookalikes.lookalike_files(paths).compared
