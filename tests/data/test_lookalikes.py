"""Pictures that are there twice: re-encoded, smaller, brighter or cut a little, and none that only look alike."""

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from vicinal.data.crop_match import THUMBNAIL, crop_correlation
from vicinal.data.lookalikes import lookalike_files

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
