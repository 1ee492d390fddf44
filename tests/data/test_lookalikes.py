"""Pictures that are there twice: re-encoded, smaller, brighter or cut a little, and none that only look alike."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from vicinal.data import checks, files, lookalikes
from vicinal.data.lookalikes import THUMBNAIL, agreement, crop_correlation, lookalike_files

pytestmark = pytest.mark.unit


def scene(seed, size=(240, 180)):
    """Blobs of grey on a slope: smooth as photographs are, and each another one."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0 : size[1], 0 : size[0]]
    picture = rng.uniform(-0.3, 0.3) * columns + rng.uniform(-0.3, 0.3) * rows
    for _ in range(9):
        x, y, reach = rng.uniform(0, size[0]), rng.uniform(0, size[1]), rng.uniform(15, 60)
        picture = picture + rng.uniform(-90, 90) * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / reach**2)
    for _ in range(60):
        x, y, reach = rng.uniform(0, size[0]), rng.uniform(0, size[1]), rng.uniform(3, 8)
        picture = picture + rng.uniform(-40, 40) * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / reach**2)
    return Image.fromarray(np.clip(picture + 128, 0, 255).astype(np.uint8)).convert("RGB")


def studio_shot(seed, paint=(170, 60, 50)):
    """An object on white: the same outline in every shot, with marks of its own."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (200, 160), (255, 255, 255))
    pen = ImageDraw.Draw(image)
    pen.rounded_rectangle((20, 50, 180, 120), 30, fill=paint)
    pen.ellipse((40, 100, 70, 130), fill=(20, 20, 20))
    pen.ellipse((130, 100, 160, 130), fill=(20, 20, 20))
    for _ in range(50):
        left, top = rng.integers(30, 160).item(), rng.integers(55, 105).item()
        shade = tuple(int(min(255, value * rng.uniform(0.6, 1.4))) for value in paint)
        pen.rectangle((left, top, left + rng.integers(4, 14).item(), top + rng.integers(3, 9).item()), fill=shade)
    return image


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
    "mirrored": ImageOps.mirror,
    "with a white border": lambda image: ImageOps.expand(image, 12, (255, 255, 255)),
    "with a black border": lambda image: ImageOps.expand(image, 12, (0, 0, 0)),
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
    small = np.asarray(scene(3).convert("RGB").resize((THUMBNAIL, THUMBNAIL)))
    part = np.asarray(cut(scene(3), 0.95, 0.0, 0.5).convert("RGB").resize((THUMBNAIL, THUMBNAIL)))
    other = np.asarray(scene(4).convert("RGB").resize((THUMBNAIL, THUMBNAIL)))
    assert crop_correlation(small, small) == pytest.approx(1.0)
    assert crop_correlation(small, part) > 0.99
    assert crop_correlation(small, part) == crop_correlation(part, small)
    assert crop_correlation(small, other) < 0.8
    assert crop_correlation(small, np.zeros_like(small)) == 0.0


def standardised(image, box):
    grey = image.convert("L").resize((32, 32), Image.Resampling.BILINEAR, box=box)
    values = np.asarray(grey, dtype=np.float64).ravel()
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


def test_the_first_look_finds_what_single_pairs_find_and_makes_the_parts_of_a_picture_once(monkeypatch):
    pictures = [cut(scene(seed // 3), 1 - 0.05 * (seed % 3), 0.5, 0.5) for seed in range(9)]
    smalls = [np.asarray(picture.resize((THUMBNAIL, THUMBNAIL))) for picture in pictures]
    smalls[8] = np.zeros_like(smalls[8])
    looks = {f"{place}.png": lookalikes.Look(None, None, None, small) for place, small in enumerate(smalls)}
    pairs = [(one, other) for one in range(9) for other in range(one + 1, 9)]
    values = {pair: by_single_pairs(smalls[pair[0]], smalls[pair[1]]) for pair in pairs}
    for (one, other), value in values.items():
        assert crop_correlation(smalls[one], smalls[other]) == pytest.approx(value, abs=1e-12)
    made, crops = [], lookalikes.crops
    monkeypatch.setattr(lookalikes, "crops", lambda small: made.append(0) or crops(small))
    candidates = [lookalikes.Candidate(*pair, mirrored=False) for pair in pairs]
    alike = lookalikes._looked_at_twice(looks, candidates, None)
    assert list(alike) == [pair for pair, value in values.items() if value >= lookalikes.ALIKE]
    assert 0 < len(alike) < len(pairs)
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


def test_studio_shots_of_different_objects_are_alike_but_no_copies(tmp_path):
    paths = [tmp_path / f"{seed}.jpg" for seed in range(8)]
    for seed, path in enumerate(paths):
        studio_shot(seed).save(path, quality=90)
    studio_shot(0).save(tmp_path / "copy.jpg", quality=50)
    studio_shot(1, paint=(60, 90, 170)).save(tmp_path / "repainted.jpg", quality=90)
    alike = lookalike_files([str(path) for path in [*paths, tmp_path / "copy.jpg", tmp_path / "repainted.jpg"]])
    assert alike.near == ((0, 8),)
    assert len(alike.alike) >= 20  # the outline is the same in all of them
    assert (1, 9) in alike.alike


def test_an_outline_alone_confirms_nothing():
    blank = Image.new("RGB", (64, 64), (255, 255, 255))
    ImageDraw.Draw(blank).point((32, 32), fill=(0, 0, 0))
    assert agreement(np.asarray(blank), np.asarray(blank)) == (0.0, 0.0)
